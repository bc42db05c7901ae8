"""Micro-batches of few rows: the driver reads them while it plans, and Spark gets them as one split.

`Stream.between`, with which all tests here read streams, holds that tasks would have read the same rows.
"""

import sys
import threading

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_log import opening
from pyspark_log.reading import stream_planner
from pyspark_log.source import splits
from pyspark_log.source.readers import StreamReader
from pyspark_log.source.splits import SmallBatch, SplitPartition
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.log.log import Log
from pyspark_log_storage.errors import ObjectMissing
from tests.support.counted_bucket import CountedCluster
from tests.support.direct import Stream, source
from tests.support.plain_log import PlainLog
from tests.support.pyspark_log.typed_frames import write

PARTITIONS = 4


@pytest.fixture
def log(tmp_path):
    made = PlainLog(tmp_path / "log")
    made.create("t", PARTITIONS)
    for number in range(2):
        made.append("t", {each: [b"%d-%d" % (each, number)] * 3 for each in range(PARTITIONS)})
    return made


def stream(log, **options):
    return Stream(log.path, **{"subscribe": "t", "startingOffsets": "earliest"} | options)


def planned(made):
    """The kinds of the partitions that Spark gets of the next batch, and the offset with which it ends."""
    end = made.reader.latestOffset(made.start, made.limit)
    return [type(each) for each in made.reader.partitions(made.start, end)], end


ONE_TASK, ITS_OWN_TASK_EACH = [SmallBatch], [SplitPartition] * PARTITIONS


def test_few_rows_of_many_partitions_are_one_split_with_the_rows_of_each_in_order(log):
    made = stream(log)
    kinds, end = planned(made)
    assert kinds == ONE_TASK
    found = made.handed_over(made.start, end)
    places = [(row["partition"], row["offset"]) for row in found.to_pylist()]
    assert places == [(each, offset) for each in range(PARTITIONS) for offset in range(6)]


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ({"maxRecordsOnDriver": 24}, ONE_TASK),
        ({"maxRecordsOnDriver": 23}, ITS_OWN_TASK_EACH),
        ({"maxRecordsOnDriver": 0}, ITS_OWN_TASK_EACH),
        ({"minPartitions": 1}, ONE_TASK),
        ({"minPartitions": 2}, ITS_OWN_TASK_EACH),
        ({"maxRecordsPerPartition": 24}, ONE_TASK),
        ({"maxRecordsPerPartition": 23}, ITS_OWN_TASK_EACH),
    ],
)
def test_tasks_read_more_rows_than_the_driver_or_one_task_may_and_those_that_shall_have_several(log, options, kinds):
    assert planned(stream(log, **options))[0] == kinds


@pytest.mark.parametrize(("module", "bound"), [(stream_planner, "SMALL_STORED_BYTES_MAX"), (splits, "BYTES_MAX")])
def test_tasks_read_rows_that_are_large_as_stored_or_in_memory(log, monkeypatch, module, bound):
    monkeypatch.setattr(module, bound, 500)
    made = stream(log)
    kinds, end = planned(made)
    assert kinds == ITS_OWN_TASK_EACH
    assert made.handed_over(made.start, end) is None


def test_tasks_read_few_rows_of_large_chunks(log, monkeypatch):
    sizes = [file.stat().st_size for file in log.files("t")]
    assert planned(stream(log, maxOffsetsPerTrigger=4))[0] == ONE_TASK
    monkeypatch.setattr(stream_planner, "SMALL_READ_BYTES_MAX", max(sizes) // 2)
    assert planned(stream(log, maxOffsetsPerTrigger=4))[0] == ITS_OWN_TASK_EACH


@pytest.mark.parametrize("kind", [StreamReader, type("Derived", (StreamReader,), {})])
def test_a_reader_hands_over_only_between_two_calls_and_what_it_has_given_is_not_kept(log, kind):
    made = stream(log)
    made.reader.__class__ = kind
    _, end = planned(made)
    assert type(made.reader) is not kind
    assert made.handed_over(made.start, end).num_rows == 24
    assert (type(made.reader), made.reader.rows) == (kind, [])
    assert made.reader.reportLatestOffset()["offsetsBehindLatest"]["maxOffsetsBehindLatest"] == "0"


def test_rows_that_the_driver_cannot_read_are_read_by_tasks_which_say_why(log):
    made = stream(log)
    end = made.reader.latestOffset(made.start, made.limit)
    next(log.files("t")).unlink()
    partitions = made.reader.partitions(made.start, end)
    assert [type(each) for each in partitions] == ITS_OWN_TASK_EACH
    with pytest.raises(ObjectMissing, match="topic 't', partition 0, offset 0"):
        list(made.reader.read(partitions[0]))


@pytest.mark.parametrize(
    ("ddl", "value", "kinds"),
    [
        ("n DECIMAL(9,2), name STRING", {"n": None, "name": "a"}, ONE_TASK),
        ("n ARRAY<INT>", {"n": [1, None]}, [SplitPartition]),
        ("n MAP<STRING, INT>", {"n": {"a": None}}, [SplitPartition]),
    ],
)
def test_tasks_read_nested_columns(tmp_path, ddl, value, kinds):
    opening.open_log(str(tmp_path), create=True)
    write(tmp_path, ddl, [value], schema="columns")
    made = source(tmp_path, subscribe="t", startingOffsets="earliest")
    reader = made.streamReader(made.schema())
    start = reader.initialOffset()
    partitions = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    assert [type(each) for each in partitions] == kinds


def test_tasks_read_columns_with_metadata():
    assert not splits._is_taken(StructType([StructField("a", StringType(), metadata={"comment": "b"})]))


def test_tasks_read_all_rows_of_a_spark_that_takes_none_from_the_driver(log, monkeypatch):
    splits._handing_over.cache_clear()
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource_internal", None)
    assert planned(stream(log))[0] == ITS_OWN_TASK_EACH
    splits._handing_over.cache_clear()


class Meeting(threading.Barrier):
    """Where reads wait for one another, once they are expected."""

    def __init__(self):
        super().__init__(PARTITIONS, timeout=10)
        self.is_on = False


def test_splits_in_a_bucket_are_read_at_once(monkeypatch):
    cluster, meeting = CountedCluster(monkeypatch), Meeting()
    cluster.log.create("t", PARTITIONS)
    cluster.log.append("t", {each: [b"%d" % each] for each in range(PARTITIONS)})
    read = cluster.bucket.read

    def met(key, *place):
        if meeting.is_on and "/append/" in key:
            meeting.wait()
        return read(key, *place)

    monkeypatch.setattr(cluster.bucket, "read", met)
    made = stream(cluster)
    end = made.reader.latestOffset(made.start, made.limit)
    meeting.is_on = True
    made.reader.partitions(made.start, end)
    assert made.handed_over(made.start, end).column("value").to_pylist() == [b"0", b"1", b"2", b"3"]


def test_tasks_read_what_is_in_several_buckets(tmp_path, monkeypatch):
    log = PlainLog(tmp_path / "log")
    for name in ("1", "2"):
        node_admin.join(log.log, str(tmp_path / name))
    log.create("t", PARTITIONS)
    log.append("t", {each: [b"a"] for each in range(PARTITIONS)})
    assert planned(stream(log))[0] == ONE_TASK
    monkeypatch.setattr(Log, "is_remote", True)
    assert planned(stream(log))[0] == ITS_OWN_TASK_EACH
