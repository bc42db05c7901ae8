"""Parquet segments in Spark: the source reads them as any segment, and Spark's own Parquet reader has the same rows."""

import pytest

from pyspark_log_coordinator.maintenance import topic_roll
from pyspark_log_storage.parquet import parquet_segment
from tests.support.spark.spark_log import SparkLog

ROWS = 6_000
"""Rows that are in Parquet segments."""
NEWER = 20
"""Rows that are not rolled yet."""
COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")


def frame(spark, start, end):
    return spark.range(start, end).selectExpr(
        "concat('k', id) as key",
        "if(id % 10 = 0, null, concat('value ', id)) as value",
        "if(id % 3 = 0, array(struct('h' as key, cast('v' as binary) as value)), null) as headers",
        "cast(id % 2 as int) as partition",
        "timestamp_micros(1700000000000000 + id * 1000) as timestamp",
    )


@pytest.fixture(scope="module")
def log(spark, tmp_path_factory):
    """Topic t: the rows of both partitions are in Parquet segments of several row groups, but for the newest."""
    made = SparkLog(spark, tmp_path_factory.mktemp("parquet"))
    handle = made.create("t", 2, segment_format="parquet", segment_bytes=20_000, segment_ms=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_segment, "ROW_GROUP_BYTES", 30_000)
        made.write(frame(spark, 0, ROWS), topic="t")
        topic_roll.roll_and_merge(handle)
    made.write(frame(spark, ROWS, ROWS + NEWER), topic="t")
    partitions = handle.refresh().partitions
    assert all(each.segments and all(one.is_parquet for one in each.segments) for each in partitions)
    assert sum(each.log_end - each.rolled_end for each in partitions) == NEWER
    return made


@pytest.fixture
def files(log):
    """The Parquet files of the topic."""
    handle = log.log.topic("t")
    partitions = enumerate(handle.journal.state.partitions)
    return [f"{log.path}/{handle.segment(n, each.name)}" for n, one in partitions for each in one.segments]


def rows(found):
    return sorted((tuple(row) for row in found.select(*COLUMNS).collect()), key=lambda row: row[:2])


def test_the_source_reads_every_row_in_its_place(log):
    found = rows(log.read(subscribe="t", includeHeaders=True))
    assert [row[:2] for row in found] == [(p, o) for p in (0, 1) for o in range((ROWS + NEWER) // 2)]
    written = frame(log.spark, 0, ROWS + NEWER).selectExpr("cast(key as binary) key", "cast(value as binary) value")
    assert sorted(row[3] for row in found) == sorted(bytes(row.key) for row in written.collect())
    assert sum(row[4] is None for row in found) == (ROWS + NEWER) // 10
    assert sum(row[5] is not None for row in found) == len(range(0, ROWS + NEWER, 3))


def test_spark_reads_the_files_by_itself(log, files):
    native = log.spark.read.parquet(*files)
    assert native.columns == list(COLUMNS)
    assert native.schema["headers"].dataType == log.read(subscribe="t", includeHeaders=True).schema["headers"].dataType
    rolled = [row for row in rows(log.read(subscribe="t", includeHeaders=True)) if row[1] < ROWS // 2]
    assert rows(native) == rolled


@pytest.mark.parametrize(
    "condition", ["offset >= 2990", "timestamp >= timestamp_micros(1700000000000000 + 5990 * 1000)"]
)
def test_spark_skips_row_groups_by_offset_and_by_time(log, files, condition):
    found = log.spark.read.parquet(*files).where(condition).select("partition", "offset")
    assert len(found.collect()) <= 20
    plan = found._jdf.queryExecution().executedPlan()
    assert 0 < scanned(plan) < ROWS / 2


def scanned(plan):
    """Return how many rows the scan of a plan has given: whole row groups."""
    while not plan.children().isEmpty():
        plan = plan.children().head()
    return plan.metrics().apply("numOutputRows").value()
