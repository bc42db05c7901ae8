"""Every decoder of the product gives a value or a `LogError`, whatever the bytes are.

`decoders` lists those whose bytes no envelope protects. A module that decodes, and neither calls `unseal` nor is
reached by these, fails a test here. Entries that are whole and impossible are in
`tests/coordinator/journal/test_forged_entries.py`.
"""

import random
import re
import sys
from pathlib import Path

import pytest

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.journal.place import OneStore
from pyspark_log_coordinator.log.log import topic_inbox
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, LogError
from pyspark_log_storage.objects import node
from tests.support.counting_store import CountingStore
from tests.support.decoders import EVERY, FILES_OF_ROWS
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
    "pyspark_log.source.row": "the schema that Spark gives",
    "pyspark_log.history.archive_table": "test_the_properties_of_a_table_come_back",
    "pyspark_log.browse.filters": "test_a_value_that_is_not_json_has_no_fields",
    "pyspark_log.writing.partitioner": "columns that this process has made",
    "pyspark_log.writing.rows": "columns that this process has made",
    "pyspark_log_coordinator.audit.stored_objects": "test_a_changed_file_is_dumped_or_refused",
    "pyspark_log_coordinator.cluster.machine": "bodies of entries and snapshots",
    "pyspark_log_coordinator.group.machine": "bodies of entries and snapshots",
    "pyspark_log_coordinator.journal.state_machine": "bodies of entries and snapshots",
    "pyspark_log_coordinator.log.log": "bodies of commands in an inbox",
    "pyspark_log_coordinator.model.topic_state": "bodies of entries and snapshots",
}
"""Where something else is decoded, and why no decoder of `tests.support.decoders` leads there."""


WORDS = (0, 1, 8, 64, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def changed(dice, data, start=0, end=None):
    """Return bytes with some of those from `start` to `end` changed: bits, words, or pieces from elsewhere."""
    data, end = bytearray(data), len(data) if end is None else end
    if start == end:
        return b"\0"
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        size = min(dice.choice((1, 2, 4, 8)), end - start)
        place, source = (dice.randrange(start, end - size + 1) for _ in range(2))
        place = max(start, place - place % size) if dice.randrange(4) else place
        old = int.from_bytes(data[place : place + size], "little")
        new = dice.choice(
            (
                old ^ 1 << dice.randrange(8 * size),
                old + dice.randint(-9, 9),
                dice.choice(WORDS),
                int.from_bytes(data[source : source + size], "little"),
            )
        )
        data[place : place + size] = (new % 2 ** (8 * size)).to_bytes(size, "little")
    return bytes(data)


def cut(dice, data):
    """Return bytes of which some are missing, doubled, or inserted."""
    at, size = dice.randrange(len(data) + 1), dice.choice((1, 2, 16, 64))
    if dice.randrange(2):
        return data[:at] + (data[at + size :] if dice.randrange(2) else b"")
    return data[:at] + dice.choice((data[at : at + size], dice.randbytes(size))) + data[at:]


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
            text = file.read_text()
            if DECODES.search(text) and "unseal(" not in text:
                decoding.add(".".join((package, *file.relative_to(folder).with_suffix("").parts)))
    assert decoding - reached - set(OWN) == set(), "add it to tests/support/decoders.py"
    assert set(OWN) <= decoding, "it decodes nothing any more"


@pytest.mark.parametrize("kind", EVERY)
def test_whatever_is_given_is_a_value_or_an_error_of_the_log(kind):
    (valid, decode), refused = EVERY[kind], 0
    for number in range(20):
        dice = random.Random(f"{kind} {number}")
        for data in (changed(dice, valid), cut(dice, valid), changed(dice, cut(dice, valid)), dice.randbytes(300)):
            try:
                decode(data)
            except LogError:
                refused += 1
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


def test_of_a_huge_object_where_a_small_one_is_expected_little_is_read():
    store = CountingStore()
    for key in (layout.MARKER, "a command"):
        store.put(key, bytes(2**24))
    with pytest.raises(CorruptObject):
        node.read_marker(store)
    assert topic_inbox(OneStore(store, real_environment()), "j/")._command(store, "a command") is None
    assert store.received <= 2**17
