"""Pinned reads of topics with Parquet segments: Spark reads these itself, the source reads the rest, each row once."""

from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import pyspark_log
from pyspark_log.writing.rows import Rows
from tests.support.plain_log import PlainLog, record
from tests.support.spark.rolled import roll
from tests.support.spark.spark_log import configured

pytestmark = pytest.mark.spark
ROWS = 40


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Topic t: partition 0 is rolled, of partition 1 the half, of partition 2 nothing."""
    made = PlainLog(tmp_path_factory.mktemp("pinned") / "a log")
    made.create("t", 3, segment_format="parquet")
    for first in range(0, ROWS, 10):
        places = [(row, p) for row in range(first, first + 10) for p in range(3)]
        headers = [None if row % 3 else [{"key": "h", "value": b"v"}] for row, _ in places]
        rows = record([b"%d of %d" % place for place in places], headers=headers)
        made.append_rows("t", Rows(rows, None, pa.array([p for _, p in places], pa.int32())))
    roll(made, "t", 0, 4)
    roll(made, "t", 1, 2)
    return made


def by_the_source(spark, log, **options):
    read = spark.read.format("pyspark_log").option("includeHeaders", "true").options(**options)
    return read.option("subscribe", "t").load(log.path)


def in_order(frame):
    return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))


def scans(frame):
    """Return how often Spark's own reader, and the source, are in the plan of a frame."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return plan.count("FileScan parquet"), plan.count("BatchScan")


@pytest.mark.default
def test_the_rows_are_those_that_the_source_reads(spark, log):
    frame = pyspark_log.read(spark, log.path, "t")
    assert scans(frame) == (1, 1)
    wanted = by_the_source(spark, log)
    assert frame.schema == wanted.schema
    assert in_order(frame) == in_order(wanted)
    assert frame.count() == 3 * ROWS


def test_the_rows_are_settled_when_the_frame_is_made(spark, tmp_path):
    log = PlainLog(tmp_path)
    log.create("t", 3, segment_format="parquet")
    for _ in range(4):
        log.append("t", {p: [b"x"] * 10 for p in range(3)})
    roll(log, "t", 0, 2)
    frame = pyspark_log.read(spark, log.path, "t")
    log.append("t", {0: [b"later"] * 10})
    roll(log, "t", 0, 3)  # takes chunks that the frame reads, and later rows
    assert frame.count() == 120
    assert frame.where("value = 'later'").count() == 0


def test_a_path_is_relative_to_the_folder_in_which_python_works(spark, log, monkeypatch):
    """The other process in which Spark plans the source's part stays where it began."""
    folder = Path(log.path)
    monkeypatch.chdir(folder.parent)
    assert pyspark_log.read(spark, folder.name, "t").count() == 3 * ROWS


def test_a_version_that_ends_before_the_start_has_no_rows_of_a_partition(spark, tmp_path):
    log = PlainLog(tmp_path)
    log.create("t", 3, segment_format="parquet")
    log.append("t", {p: [b"x"] * 10 for p in range(3)})
    version = log.log.topic("t").journal.number
    log.append("t", {p: [b"y"] * 10 for p in range(3)})
    roll(log, "t", 0, 2)
    frame = pyspark_log.read(spark, log.path, "t", {0: 15, 1: 15, 2: 8}, {0: 20, 1: 20, 2: 20}, version=version)
    assert [(row.partition, row.offset) for row in in_order(frame)] == [(2, 8), (2, 9)]


def test_a_frame_has_no_rows_of_a_topic_that_was_created_again(spark, tmp_path):
    log = PlainLog(tmp_path)
    log.create("t", 2, segment_format="parquet")
    log.append("t", {p: [b"old"] * 10 for p in range(2)})
    roll(log, "t", 0, 1)
    frames = [pyspark_log.read(spark, log.path, "t"), pyspark_log.read(spark, log.path, "t", {1: 0}, {1: 5})]
    log.delete("t")
    log.create("t", 2)
    log.append("t", {p: [b"new"] * 10 for p in range(2)})
    for frame in frames:
        with pytest.raises(PySparkException, match="DataLoss: topic 't' was deleted and created again"):
            frame.collect()


def test_a_filter_of_offsets_reaches_the_files(spark, log):
    frame = pyspark_log.read(spark, log.path, "t").where("offset >= 30").select("offset")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "PushedFilters: [IsNotNull(offset), GreaterThanOrEqual(offset,30)]" in plan
    assert frame.count() == 30


WIDER = [
    *(("TINYINT", wide) for wide in ("SMALLINT", "INT", "BIGINT", "DOUBLE")),
    *(("SMALLINT", wide) for wide in ("INT", "BIGINT", "DOUBLE")),
    *(("INT", wide) for wide in ("BIGINT", "DOUBLE")),
    ("FLOAT", "DOUBLE"),
    *(("DECIMAL(5,2)", f"DECIMAL({wide})") for wide in ("12,2", "12,3", "18,9", "20,2", "30,5")),
    ("DECIMAL(12,2)", "DECIMAL(20,4)"),
    ("DECIMAL(20,2)", "DECIMAL(30,4)"),
]
SHAPES = [
    "CAST(id AS {})",
    "named_struct('a', CAST(id AS {}))",
    "array(CAST(id AS {}), NULL)",
    "map('k', CAST(id AS {}))",
]
NEW_FIELDS = [
    ("IF(id % 2 = 0, NULL, named_struct('a', id))", "named_struct('a', id, 'b', named_struct('c', 1))"),
    ("array(named_struct('a', id))", "array(named_struct('a', id, 'b', 'x'))"),
    ("map('k', named_struct('a', id))", "map('k', named_struct('a', id, 'b', 'x'))"),
]


def test_wider_types_and_new_fields_are_read_from_older_files_as_the_source_reads_them(spark, tmp_path):
    log = PlainLog(tmp_path)
    steps = [tuple(shape.format(kind) for kind in kinds) for kinds in WIDER for shape in SHAPES] + NEW_FIELDS
    for step in zip(*steps, strict=True):
        columns = [f"{column} AS c{number}" for number, column in enumerate(step)]
        write = spark.range(6).selectExpr(*columns).write.format("pyspark_log").mode("append")
        write.options(topic="t", schema="columns", mergeSchema="true").option("num.partitions", 1).save(log.path)
        roll(log, "t", 0, len(log.log.topic("t").refresh().partitions[0].chunks))
    frame = pyspark_log.read(spark, log.path, "t")
    wanted = spark.read.format("pyspark_log").option("subscribe", "t").load(log.path)
    assert scans(frame) == (1, 0)
    assert frame.schema == wanted.schema
    for one, other in zip(in_order(frame), in_order(wanted), strict=True):
        assert one.asDict(recursive=True) == other.asDict(recursive=True)


@pytest.mark.parametrize("mode", ["LEGACY", "EXCEPTION"])
def test_times_before_1900_are_as_they_are_stored_whatever_the_session_says_of_old_files(spark, tmp_path, mode):
    times = [-62_135_596_800_000, -12_219_292_800_001, -2_208_988_800_001, 0]
    log = PlainLog(tmp_path)
    log.create("t", segment_format="parquet")
    log.append("t", {0: [b"x"] * len(times)}, times_ms=times)
    roll(log, "t", 0, 1)
    with configured(spark, spark__sql__parquet__datetimeRebaseModeInRead=mode):
        frame = pyspark_log.read(spark, log.path, "t")
        assert scans(frame) == (1, 0)
        assert [row[0] for row in frame.selectExpr("unix_millis(timestamp)").collect()] == times


def test_each_run_of_parquet_segments_of_a_partition_is_read_by_spark(spark, tmp_path):
    log = PlainLog(tmp_path)
    log.create("t", 2, segment_format="parquet")
    for first in range(0, 60, 10):
        log.append("t", {p: [b"%d" % row for row in range(first, first + 10)] for p in range(2)})
        roll(log, "t", 0, 1, parquet=first in {10, 30, 40})
    frame = pyspark_log.read(spark, log.path, "t", {0: 5, 1: 0}, {0: 45, 1: 20})
    assert scans(frame) == (1, 2)  # partition 0 has gaps before and between its runs
    found = sorted((row.partition, row.offset, int(row.value)) for row in frame.collect())
    assert found == [*((0, n, n) for n in range(5, 45)), *((1, n, n) for n in range(20))]
    begins_in_the_first_file = pyspark_log.read(spark, log.path, "t", {0: 15}, {0: 50})
    assert sorted(row.offset for row in begins_in_the_first_file.collect()) == list(range(15, 50))


def test_a_file_that_is_lost_is_an_error_also_if_the_session_ignores_missing_files(spark, tmp_path):
    log = PlainLog(tmp_path)
    log.create("t", segment_format="parquet")
    log.append("t", {0: [b"x"] * 10})
    roll(log, "t", 0, 1)
    frame = pyspark_log.read(spark, log.path, "t")
    [file] = tmp_path.glob("topics/t/*/0/*.parquet")
    file.unlink()
    with (
        configured(spark, spark__sql__files__ignoreMissingFiles="true"),
        pytest.raises(Py4JJavaError, match="FILE_NOT_EXIST"),
    ):
        frame.count()
