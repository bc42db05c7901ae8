"""Append files: a chunk is read at the position that the journal names, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pyspark_log_storage.columns.schema import RECORD_ID, RECORD_SCHEMAS
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.files import chunk
from pyspark_log_storage.files.append_file import AppendFileWriter, read_chunk, scan
from tests.support.memory_store import MemoryStore
from tests.support.plain_log import record

KEY = "topics/t/1/append/a"
NAME = "topic t, partition 0, offset 7"


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
def test_every_chunk_is_read_from_its_place_and_found_by_a_scan(stored, compression):
    store = MemoryStore()
    places = write(store, [record(each) for each in stored], compression)
    assert [read(store, place) for place in places] == stored
    assert [place for place, _ in scan(store, KEY)] == [replace(place, partition=0) for place in places]


def test_a_scan_yields_the_chunks_before_the_damage(memory):
    places = write(memory, [record([b"a"]), record([b"b"])])
    memory.put(KEY, memory.read(KEY)[:-1])
    found = scan(memory, KEY)
    assert next(found)[0] == places[0]
    with pytest.raises(CorruptObject):
        next(found)


@pytest.mark.parametrize(("byte", "error"), [(0x7F, "ends after"), (0xFF, "the maximum is")])
def test_a_damaged_length_does_not_make_a_scan_read_behind_the_file(memory, monkeypatch, byte, error):
    write(memory, [record([b"a"])])
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


def test_an_intact_chunk_of_another_file_is_not_taken_for_the_one_asked_for(memory):
    mine = write(memory, [record([b"mine"])])
    write(memory, [record([b"else"])], key="other")
    memory.put(KEY, memory.read("other"))
    with pytest.raises(CorruptObject, match="another chunk than the journal says"):
        read(memory, mine[0])
