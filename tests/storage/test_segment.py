"""Segments: many chunks in one file, found by offset and by time, and never wrong rows."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_storage.columns.schema import RECORD_ID, RECORD_SCHEMAS
from pyspark_log_storage.errors import CorruptObject, ObjectMissing
from pyspark_log_storage.files import chunk
from pyspark_log_storage.segments import segment, transfer
from tests.support.memory_store import MemoryStore
from tests.support.segment_reads import entries_between, entry_reaching
from tests.support.storage.parquet_rows import BASE, EPOCHS, batch_of

FOLDER = "topics/t/1/0/"
NAME = "00000000000000001000-00000000000000000007-abc"
KEY = FOLDER + NAME


def write(store, chunks, epochs=EPOCHS, compression="none"):
    """Write a segment of such chunks of rows; return what it says of itself."""
    writer = segment.SegmentWriter(store, KEY, epochs)
    for rows in chunks:
        header, data = chunk.encode(batch_of(rows), RECORD_ID, compression)
        writer.append(header, data)
    return writer.close()


def rows_of(store, entries):
    """Return the rows of entries, read at their positions, with their offsets."""
    found = []
    for entry in entries:
        data = pa.py_buffer(store.read(f"{KEY}.log", entry.position, entry.length))
        batch = chunk.decode(data, chunk.verify(data, "x"), RECORD_SCHEMAS, "x")
        times = batch.column("timestamp").cast(pa.int64()).to_pylist()
        for row, (value, time) in enumerate(zip(batch.column("value").to_pylist(), times, strict=True)):
            found.append((entry.base_offset + row, value, time))
    return found


rows = st.lists(st.tuples(st.binary(max_size=20), st.integers(-50, 50)), min_size=1, max_size=4)
stored_chunks = st.lists(rows, min_size=1, max_size=12)
SMALL = [[(b"a", 5), (b"b", 9)], [(b"c", 2), (b"d", 3), (b"e", 30)], [(b"f", 11)]]
"""Three chunks, offsets 1000 to 1005, whose times do not rise."""


@pytest.fixture
def memory():
    return MemoryStore("the url")


# What is written is found


@given(stored_chunks, st.sampled_from(chunk.COMPRESSIONS))
def test_every_row_is_read_back_at_its_offset_and_the_index_is_made_from_the_log_alone(chunks, compression):
    store = MemoryStore()
    done = write(store, chunks, compression=compression)
    expected = [(BASE + number, *row) for number, row in enumerate(row for each in chunks for row in each)]
    assert rows_of(store, entries_between(store, KEY, done.base_offset, done.end_offset)) == expected
    assert rows_of(store, segment.scan(store, KEY)) == expected
    times = [time for *_, time in expected]
    assert (done.name, done.base_offset, done.end_offset, done.chunks) == (NAME, BASE, BASE + len(times), len(chunks))
    assert (done.min_timestamp, done.max_timestamp) == (min(times), max(times))
    assert done.log_bytes == store.size(f"{KEY}.log")
    written = store.read(f"{KEY}.index")
    store.delete(f"{KEY}.index")
    assert transfer.check(store, KEY, done)
    assert store.read(f"{KEY}.index") == written


@given(stored_chunks, st.integers(BASE - 5, BASE + 60), st.integers(BASE - 5, BASE + 60), st.integers(-55, 55))
def test_chunks_are_found_by_the_offsets_of_their_rows_and_by_a_time_that_they_reach(chunks, start, end, time):
    store = MemoryStore()
    write(store, chunks)
    between = [e for e in segment.scan(store, KEY) if max(start, e.base_offset) < min(end, e.end_offset)]
    reaching = next((e for e in segment.scan(store, KEY) if e.max_timestamp >= time), None)
    for _ in range(2):
        assert entries_between(store, KEY, start, end) == between
        assert entry_reaching(store, KEY, time) == reaching
        store.delete(f"{KEY}.index")


@pytest.mark.parametrize(
    ("epochs", "found"),
    [
        (EPOCHS, [3, 3, 5]),  # 5 begins at 1004, inside the second chunk, which began before
        (((4, BASE + 1), (5, BASE + 5)), [4, 4, 5]),  # the log start cuts the first chunk
        (tuple((number, BASE) for number in range(50)), [49] * 3),
    ],
)
def test_chunks_carry_the_leader_epoch_of_their_rows(memory, epochs, found):
    write(memory, SMALL, epochs=epochs)
    entries = segment.scan(memory, KEY)
    assert [entry.leader_epoch for entry in entries] == found
    assert entries_between(memory, KEY, BASE, BASE + 6) == entries


# Damage


def test_a_missing_log_is_missing_with_and_without_its_index(memory):
    write(memory, SMALL)
    memory.delete(f"{KEY}.log")
    with pytest.raises(ObjectMissing):
        segment.scan(memory, KEY)
    memory.delete(f"{KEY}.index")
    with pytest.raises(ObjectMissing):
        entries_between(memory, KEY, BASE, BASE + 6)


@pytest.mark.parametrize("end", [-1, 128], ids=["damaged", "without a chunk"])
def test_an_index_is_not_made_from_a_damaged_log(memory, end):
    done = write(memory, SMALL)
    memory.put(f"{KEY}.log", memory.read(f"{KEY}.log")[:end])
    memory.delete(f"{KEY}.index")
    with pytest.raises(CorruptObject):
        transfer.check(memory, KEY, done)
    assert list(memory.list("")) == [f"{KEY}.log"]


def test_every_flipped_byte_and_every_cut_of_an_index_is_met_by_the_log(memory):
    write(memory, SMALL)
    expected = entries_between(memory, KEY, BASE + 1, BASE + 5)
    reaching = [entry_reaching(memory, KEY, time) for time in (0, 10, 31)]
    whole = memory.read(f"{KEY}.index")
    for place in range(len(whole)):
        flipped = whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :]
        for damaged in (flipped, whole[:place]):
            memory.put(f"{KEY}.index", damaged)
            assert entries_between(memory, KEY, BASE + 1, BASE + 5) == expected
            assert [entry_reaching(memory, KEY, time) for time in (0, 10, 31)] == reaching
