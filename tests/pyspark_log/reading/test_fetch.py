"""The rows of a split as Arrow batches: joined, cut, and never wrong."""

import msgspec
import pyarrow as pa
import pytest

from pyspark_log.reading.failover import Failover
from pyspark_log.reading.fetch import BATCH_BYTES_MAX, BATCH_ROWS, ChunkPlace, RecentChunks, fetch, read_one
from pyspark_log.reading.planning import Range, split_of
from pyspark_log_storage.errors import CorruptObject
from tests.support.counting_store import CountingStore
from tests.support.plain_log import PlainLog, flip_bit


def rows_of(log, topic, start, end, partition=0):
    handle = log.log.topic(topic)
    return list(fetch(log.log.store_at, split_of(handle, Range(topic, partition, start, end))))


def values(found):
    return [value for _, batch in found for value in batch.column("value").to_pylist()]


def test_small_chunks_are_joined_to_batches_that_stay_small():
    log = PlainLog()
    log.create("t")
    for _ in range(4):
        log.append("t", {0: [b"x"] * (BATCH_ROWS // 2)})
    found = [(offsets[0], len(offsets)) for offsets, _ in rows_of(log, "t", 1, 2 * BATCH_ROWS)]
    assert found == [(1, BATCH_ROWS - 1), (BATCH_ROWS, BATCH_ROWS)]


def test_large_rows_are_not_joined_beyond_a_few_megabytes():
    log = PlainLog()
    log.create("t")
    big = [bytes([i]) * (BATCH_BYTES_MAX * 3 // 5) for i in range(4)]
    for value in big:
        log.append("t", {0: [value]})
    found = rows_of(log, "t", 0, 4)
    assert len(found) == 4
    assert values(found) == big


def test_micro_batches_out_of_one_chunk_read_it_once():
    store = CountingStore()
    log = PlainLog(store=store)
    log.create("t")
    log.append("t", {0: [b"%d" % i for i in range(100)]})
    log.append("t", {0: [b"%d" % i for i in range(100, 110)]})
    handle = log.log.topic("t")
    store.forget()
    found = []
    for start in range(0, 110, 10):
        found += values(list(fetch(log.log.store_at, split_of(handle, Range("t", 0, start, start + 10)))))
    assert found == [b"%d" % i for i in range(110)]
    assert store.reads == 2


def test_a_chunk_that_was_kept_with_some_columns_is_read_again_for_all():
    log = PlainLog()
    handle = log.create("t")
    log.append("t", {0: [b"a", b"b"]})
    narrow = msgspec.structs.replace(split_of(handle, Range("t", 0, 0, 1)), columns=("timestamp",))
    assert [batch.schema.names for _, batch in fetch(log.log.store_at, narrow)] == [["timestamp"]]
    assert values(rows_of(log, "t", 1, 2)) == [b"b"]


@pytest.fixture
def two(tmp_path):
    """A log whose topic t has a row in each of two partitions, and its one append file."""
    log = PlainLog(tmp_path)
    log.create("t", 2)
    log.append("t", {0: [b"a"], 1: [b"b"]})
    [file] = log.files("t")
    return log, file


def test_a_damaged_chunk_is_an_error_that_names_its_rows_and_its_place(two):
    log, file = two
    [chunk] = split_of(log.log.topic("t"), Range("t", 1, 0, 1)).chunks
    flip_bit(file, 8 * (chunk.position + chunk.length - 1))
    assert values(rows_of(log, "t", 0, 1)) == [b"a"]
    place = rf"topic 't', partition 1, offsets 0 to 0 \({log.path}/.*/{file.name} at byte {chunk.position}\)"
    with pytest.raises(CorruptObject, match=place):
        rows_of(log, "t", 0, 1, partition=1)


def test_another_chunk_in_a_chunks_place_is_an_error(two):
    log, file = two
    handle = log.log.topic("t")
    splits = [split_of(handle, Range("t", p, 0, 1)) for p in (0, 1)]
    mine, other = (split.chunks[0] for split in splits)
    wrong = msgspec.structs.replace(mine, position=other.position, length=other.length)
    place = ChunkPlace(handle.append_file(file.name), wrong.place(0), wrong.base_offset)
    with pytest.raises(CorruptObject, match="another chunk than the journal says"):
        read_one(Failover(log.log.store_at, "t", 0), splits[0].nodes, place, handle.schemas)


def batch(number):
    return pa.record_batch([pa.array([number] * 100, pa.int64())], names=["n"])


def test_the_least_recently_kept_chunks_are_evicted():
    recent = RecentChunks(bytes_max=2 * batch(0).nbytes)
    for number in range(3):
        recent.keep(number, batch(number))
    recent.keep(1, batch(1))
    recent.keep(3, batch(3))
    assert [number for number in range(4) if recent.take(number) is not None] == [1, 3]
    for number in range(4):
        recent.keep(number, batch(number))
    assert [number for number in range(4) if recent.take(number) is not None] == [2, 3]


def test_a_chunk_larger_than_the_limit_is_not_kept_and_evicts_nothing():
    recent = RecentChunks(bytes_max=batch(0).nbytes)
    recent.keep("small", batch(0))
    recent.keep("large", pa.concat_batches([batch(0), batch(1)]))
    assert recent.take("large") is None
    assert recent.take("small") is not None
