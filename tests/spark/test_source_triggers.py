"""A stream under Spark's triggers: which micro-batches there are, and what the query reports."""

import json
import time

import pytest

from tests.support.spark.spark_log import SparkLog, configured

DEADLINE_SECONDS = 60
PAUSE_SECONDS = 0.05
TWO_PARTITIONS = {"num.partitions": 2}


@pytest.fixture
def log(spark, tmp_path):
    made = SparkLog(spark, tmp_path)
    made.create("t", 2)
    made.append("t", {0: [b"a%d" % i for i in range(8)], 1: [b"b0", b"b1"]})
    return made


def values(rows):
    return sorted(bytes(row.value) for row in rows)


@pytest.mark.default
def test_available_now_reads_what_is_there_within_the_limits(log):
    frame = log.stream(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger=5)
    assert [len(batch) for batch in log.gathered(frame)] == [5, 5]


@pytest.mark.parametrize(("options", "tasks"), [({}, 1), ({"minPartitions": 2}, 2)])
def test_few_rows_of_two_partitions_are_one_task_unless_there_shall_be_more(log, options, tasks):
    found = []
    stream = log.stream(subscribe="t", startingOffsets="earliest", **options)
    writer = stream.writeStream.foreachBatch(
        lambda frame, _: found.append((frame.rdd.getNumPartitions(), frame.count()))
    )
    writer = writer.option("checkpointLocation", str(log.folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert found == [(tasks, 10)]


@pytest.mark.default
def test_once_reads_what_is_there_in_one_batch(log):
    frame = log.stream(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger=5)
    assert [len(batch) for batch in log.gathered(frame, once=True)] == [10]


@pytest.mark.default
def test_a_restarted_query_goes_on_from_its_checkpoint_and_not_from_its_options(log):
    log.drain(log.stream(subscribe="t", startingOffsets="earliest"), topic="out", **TWO_PARTITIONS)
    log.append("t", {1: [b"new"]})
    query = log.drain(log.stream(subscribe="t", startingOffsets="earliest"), topic="out", **TWO_PARTITIONS)
    assert [progress["numInputRows"] for progress in query.recentProgress] == [1]
    assert log.rows("out") == 11


class Running:
    """A query that runs until it is stopped, into a table in memory."""

    def __init__(self, log, name, **options):
        self.name = name
        self.spark = log.spark
        self.checkpoint = log.folder / name
        writer = log.stream(**options).writeStream.format("memory").queryName(name)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(processingTime="0 seconds")
        self.query = writer.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.query.stop()
        self.spark.sql(f"drop view if exists {self.name}")

    def values(self):
        return values(self.spark.table(self.name).collect())

    def wait_for(self, condition):
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            assert self.query.isActive, self.query.exception()
            assert time.monotonic() < deadline, f"{self.values()} and {self.query.lastProgress}"
            time.sleep(PAUSE_SECONDS)

    def offsets(self):
        return len(list((self.checkpoint / "offsets").glob("[0-9]*")))

    def idle_reports(self):
        return sum(progress["numInputRows"] == 0 for progress in self.query.recentProgress)


@pytest.mark.default
def test_a_running_query_reads_what_comes_and_rests_where_nothing_comes(log):
    with (
        configured(log.spark, spark__sql__streaming__noDataProgressEventInterval="200"),
        Running(log, "running", subscribePattern="t.*") as running,
    ):
        running.wait_for(lambda: running.offsets() == 1)
        log.append("t", {1: [b"x"]})
        running.wait_for(lambda: running.values() == [b"x"])
        log.create("t-new", 2)
        log.append("t-new", {0: [b"first row"], 1: [b"second row"]})
        running.wait_for(lambda: running.values() == [b"first row", b"second row", b"x"])
        batches, reports = running.offsets(), running.idle_reports()
        running.wait_for(lambda: running.idle_reports() >= reports + 3)
        assert running.offsets() == batches


@pytest.mark.default
def test_the_progress_tells_how_far_the_query_is_behind(log):
    query = log.drain(
        log.stream(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger=5), topic="out", **TWO_PARTITIONS
    )
    lags = []
    for progress in query.recentProgress:
        latest = progress["sources"][0]["latestOffset"]
        latest = json.loads(latest) if isinstance(latest, str) else latest
        lags.append(latest["offsetsBehindLatest"]["maxOffsetsBehindLatest"])
        assert latest["topics"] == {"t": {"0": 8, "1": 2}}
    assert lags == ["4", "0"]
