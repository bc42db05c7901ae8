"""Every decoder of the product gives a value or a `LogError`, whatever the bytes are, within bounds of memory and time.

`decoders` lists them, and a module that decodes and is not reached by these fails a test here. How values are used that
have the right types and are impossible is in `test_decoders_fuzzed`.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log.log import topic_inbox
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.objects import node
from tests.support import hostile_bytes
from tests.support.decoders import EVERY
from tests.support.hostile_bytes import WHOLE, attack, changed_inputs, mebibytes, too_much, whole_but_wrong
from tests.support.memory_store import MemoryStore
from tests.support.rings import sample

ROOT = Path(__file__).parent.parent
PACKAGES = {
    "pyspark_log": ROOT / "pyspark_log",
    "pyspark_log_coordinator": ROOT / "coordinator" / "pyspark_log_coordinator",
    "pyspark_log_storage": ROOT / "storage" / "pyspark_log_storage",
}
DECODES = re.compile(
    r"\b(b64decode|csv\.reader|json\.loads?|(marshal|pickle)\.loads|msgspec\.convert|(json|msgpack)\.[dD]ecode(r|)|unseal"
    r"|np\.frombuffer|iter_unpack|unpack(_from|)|open_(file|stream)|read_(message|record_batch|schema))\("
)
"""The calls by which bytes become values. `open_file`, `open_stream` and `read_...` are Arrow's."""
OWN = {
    "pyspark_log.cli.repair.dump": "JSON that this process has made",
    "pyspark_log.clients.reading": "columns that `chunk` has decoded",
    "pyspark_log.reading.arrow_rows": "columns that `chunk` has decoded",
    "pyspark_log.ui.rows": "test_a_value_that_is_not_json_has_no_fields",
    "pyspark_log.writing.partitioner": "columns that this process has made",
    "pyspark_log.writing.row_bytes": "columns that this process has made",
    "pyspark_log_coordinator.audit.stored_objects": "test_a_changed_file_is_dumped_or_refused",
    "pyspark_log_coordinator.journal.state_machine": "it makes the decoder of a machine: `entry of a topic`",
}
"""Where something else is decoded, and why no decoder of `tests.support.decoders` leads there."""
MEBIBYTES_IN_USE = 128


def test_every_module_that_decodes_is_reached_by_what_the_product_writes():
    reached, decoding = set(), set()

    def note(frame, event, _):
        if event == "call":
            reached.add(frame.f_globals.get("__name__"))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for valid, decode in EVERY.values():
            decode(valid)
    finally:
        sys.setprofile(before)
    for package, folder in PACKAGES.items():
        for file in folder.rglob("*.py"):
            if DECODES.search(file.read_text()):
                decoding.add(".".join((package, *file.relative_to(folder).with_suffix("").parts)))
    assert decoding - reached - set(OWN) == set(), "add it to tests/support/decoders.py"
    assert set(OWN) <= decoding, "it decodes nothing any more"


@pytest.mark.parametrize("kind", EVERY)
def test_whatever_is_given_is_a_value_or_an_error_of_the_log(kind):
    wrong, _, refused = attack(changed_inputs(kind, 0, 40))
    assert wrong == []
    assert refused > 0 or kind.startswith("metadata"), "what else there is, another program has written"


@pytest.mark.parametrize("kind", WHOLE)
def test_whole_bytes_that_are_wrong_are_a_value_or_an_error_of_the_log(kind):
    wrong, _, refused = attack(whole_but_wrong(kind, 0, 60))
    assert wrong == []
    assert refused > 6, "most changes do not fit"


@pytest.mark.parametrize("kind", sample(EVERY, 9))
def test_no_input_fills_the_memory_of_this_process(kind):
    Path("/proc/self/clear_refs").write_text("5")  # the most memory is that of now
    before = mebibytes("VmHWM")
    assert attack(too_much(kind, every=7))[0] == []
    assert mebibytes("VmHWM") - before < MEBIBYTES_IN_USE


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(2))
def test_no_input_ends_a_process_that_may_take_little_more_memory_than_it_has(seed):
    """In a process of its own: one that reads outside of its buffers may die."""
    command = [sys.executable, "-m", hostile_bytes.__name__, str(seed), "200"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    *wrong, last = done.stdout.splitlines() or [""]
    assert (wrong, done.returncode) == ([], 0), done.stderr[-2000:]
    tried, most = map(int, last.split())
    assert tried > 20_000
    assert most < MEBIBYTES_IN_USE


class Measured(MemoryStore):
    """Has the longest answer to a read."""

    longest = 0

    def read(self, key, start=0, length=None):
        data = super().read(key, start, length)
        self.longest = max(self.longest, len(data))
        return data


def test_of_a_huge_object_where_a_small_one_is_expected_little_is_read():
    store = Measured()
    for key in (layout.MARKER, "a command"):
        store.put(key, bytes(2**24))
    with pytest.raises(CorruptObject):
        node.read_marker(store)
    assert topic_inbox("j/", real_environment())._command(store, "a command") is None
    assert store.longest <= 2**16
