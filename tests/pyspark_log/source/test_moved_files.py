"""A reader whose files are rolled or expire between planning and reading."""

import functools
import random

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, find_again, split_of
from pyspark_log.source.splits import SplitPartition, read_split
from pyspark_log_coordinator.maintenance import topic_cleanup, topic_roll
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_coordinator.topic.machine import AlterConfig, DeleteTopic
from pyspark_log_storage.errors import ObjectMissing
from tests.support.direct import Stream
from tests.support.plain_log import PlainLog

VALUE = StructType([StructField("value", BinaryType())])


@pytest.fixture
def log(tmp_path):
    """Topic t of ten rows in ten chunks, which are due for rolling."""
    log = PlainLog(tmp_path)
    handle = log.create("t", file_delete_delay_ms=0)
    for number in range(10):
        log.append("t", {0: [b"%d" % number]})
    handle.submit(AlterConfig({"flush.messages": "1"}))
    return log


def planned(log):
    return SplitPartition(log.path, split_of(log.log.topic("t"), Range("t", 0, 0, 10)))


def move(log):
    """Roll all rows, and delete their append files."""
    handle = log.log.topic("t")
    topic_roll.roll_and_merge(handle)
    topic_cleanup.clean_up_topic(handle)


def read_by_tasks(log):
    options = {"subscribe": "t", "startingOffsets": "earliest", "failOnDataLoss": "false", "maxRecordsOnDriver": 0}
    return Stream(log.path, **options)


def values(split):
    return [value for batch in read_split(split, VALUE) for value in batch.column("value").to_pylist()]


def test_a_read_goes_on_though_its_files_are_moved_several_times(log):
    rows = [random.Random(number).randbytes(40_000) for number in range(6)]  # which a roll does not join
    handle = log.create("u", file_delete_delay_ms=0)
    for each in rows:
        log.append("u", {0: [each]})
    split = split_of(log.log.topic("u"), Range("u", 0, 0, len(rows)))
    read = fetch(log.log.store_at, split, functools.partial(find_again, log.log, split), batch_bytes_max=1)
    found = []
    for segment_format in ("log", "parquet"):
        found += [next(read) for _ in range(2)]
        handle.alter_config({"flush.messages": "1", "segment.format": segment_format})
        topic_roll.roll_and_merge(handle, at_once=True)
        topic_cleanup.clean_up_topic(handle)
    found += read
    assert [each for _, batch in found for each in batch.column("value").to_pylist()] == rows


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_file_that_is_missing_for_good_is_named_with_topic_partition_and_offset(log, is_moved):
    if is_moved:
        move(log)
    state = log.log.topic("t").refresh()
    name = state.partitions[0].segments[0].name if is_moved else state.files[6].name
    [key] = [each for each in log.log.store.list("topics/") if name in each and not each.endswith(".index")]
    log.log.store.delete(key)
    offset = 0 if is_moved else 6
    with pytest.raises(ObjectMissing, match=f"topic 't', partition 0, offset {offset}: there is no object '{key}'"):
        values(planned(log))


@pytest.mark.parametrize("before", [5, 10])
def test_a_query_that_may_lose_rows_goes_on_with_the_rest(log, caplog, before):
    stream = read_by_tasks(log)
    end = stream.reader.latestOffset(stream.start, stream.limit)
    [split] = stream.reader.partitions(stream.start, end)
    log.log.topic("t").submit(DeleteRecords(0, before))
    move(log)
    assert values(split) == [b"%d" % number for number in range(before, 10)]
    assert f"offsets 0 to {before - 1} expired or were deleted" in caplog.text


@pytest.mark.parametrize("then", ["nothing", "created again", "deletion interrupted"])
def test_a_query_that_may_lose_rows_goes_on_without_a_topic_that_was_deleted(log, caplog, then):
    stream = read_by_tasks(log)
    end = stream.reader.latestOffset(stream.start, stream.limit)
    [split] = stream.reader.partitions(stream.start, end)
    if then == "deletion interrupted":
        log.log.topic("t").submit(DeleteTopic())  # and its name stays
    else:
        log.delete("t")
    if then == "created again":
        log.create("t")
        log.append("t", {0: [b"other"] * 10})
    for key in list(log.log.store.list(f"topics/t/{split.split.topic_id}/append/")):
        log.log.store.delete(key)
    assert values(split) == []
    assert "continuing with the rest" in caplog.text
