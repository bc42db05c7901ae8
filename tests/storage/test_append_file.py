"""Append files: a chunk is read at the position that the journal names, or not at all."""

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_storage.columns.schema import RECORD, RECORD_ID, RECORD_SCHEMAS
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing, StoreError
from pyspark_log_storage.files import chunk
from pyspark_log_storage.files.append_file import AppendFileWriter, read_chunk, scan
from tests.support.memory_store import MemoryStore

KEY = "topics/t/1/append/a"
NAME = "topic t, partition 0, offset 7"


def batch_of(*values):
    when = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)
    return pa.RecordBatch.from_pylist([{"key": None, "value": v, "timestamp": when} for v in values], RECORD)


def write(store, batches, compression="none", key=KEY):
    """Write each batch as a chunk of the partition of its number; return the chunks' positions."""
    writer = AppendFileWriter(store.open_write(key, durable=True))
    for partition, batch in enumerate(batches):
        writer.append(partition, batch, RECORD_ID, compression)
    writer.close()
    return writer.chunks


def values(batch):
    return batch.column("value").to_pylist()


def read(store, place):
    return values(read_chunk(store, KEY, place, RECORD_SCHEMAS, NAME))


@pytest.fixture
def memory():
    return MemoryStore("the url")


@given(
    stored=st.lists(st.lists(st.binary(max_size=100), min_size=1, max_size=5), max_size=5),
    compression=st.sampled_from(chunk.COMPRESSIONS),
)
def test_every_chunk_is_read_from_its_place(stored, compression):
    store = MemoryStore()
    places = write(store, [batch_of(*each) for each in stored], compression)
    assert [read(store, place) for place in places] == stored


@given(
    stored=st.lists(st.lists(st.binary(max_size=100), min_size=1, max_size=5), max_size=5),
    compression=st.sampled_from(chunk.COMPRESSIONS),
)
def test_a_scan_finds_the_chunks_that_the_writer_named(stored, compression):
    store = MemoryStore()
    places = write(store, [batch_of(*each) for each in stored], compression)
    found = [(position, header.length, header.rows, header.crc) for position, header, _ in scan(store, KEY)]
    assert found == [(place.position, place.length, place.rows, place.crc) for place in places]


def test_chunks_lie_back_to_back(memory):
    places = write(memory, [batch_of(b"a"), batch_of(b"b" * 500), batch_of(b"c")])
    ends = [place.position + place.length for place in places]
    assert [0, *ends] == [*(place.position for place in places), memory.size(KEY)]


def test_the_writer_names_partitions_in_the_order_of_its_calls(memory):
    writer = AppendFileWriter(memory.open_write(KEY, durable=True))
    for partition in (3, 1, 3):
        writer.append(partition, batch_of(b"%d" % partition), RECORD_ID, "none")
    assert [place.partition for place in writer.chunks] == [3, 1, 3]


def test_a_file_is_invisible_until_it_is_closed(memory):
    writer = AppendFileWriter(memory.open_write(KEY, durable=True))
    writer.append(0, batch_of(b"a"), RECORD_ID, "none")
    assert list(memory.list("")) == []


def test_a_discarded_file_never_shows(memory):
    writer = AppendFileWriter(memory.open_write(KEY, durable=True))
    writer.append(0, batch_of(b"a"), RECORD_ID, "none")
    writer.discard()
    assert list(memory.list("")) == []


def test_a_file_never_takes_the_place_of_another(memory):
    places = write(memory, [batch_of(b"first")])
    with pytest.raises(StoreError):
        write(memory, [batch_of(b"other")])
    assert read(memory, places[0]) == [b"first"]


def test_a_missing_file_is_missing(memory):
    places = write(memory, [batch_of(b"a")])
    memory.delete(KEY)
    with pytest.raises(ObjectMissing):
        read(memory, places[0])


def test_every_flipped_bit_of_a_file_fails_its_chunk_and_no_other(memory):
    places = write(memory, [batch_of(b"a"), batch_of(b"b", b"c")])
    data = bytearray(memory.read(KEY))
    for byte in range(len(data)):
        for bit in range(8):
            data[byte] ^= 1 << bit
            memory.put(KEY, data)
            hit = byte >= places[1].position
            with pytest.raises(CorruptObject, match=f"offset 7.*{KEY} at byte"):
                read(memory, places[hit])
            assert read(memory, places[not hit]) == ([b"a"] if hit else [b"b", b"c"])
            data[byte] ^= 1 << bit


def test_every_cut_of_a_file_fails_its_last_chunk(memory):
    places = write(memory, [batch_of(b"a"), batch_of(b"b", b"c")])
    data = memory.read(KEY)
    for length in range(len(data)):
        memory.put(KEY, data[:length])
        with pytest.raises(CorruptObject, match=NAME):
            read(memory, places[1])


def test_a_scan_notices_every_flipped_bit(memory):
    write(memory, [batch_of(b"a"), batch_of(b"b", b"c")])
    data = bytearray(memory.read(KEY))
    for byte in range(len(data)):
        for bit in range(8):
            data[byte] ^= 1 << bit
            memory.put(KEY, data)
            with pytest.raises(CorruptObject, match=f"the url/{KEY} at byte"):
                list(scan(memory, KEY))
            data[byte] ^= 1 << bit


def test_a_scan_notices_every_cut_inside_a_chunk(memory):
    places = write(memory, [batch_of(b"a"), batch_of(b"b", b"c")])
    data = memory.read(KEY)
    for length in set(range(len(data))) - {place.position for place in places}:
        memory.put(KEY, data[:length])
        with pytest.raises(CorruptObject, match=f"the url/{KEY} at byte"):
            list(scan(memory, KEY))


def test_a_scan_yields_the_chunks_before_the_damage(memory):
    places = write(memory, [batch_of(b"a"), batch_of(b"b")])
    memory.put(KEY, memory.read(KEY)[:-1])
    found = scan(memory, KEY)
    assert next(found)[0] == places[0].position
    with pytest.raises(CorruptObject):
        next(found)


@pytest.mark.parametrize(("byte", "error"), [(0x7F, "ends after"), (0xFF, "the maximum is")])
def test_a_damaged_length_does_not_make_a_scan_read_behind_the_file(memory, monkeypatch, byte, error):
    write(memory, [batch_of(b"a")])
    data = bytearray(memory.read(KEY))
    data[11] = byte
    memory.put(KEY, data)
    asked = []
    real = memory.read
    monkeypatch.setattr(
        memory, "read", lambda key, start=0, length=None: asked.append(length) or real(key, start, length)
    )
    with pytest.raises(CorruptObject, match=error):
        list(scan(memory, KEY))
    assert asked == [chunk.HEADER_BYTES]


def test_an_empty_file_has_no_chunks(memory):
    write(memory, [])
    assert list(scan(memory, KEY)) == []


def test_an_intact_chunk_of_another_file_is_not_taken_for_the_one_asked_for(memory):
    mine = write(memory, [batch_of(b"mine")])
    write(memory, [batch_of(b"else")], key="other")
    memory.put(KEY, memory.read("other"))
    with pytest.raises(CorruptObject, match="another chunk than the journal says"):
        read(memory, mine[0])


def test_a_chunk_copied_into_another_file_is_the_same_chunk(memory):
    places = write(memory, [batch_of(b"a"), batch_of(b"b")])
    whole = memory.read(KEY)
    second = whole[places[1].position :]
    memory.put(KEY, second + whole)
    assert [values(chunk.decode(data, header, RECORD_SCHEMAS, "x")) for _, header, data in scan(memory, KEY)] == [
        [b"b"],
        [b"a"],
        [b"b"],
    ]


@given(data=st.binary(min_size=1, max_size=300))
def test_a_file_of_other_bytes_has_no_rows(data):
    store = MemoryStore()
    store.create(KEY, data)
    with pytest.raises(LogError, match=KEY):
        list(scan(store, KEY))


def test_a_file_is_read_from_any_kind_of_store(store):
    places = write(store, [batch_of(b"a"), batch_of(b"b")])
    assert [read(store, place) for place in places] == [[b"a"], [b"b"]]
