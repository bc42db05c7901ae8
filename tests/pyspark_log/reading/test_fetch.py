"""The rows of a split as Arrow batches: joined, cut, and never wrong."""

import random

import msgspec
import pyarrow as pa
import pytest

from pyspark_log.reading.failover import Failover
from pyspark_log.reading.fetch import BATCH_BYTES_MAX, BATCH_ROWS, ChunkPlace, fetch, read_one
from pyspark_log.reading.planning import Range, split_of
from pyspark_log.writing.rows import Rows
from pyspark_log_storage.errors import CorruptObject, ObjectMissing
from tests.support.coordinator.spares import spare_file
from tests.support.counting_store import CountingStore
from tests.support.direct import read
from tests.support.plain_log import PlainLog, flip_bit, record

FLIPS = 400


def rows_of(log, topic, start, end, partition=0):
    handle = log.log.topic(topic)
    return list(fetch(log.log.store_at, split_of(handle, Range(topic, partition, start, end))))


def values(found):
    return [value for _, batch in found for value in batch.column("value").to_pylist()]


def test_a_range_is_cut_out_of_its_chunks():
    log = PlainLog()
    log.create("t")
    for batch in range(5):
        log.append("t", {0: [b"%d" % (batch * 10 + row) for row in range(10)]})
    for start, end in [(0, 50), (3, 7), (9, 11), (25, 50), (0, 1), (49, 50)]:
        assert values(rows_of(log, "t", start, end)) == [b"%d" % i for i in range(start, end)]


def test_small_chunks_are_joined_and_offsets_stay_right():
    log = PlainLog()
    log.create("t")
    for batch in range(12):
        log.append("t", {0: [b"%d" % batch] * 3})
    [(first, batch)] = rows_of(log, "t", 1, 35)
    assert (first, batch.num_rows) == (1, 34)


def test_a_joined_batch_stays_small():
    log = PlainLog()
    log.create("t")
    for _ in range(4):
        log.append("t", {0: [b"x"] * (BATCH_ROWS // 2)})
    assert [(first, batch.num_rows) for first, batch in rows_of(log, "t", 0, 2 * BATCH_ROWS)] == [
        (0, BATCH_ROWS),
        (BATCH_ROWS, BATCH_ROWS),
    ]


def test_large_rows_are_not_joined_beyond_a_few_megabytes():
    log = PlainLog()
    log.create("t")
    big = [bytes([i]) * (BATCH_BYTES_MAX * 3 // 5) for i in range(4)]
    for value in big:
        log.append("t", {0: [value]})
    found = rows_of(log, "t", 0, 4)
    assert len(found) == 4
    assert values(found) == big


def test_chunks_with_and_without_headers_are_read_in_order():
    log = PlainLog()
    log.create("t")
    for number in range(6):
        headers = [[{"key": "h", "value": b"%d" % number}]] if number % 2 else None
        log.append_rows("t", Rows(record([b"%d" % number], headers=headers), None, None))
    found = rows_of(log, "t", 0, 6)
    assert [first for first, _ in found] == list(range(6))
    assert values(found) == [b"%d" % number for number in range(6)]


def test_headers_of_some_rows_are_null_for_the_others(root):
    log = PlainLog(root)
    log.create("t")
    log.append_rows("t", Rows(record([b"a"]), None, None))
    log.append_rows("t", Rows(record([b"b"], headers=[[{"key": "h", "value": None}]]), None, None))
    found = read(root, subscribe="t", includeHeaders="true")
    assert [row["headers"] for row in found] == [None, [{"key": "h", "value": None}]]


def test_a_missing_file_is_an_error_that_names_it(root):
    log = PlainLog(root)
    log.create("t")
    log.append("t", {0: [b"a"]})
    [file] = log.files("t")
    file.unlink()
    with pytest.raises(ObjectMissing, match=f"there is no object .*{file.name}"):
        rows_of(log, "t", 0, 1)


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


@pytest.fixture(params=["none", "lz4", "zstd"])
def stored(root, request):
    """Topic t with headers and nulls in two partitions, and its one append file."""
    log = PlainLog(root)
    log.create("t", 2, compression_type=request.param)
    dice = random.Random(7)
    made = record(
        [dice.randbytes(dice.randrange(30)) if i % 7 else None for i in range(60)],
        [b"%d" % i if i % 3 else None for i in range(60)],
        headers=[[{"key": "h", "value": b"%d" % i}] if i % 2 else None for i in range(60)],
    )
    log.append_rows("t", Rows(made, None, pa.array([i % 2 for i in range(60)], pa.int32())))
    [file] = log.files("t")
    return log, file


@pytest.mark.no_faults("makes so many calls that every run meets one")
def test_any_bit_flipped_in_an_append_file_is_an_error_that_names_the_place(stored):
    log, file = stored
    good = {p: rows_of(log, "t", 0, 30, p) for p in (0, 1)}
    whole = file.read_bytes()
    dice = random.Random(11)
    for _ in range(FLIPS):
        bit = dice.randrange(len(whole) * 8)
        flip_bit(file, bit)
        damage = []
        for partition in (0, 1):
            try:
                assert rows_of(log, "t", 0, 30, partition) == good[partition], f"bit {bit}: wrong rows"
            except CorruptObject as error:
                damage.append((partition, error.message))
        [(partition, message)] = damage
        where = f"topic 't', partition {partition}, offsets 0 to 29 ({log.path}/"
        assert message.startswith(where), f"bit {bit}"
        assert f"/{file.name} at byte " in message, f"bit {bit}"
        file.write_bytes(whole)


def test_a_cut_append_file_is_an_error(stored):
    log, file = stored
    whole = file.read_bytes()
    for kept in (0, 1, 63, 64, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:kept])
        with pytest.raises(CorruptObject, match="topic 't', partition 1, offsets 0 to 29"):
            rows_of(log, "t", 0, 30, 1)


def test_another_chunk_in_a_chunks_place_is_an_error(stored):
    log, file = stored
    handle = log.log.topic("t")
    splits = [split_of(handle, Range("t", p, 0, 30)) for p in (0, 1)]
    mine, other = (split.chunks[0] for split in splits)
    wrong = msgspec.structs.replace(mine, position=other.position, length=other.length)
    place = ChunkPlace(handle.append_file(file.name), wrong.place(0), wrong.base_offset)
    with pytest.raises(CorruptObject, match="another chunk than the journal says"):
        read_one(Failover(log.log.store_at, "t", 0), splits[0].nodes, place, handle.schemas)


def test_a_bit_flipped_in_any_entry_of_the_topics_journal_that_has_no_spare_is_an_error(stored):
    log, _ = stored
    folder = log.newest_entry("t").parent
    dice = random.Random(13)
    for entry in sorted(folder.iterdir()):
        spare_file(entry).unlink()
        whole = entry.read_bytes()
        for bit in [0, len(whole) * 8 - 1, *(dice.randrange(len(whole) * 8) for _ in range(50))]:
            flip_bit(entry, bit)
            with pytest.raises(CorruptObject, match=f"journal entry .*{entry.name}"):
                PlainLog(log.path).log.topic("t")
            entry.write_bytes(whole)
