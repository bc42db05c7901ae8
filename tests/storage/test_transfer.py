"""Transfer: a copy has the same bytes, or there is none."""

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_storage.columns.schema import RECORD_ID, RECORD_SCHEMAS
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing, StoreError, StoreUnavailable
from pyspark_log_storage.files import chunk, index
from pyspark_log_storage.files.append_file import AppendFileWriter
from pyspark_log_storage.files.row_files import KeyedCounts
from pyspark_log_storage.parquet.parquet_segment import ParquetRows, ParquetSegmentWriter
from pyspark_log_storage.segments import segment, transfer
from tests.support.memory_store import MemoryStore
from tests.support.plain_log import record

FILE = "topics/t/1/append/a"
NAME = "00000000000000001000-00000000000000000007-abc"
SEGMENT = f"topics/t/1/0/{NAME}"
EPOCHS = ((3, 1000), (5, 1004))
SMALL = [[b"a", b"b"], [b"c"], [b"d", b"e", b"f"]]
PARQUET = ParquetRows(0, RECORD_SCHEMAS, "none")

values = st.lists(st.lists(st.binary(max_size=100), min_size=1, max_size=5), min_size=1, max_size=5)


def write_file(store, chunks=SMALL):
    """Write an append file with these values; return the positions of its chunks."""
    writer = AppendFileWriter(store.open_write(FILE, durable=True))
    for partition, each in enumerate(chunks):
        writer.append(partition, record(each), RECORD_ID, "none")
    writer.close()
    return writer.chunks


def write_segment(store, chunks=SMALL):
    """Write a segment with these values; return what it says of itself."""
    writer = segment.SegmentWriter(store, f"topics/t/1/0/{NAME}", EPOCHS)
    for each in chunks:
        writer.append(*chunk.encode(record(each), RECORD_ID, "none"))
    return writer.close()


def write_keyed(store, chunks=SMALL):
    """Write a keyed segment that has every second offset."""
    writer = ParquetSegmentWriter(store, f"topics/t/1/0/{NAME}.parquet", EPOCHS, PARQUET)
    offsets = itertools.count(1000, 2)
    for each in chunks:
        writer.append(record(each), RECORD_ID, 3, np.array([next(offsets) for _ in each]))
    return writer.close(next(offsets), 0)


class Kind:
    """A kind of file, and its keys, of which the source is asked for the first."""

    def __init__(self, write, *keys):
        self.write, self.keys = write, keys

    def copy(self, source, target, expected, moved=bool):
        transfer.copy(source, target, self.keys[0].removesuffix(".log"), expected, moved)

    def check(self, store, expected):
        transfer.check(store, self.keys[0].removesuffix(".log"), expected)


def write_parquet(store, chunks=SMALL):
    writer = ParquetSegmentWriter(store, f"topics/t/1/0/{NAME}.parquet", EPOCHS, PARQUET)
    for number, each in enumerate(chunks):
        writer.append(record(each), RECORD_ID, number)  # each epoch has a row group of its own
    return writer.close()


OF_PARQUET = f"{SEGMENT}.parquet", f"{SEGMENT}.parquet.index"
SEGMENTS = {
    "segment": Kind(write_segment, f"{SEGMENT}.log", f"{SEGMENT}.index"),
    "Parquet segment": Kind(write_parquet, *OF_PARQUET),
    "keyed segment": Kind(write_keyed, *OF_PARQUET),
}
KINDS = {"append file": Kind(write_file, FILE), **SEGMENTS}
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
each_segment = pytest.mark.parametrize("kind", SEGMENTS.values(), ids=SEGMENTS)


@pytest.fixture(params=["local", "memory"])
def target(request):
    return MemoryStore("the target") if request.param == "memory" else request.getfixturevalue("local")


@pytest.fixture
def source():
    return MemoryStore("the source")


def there(store):
    return list(store.list(""))


def damaged(source, key, data):
    """Return a store like `source`, in which `key` has other bytes."""
    other = MemoryStore("the source")
    for each in source.list(""):
        other.create(each, data if each == key else source.read(each))
    return other


# Copies


@each_kind
@given(stored=values, range_bytes=st.integers(1, 700))
def test_a_copy_has_the_same_bytes_whatever_is_read_at_once(kind, stored, range_bytes):
    source, target = MemoryStore(), MemoryStore()
    expected = kind.write(source, stored)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer, "RANGE_BYTES", range_bytes)
        kind.copy(source, target, expected)
        kind.check(target, expected)
    assert {key: target.read(key) for key in there(target)} == {key: source.read(key) for key in kind.keys}


@each_kind
def test_every_byte_that_is_read_is_reported(kind, source):
    told = []
    expected = kind.write(source, [[b"x" * 5000], [b"y" * 300]])
    kind.copy(source, MemoryStore(), expected, told.append)
    assert sum(told) == source.size(kind.keys[0])


# What is wrong with the source


@each_kind
def test_every_flipped_byte_every_cut_and_every_addition_is_noticed_and_leaves_nothing(kind, source):
    expected, (key, *_) = kind.write(source, [[b"a", b"b"], [b"c"]]), kind.keys
    whole = source.read(key)
    for place in range(0, len(whole), 3):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        for data in (bytes(flipped), whole[:place], whole + b"x" * (place + 1)):
            target = MemoryStore()
            with pytest.raises(LogError, match="the source"):
                kind.copy(damaged(source, key, data), target, expected)
            assert there(target) == [], place


def test_an_intact_but_other_chunk_is_noticed(source):
    expected = write_file(source)
    other, target = MemoryStore("the source"), MemoryStore()
    write_file(other, [[b"a", b"x"], *SMALL[1:]])
    with pytest.raises(CorruptObject, match="at byte 0 is damaged: it is another chunk than the journal says"):
        transfer.copy(other, target, FILE, expected)
    moved = msgspec.structs.replace(expected[-1], position=expected[-1].position + 64)
    with pytest.raises(CorruptObject, match=f"at byte {moved.position} is damaged: no chunk begins"):
        transfer.copy(source, target, FILE, [moved])
    assert not target.exists(FILE)
    transfer.copy(source, target, FILE, expected[1:2])
    assert target.read(FILE) == source.read(FILE), "it is copied whole if the journal names a part"
    assert target.exists(FILE)


WRONG = [{"base_offset": 999}, {"end_offset": 1007}, {"chunks": 2}, {"log_bytes": 64}]
COUNTS = [(name, {"keyed": KeyedCounts(6, 1)}) for name in ("Parquet segment", "keyed segment")]


@pytest.mark.parametrize(("name", "wrong"), [*itertools.product(SEGMENTS, WRONG), *COUNTS])
def test_a_segment_that_is_not_what_the_journal_names_is_noticed(name, source, wrong):
    kind, target = SEGMENTS[name], MemoryStore()
    expected = msgspec.structs.replace(kind.write(source), **wrong)
    with pytest.raises(CorruptObject, match="the source"):
        kind.copy(source, target, expected)
    assert there(target) == []


# Interruptions


@each_kind
def test_an_interrupted_copy_leaves_nothing_and_is_made_by_the_next_attempt(kind, source, target):
    expected = kind.write(MemoryStore())
    with pytest.raises(ObjectMissing, match="the source"):
        kind.copy(source, target, expected)
    kind.write(source)

    def interrupt(count):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kind.copy(source, target, expected, interrupt)
    assert there(target) == []
    assert not list(target.delete_unfinished())
    kind.copy(source, target, expected)
    kind.check(target, expected)
    assert {key: target.read(key) for key in there(target)} == {key: source.read(key) for key in kind.keys}


class Failing(MemoryStore):
    """Fails to create the objects whose keys end so."""

    ending = ".log"

    def create(self, key, data):
        if key.endswith(self.ending):
            raise StoreUnavailable(self.url, key, "the test made this up")
        return super().create(key, data)


def test_a_copy_cut_before_the_log_had_its_name_is_made_by_the_next_attempt(source):
    expected, target = write_segment(source), Failing()
    with pytest.raises(StoreUnavailable):
        transfer.copy(source, target, SEGMENT, expected)
    assert there(target) == [f"{SEGMENT}.index"]
    target.ending = "nothing"
    transfer.copy(source, target, SEGMENT, expected)
    transfer.check(target, SEGMENT, expected)


@each_segment
def test_a_segment_that_is_there_has_an_index_already(kind):
    store = Failing()
    store.ending = ".index"
    with pytest.raises(StoreUnavailable):
        kind.write(store)
    assert there(store) == []


@each_segment
def test_a_segment_of_the_same_rows_in_the_place_of_another_is_refused(kind, source):
    """As after a roll that another process has done, too."""
    expected = kind.write(source)
    for key in kind.keys:
        source.create(key.replace("abc", "abd"), source.read(key))
    other = kind.keys[0].replace("abc", "abd").removesuffix(".log")
    for read in (
        segment.scan,
        segment.epochs_of,
        index.table,
        lambda *at: transfer.check(*at, expected),
    ):
        with pytest.raises(CorruptObject, match="was written as"):
            read(source, other)


@each_kind
def test_what_is_there_is_never_replaced(kind, source, target):
    expected, (key, *_) = kind.write(source), kind.keys
    target.create(key, b"somebody else's")
    with pytest.raises(StoreError, match="already exists"):
        kind.copy(source, target, expected)
    assert target.read(key) == b"somebody else's"
    with pytest.raises(CorruptObject):
        kind.check(target, expected)


def test_to_check_a_segment_mends_its_index_and_a_wrong_one_of_the_source_is_not_copied(source):
    expected = write_segment(source)
    right = source.read(f"{SEGMENT}.index")
    for wrong in (None, b"?"):
        source.delete(f"{SEGMENT}.index")
        if wrong is not None:
            source.create(f"{SEGMENT}.index", wrong)
        target = MemoryStore()
        transfer.copy(source, target, SEGMENT, expected)
        transfer.check(source, SEGMENT, expected)
        assert source.read(f"{SEGMENT}.index") == target.read(f"{SEGMENT}.index") == right
