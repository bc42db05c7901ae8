"""Segments: many chunks in one file, found by offset and by time, and never wrong rows."""

import datetime as dt
import random

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log_storage.columns.schema import RECORD, RECORD_ID, RECORD_SCHEMAS
from pyspark_log_storage.errors import CorruptObject, LogError, NewerFormat, ObjectMissing, StoreError
from pyspark_log_storage.files import chunk, index
from pyspark_log_storage.segments import segment
from tests.support import elsewhere
from tests.support.counting_store import CountingStore
from tests.support.memory_store import MemoryStore
from tests.support.segment_reads import entries_between, entry_reaching

FOLDER = "topics/t/1/0/"
NAME = "00000000000000001000-00000000000000000007-abc"
KEY = FOLDER + NAME
BASE = 1000
EPOCHS = ((3, 1000), (5, 1004))
START = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def batch_of(rows):
    """Return rows, given as value and time in microseconds."""
    found = [{"key": None, "value": v, "timestamp": START + dt.timedelta(microseconds=t)} for v, t in rows]
    return pa.RecordBatch.from_pylist(found, RECORD)


def write(store, chunks, epochs=EPOCHS, base=BASE, compression="none"):
    """Write a segment of such chunks of rows; return what it says of itself."""
    writer = segment.SegmentWriter(store, FOLDER, NAME, base, epochs)
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


def changed(whole, dice=None, count=0):
    """Yield the bytes with one bit flipped: each bit in turn, or `count` that the dice choose."""
    for bit in range(len(whole) * 8) if dice is None else (dice.randrange(len(whole) * 8) for _ in range(count)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        yield bytes(damaged)


# What is written is found


@given(stored_chunks, st.sampled_from(chunk.COMPRESSIONS))
def test_every_row_is_read_back_at_its_offset(chunks, compression):
    store = MemoryStore()
    done = write(store, chunks, compression=compression)
    expected = [(BASE + number, *row) for number, row in enumerate(row for each in chunks for row in each)]
    assert rows_of(store, entries_between(store, KEY, done.base_offset, done.end_offset)) == expected
    assert rows_of(store, segment.scan(store, KEY)) == expected


@given(stored_chunks)
def test_the_summary_is_of_what_was_written(chunks):
    store = MemoryStore()
    done = write(store, chunks)
    times = [time for each in chunks for _, time in each]
    assert (done.name, done.base_offset, done.end_offset, done.chunks) == (NAME, BASE, BASE + len(times), len(chunks))
    assert (done.min_timestamp, done.max_timestamp) == (min(times), max(times))
    assert done.log_bytes == store.size(f"{KEY}.log")


@given(stored_chunks)
def test_the_index_made_from_the_log_alone_is_the_one_that_was_written(chunks):
    store = MemoryStore()
    write(store, chunks)
    written = store.read(f"{KEY}.index")
    store.delete(f"{KEY}.index")
    segment.rebuild_index(store, KEY)
    assert store.read(f"{KEY}.index") == written


@given(stored_chunks, st.integers(BASE - 5, BASE + 60), st.integers(BASE - 5, BASE + 60), st.booleans())
def test_the_chunks_between_two_offsets_are_those_that_hold_a_row_of_them(chunks, start, end, indexed):
    store = MemoryStore()
    write(store, chunks)
    expected = [e for e in segment.scan(store, KEY) if max(start, e.base_offset) < min(end, e.end_offset)]
    if not indexed:
        store.delete(f"{KEY}.index")
    assert entries_between(store, KEY, start, end) == expected


@given(stored_chunks, st.integers(-55, 55), st.booleans())
def test_the_chunk_reaching_a_time_is_the_first_with_a_row_so_late(chunks, time, indexed):
    store = MemoryStore()
    write(store, chunks)
    expected = next((e for e in segment.scan(store, KEY) if e.max_timestamp >= time), None)
    if not indexed:
        store.delete(f"{KEY}.index")
    assert entry_reaching(store, KEY, time) == expected


def test_chunks_carry_the_leader_epoch_of_their_rows(memory):
    write(memory, SMALL)  # epoch 5 begins at 1004, inside the second chunk, which began before
    assert [entry.leader_epoch for entry in segment.scan(memory, KEY)] == [3, 3, 5]
    assert [entry.leader_epoch for entry in entries_between(memory, KEY, BASE, BASE + 6)] == [3, 3, 5]


def test_a_first_chunk_that_the_log_start_cuts_is_of_the_oldest_epoch_that_is_kept(memory):
    write(memory, SMALL, epochs=((4, BASE + 1), (5, BASE + 5)))
    assert [entry.leader_epoch for entry in segment.scan(memory, KEY)] == [4, 4, 5]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50])
def test_a_header_has_room_for_any_number_of_epochs(memory, count):
    write(memory, SMALL, epochs=tuple((number, BASE) for number in range(count)))
    assert len(segment.scan(memory, KEY)) == 3
    assert segment.scan(memory, KEY)[0].position % 64 == 0


def test_chunks_are_copied_bit_by_bit(memory):
    header, data = chunk.encode(batch_of(SMALL[0]), RECORD_ID, "zstd")
    writer = segment.SegmentWriter(memory, FOLDER, NAME, BASE, EPOCHS)
    writer.append(header, data)
    writer.close()
    [entry] = segment.scan(memory, KEY)
    assert memory.read(f"{KEY}.log", entry.position, entry.length) == data


def test_a_segment_is_read_from_any_kind_of_store(store):
    done = write(store, SMALL)
    assert [row[1] for row in rows_of(store, entries_between(store, KEY, BASE, done.end_offset))] == [
        b"a",
        b"b",
        b"c",
        b"d",
        b"e",
        b"f",
    ]


# What it costs


@pytest.fixture(scope="module")
def large():
    """A segment of 10,000 chunks of ten rows, in a store without faults: a run of a test makes no other one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(elsewhere.FAULTS_OF_STORES, "")
        store = CountingStore()
    ten = [chunk.encode(batch_of([(b"v", n * 10 + i) for i in range(10)]), RECORD_ID, "none") for n in range(10_000)]
    writer = segment.SegmentWriter(store, FOLDER, NAME, BASE, EPOCHS)
    for header, data in ten:
        writer.append(header, data)
    writer.close()
    return store


@pytest.mark.parametrize("offset", [0, 12_345, 55_555, 99_999])
def test_one_offset_among_ten_thousand_chunks_reads_less_than_64_kib(large, offset):
    large.forget()
    [entry] = entries_between(large, KEY, BASE + offset, BASE + offset + 1)
    assert entry.base_offset == BASE + offset // 10 * 10
    assert large.received < 64 * 1024
    assert large.reads <= 10


@pytest.mark.parametrize("time", [-7, 12_345, 99_999, 100_000])
def test_one_time_among_ten_thousand_chunks_reads_less_than_64_kib(large, time):
    large.forget()
    found = entry_reaching(large, KEY, time)
    assert (found and found.base_offset) == (None if time == 100_000 else BASE + max(time, 0) // 10 * 10)
    assert large.received < 64 * 1024


def test_a_scan_holds_one_chunk_at_a_time(large):
    large.forget()
    next(segment.chunks(large, KEY))
    assert large.received < 4096


def test_the_chunks_of_a_whole_segment_are_found_by_few_reads():
    store = CountingStore()
    entries = [index.IndexEntry(BASE + n, 1, 64 + 64 * n, 64, 0, 0, 0, 0, 0) for n in range(5_000)]
    store.put(f"{KEY}.index", index.encode(BASE, 64 * 5_001, entries))
    store.forget()
    assert entries_between(store, KEY, 0, BASE + 9_999) == entries
    assert store.reads == 1 + 5  # the header, and 65 blocks of 78 entries by 16


# When it becomes visible


def test_a_segment_is_invisible_until_it_is_closed(memory):
    writer = segment.SegmentWriter(memory, FOLDER, NAME, BASE, EPOCHS)
    writer.append(*chunk.encode(batch_of(SMALL[0]), RECORD_ID, "none"))
    assert list(memory.list("")) == []
    writer.close()
    assert list(memory.list("")) == [f"{KEY}.index", f"{KEY}.log"]


def test_a_discarded_segment_never_shows(memory):
    writer = segment.SegmentWriter(memory, FOLDER, NAME, BASE, EPOCHS)
    writer.append(*chunk.encode(batch_of(SMALL[0]), RECORD_ID, "none"))
    writer.discard()
    assert list(memory.list("")) == []


def test_a_segment_never_takes_the_place_of_another(memory):
    write(memory, SMALL)
    before = memory.read(f"{KEY}.log")
    with pytest.raises(StoreError, match="never reused"):
        write(memory, [[(b"other", 0)]])
    assert memory.read(f"{KEY}.log") == before


def test_what_has_a_log_has_an_index_already(memory, monkeypatch):
    create = memory.create

    def create_or_die(key, data):
        if key.endswith(".index"):
            raise StoreError("the url", key, "the disk went away")
        return create(key, data)

    monkeypatch.setattr(memory, "create", create_or_die)
    with pytest.raises(StoreError, match="went away"):
        write(memory, SMALL)
    assert list(memory.list("")) == []


# Damage


def test_every_flipped_bit_of_a_log_is_an_error_of_a_scan(memory):
    write(memory, [[(b"a", 1)], [(b"b", 2), (b"c", 3)]])
    for damaged in changed(memory.read(f"{KEY}.log")):
        memory.put(f"{KEY}.log", damaged)
        with pytest.raises(CorruptObject, match=f"the url/{KEY}.log"):
            segment.scan(memory, KEY)


def test_every_flipped_bit_of_an_index_is_met_by_the_log(memory):
    write(memory, SMALL)
    expected = entries_between(memory, KEY, BASE + 1, BASE + 5)
    reaching = [entry_reaching(memory, KEY, time) for time in (0, 10, 30, 31)]
    whole = memory.read(f"{KEY}.index")
    # All bits of the header and the entries; of the zeros behind them and the checksum, some.
    some = [*changed(whole[: 64 + 8 + 3 * 52])], [*changed(whole[64 + 8 + 3 * 52 :], random.Random(1), 200)]
    for damaged in [each + whole[len(each) :] for each in some[0]] + [whole[: -len(each)] + each for each in some[1]]:
        memory.put(f"{KEY}.index", damaged)
        assert entries_between(memory, KEY, BASE + 1, BASE + 5) == expected
        assert [entry_reaching(memory, KEY, time) for time in (0, 10, 30, 31)] == reaching


@settings(max_examples=50)
@given(st.randoms(use_true_random=False), stored_chunks)
def test_a_flipped_bit_of_a_large_log_is_never_other_rows(dice, chunks):
    store = MemoryStore()
    done = write(store, chunks, compression="lz4")
    good = rows_of(store, segment.scan(store, KEY))
    for damaged in changed(store.read(f"{KEY}.log"), dice, 20):
        store.put(f"{KEY}.log", damaged)
        found = entries_between(store, KEY, done.base_offset, done.end_offset)
        try:
            read = rows_of(store, found)
        except CorruptObject:
            continue
        assert read == good  # the bit is in the header of the file, which the index does not need


def test_every_cut_of_a_log_is_an_error_or_whole_chunks(memory):
    write(memory, SMALL)
    entries = segment.scan(memory, KEY)
    whole = memory.read(f"{KEY}.log")
    bounds = {entry.position: number for number, entry in enumerate(entries)}
    for length in range(len(whole)):
        memory.put(f"{KEY}.log", whole[:length])
        if length in bounds:
            assert segment.scan(memory, KEY) == entries[: bounds[length]]
        else:
            with pytest.raises(CorruptObject):
                segment.scan(memory, KEY)


def test_every_cut_of_an_index_is_met_by_the_log(memory):
    write(memory, SMALL)
    expected = entries_between(memory, KEY, BASE, BASE + 6)
    whole = memory.read(f"{KEY}.index")
    for length in range(len(whole)):
        memory.put(f"{KEY}.index", whole[:length])
        assert entries_between(memory, KEY, BASE, BASE + 6) == expected


def test_a_missing_log_is_missing_with_and_without_its_index(memory):
    write(memory, SMALL)
    memory.delete(f"{KEY}.log")
    with pytest.raises(ObjectMissing):
        segment.scan(memory, KEY)
    memory.delete(f"{KEY}.index")
    with pytest.raises(ObjectMissing):
        entries_between(memory, KEY, BASE, BASE + 6)


def test_an_index_is_not_made_from_a_damaged_log(memory):
    write(memory, SMALL)
    memory.put(f"{KEY}.log", memory.read(f"{KEY}.log")[:-1])
    memory.delete(f"{KEY}.index")
    with pytest.raises(CorruptObject):
        segment.rebuild_index(memory, KEY)
    assert list(memory.list("")) == [f"{KEY}.log"]


def test_an_index_is_not_made_of_no_chunk(memory):
    write(memory, SMALL)
    memory.put(f"{KEY}.log", memory.read(f"{KEY}.log")[: segment.scan(memory, KEY)[0].position])
    with pytest.raises(CorruptObject, match="no chunk"):
        segment.rebuild_index(memory, KEY)


def test_a_damaged_length_of_the_header_does_not_make_a_reader_read_behind_it():
    store = CountingStore()
    write(store, SMALL)
    whole = bytearray(store.read(f"{KEY}.log"))
    whole[8:12] = b"\xc0\xff\xff\x7f"
    store.put(f"{KEY}.log", whole)
    store.forget()
    with pytest.raises(CorruptObject, match="header"):
        segment.scan(store, KEY)
    assert store.received < 64


@given(st.binary(min_size=1, max_size=300))
def test_a_file_of_other_bytes_has_no_rows(data):
    store = MemoryStore()
    store.put(f"{KEY}.log", data)
    with pytest.raises(LogError, match=KEY):
        segment.scan(store, KEY)


def test_a_newer_segment_is_distinguished_from_a_damaged_one(memory):
    write(memory, SMALL)
    whole = memory.read(f"{KEY}.log")
    header = whole[:4] + b"\2\0" + whole[6:60]
    memory.put(f"{KEY}.log", header + google_crc32c.value(header).to_bytes(4, "little") + whole[64:])
    with pytest.raises(NewerFormat, match="segment format 2"):
        segment.scan(memory, KEY)


def test_a_newer_index_is_not_taken_for_a_damaged_one(memory):
    write(memory, SMALL)
    whole = memory.read(f"{KEY}.index")
    header = whole[:4] + b"\4\0" + whole[6:60]
    memory.put(f"{KEY}.index", header + google_crc32c.value(header).to_bytes(4, "little") + whole[64:])
    with pytest.raises(NewerFormat, match="index format 4"):
        entries_between(memory, KEY, BASE, BASE + 6)


@pytest.mark.parametrize("base", [-1, 2**62 + 1, 2**63 - 1])
def test_a_segment_that_claims_to_begin_behind_all_offsets_is_an_error(memory, base):
    memory.put(f"{KEY}.log", segment.encode_header(base, EPOCHS))
    with pytest.raises(CorruptObject, match="its base offset is"):
        segment.scan(memory, KEY)


def test_a_segment_that_claims_more_rows_than_one_holds_is_an_error(memory):
    """Its index could not be made."""
    data = bytearray(chunk.encode(batch_of([(b"a", 1)]), RECORD_ID, "none")[1])
    data[16:20] = chunk.CHUNK_ROWS_MAX.to_bytes(4, "little")
    data[60:64] = chunk._checksum(bytes(data[:60]), bytes(data[64:])).to_bytes(4, "little")
    memory.put(f"{KEY}.log", segment.encode_header(0, EPOCHS) + bytes(data) * 3)
    with pytest.raises(CorruptObject, match="more than"):
        segment.scan(memory, KEY)
