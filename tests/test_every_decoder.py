"""Every decoder of the product gives a value or a `LogError`, whatever the bytes are.

`decoders` lists them, and a module that decodes and is not reached by these fails a test here. Entries that
are whole and impossible are in `tests/coordinator/journal/test_forged_entries.py`.
"""

import random
import re
import sys
from pathlib import Path

import pytest

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log.log import topic_inbox
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.objects import node
from tests.support.decoders import EVERY, FILES_OF_ROWS
from tests.support.hostile_bytes import attack, changed_inputs
from tests.support.memory_store import MemoryStore
from tests.support.rings import deep

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
    "pyspark_log.clients.reading": "columns that `chunk` has decoded",
    "pyspark_log.reading.arrow_rows": "columns that `chunk` has decoded",
    "pyspark_log.browse.filters": "test_a_value_that_is_not_json_has_no_fields",
    "pyspark_log.writing.partitioner": "columns that this process has made",
    "pyspark_log.writing.rows": "columns that this process has made",
    "pyspark_log_coordinator.audit.stored_objects": "test_a_changed_file_is_dumped_or_refused",
    "pyspark_log_coordinator.journal.state_machine": "it makes the decoder of a machine: `entry of a topic`",
}
"""Where something else is decoded, and why no decoder of `tests.support.decoders` leads there."""


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
    wrong, refused = attack(changed_inputs(kind, 0, 40))
    assert wrong == []
    assert refused > 0 or kind.startswith("metadata"), "what else there is, another program has written"


@pytest.mark.parametrize("times", [100, *map(deep, [10_000])])
@pytest.mark.parametrize("kind", FILES_OF_ROWS)
def test_a_changed_byte_of_a_file_of_rows_is_noticed_before_arrow_sees_it(kind, times):
    """Arrow may end the process."""
    valid, decode = FILES_OF_ROWS[kind]
    dice = random.Random(kind)
    for _ in range(times):
        data, place = bytearray(valid), dice.randrange(len(valid))
        data[place] ^= dice.randrange(1, 256)
        with pytest.raises(CorruptObject) as noticed:
            decode(bytes(data))
        assert "Arrow" not in str(noticed.value), place


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
