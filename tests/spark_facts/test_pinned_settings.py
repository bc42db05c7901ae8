"""Settings of the session do not change the rows of a pinned read: those that Spark reads are those of the source.

One setting makes structs null, and no option of Spark's reader prevents it: docs/guides/fast-reads.md names it. The
settings are taken from Spark's own registry, so that those of a newer Spark are tried, too.
"""

from contextlib import contextmanager

import pytest

import pyspark_log
from tests.support.plain_log import PlainLog
from tests.support.spark.rolled import roll

SCANS = ("spark.sql.files.", "spark.sql.legacy.parquet.", "spark.sql.parquet.", "spark.sql.sources.")
"""How the settings begin that Spark's readers of files ask. Each of them is changed, or is in `OTHERS`."""
ALSO = ("spark.sql.caseSensitive", "spark.sql.optimizer.nested", "spark.sql.variant.")
VALUES = {
    "spark.sql.files.ignoredPathSegmentRegex": ".",
    "spark.sql.files.maxPartitionBytes": "1000",
    "spark.sql.files.maxPartitionNum": "1",
    "spark.sql.files.minPartitionNum": "3",
    "spark.sql.files.openCostInBytes": "1",
    "spark.sql.optimizer.nestedPredicatePushdown.supportedFileSources": "",
    "spark.sql.parquet.columnarReaderBatchSize": "3",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
    "spark.sql.parquet.pushdown.inFilterThreshold": "1",
    "spark.sql.sources.fileCompressionFactor": "2.0",
    "spark.sql.sources.useV1SourceList": "",
}
"""Other values of settings that are not true or false."""
OTHERS = (
    "spark.sql.files.maxRecordsPerFile",
    "spark.sql.parquet.compression.codec",
    "spark.sql.parquet.datetimeRebaseModeInWrite",
    "spark.sql.parquet.int96RebaseModeInWrite",
    "spark.sql.parquet.output.committer.class",
    "spark.sql.parquet.outputTimestampType",
    "spark.sql.sources.binaryFile.",
    "spark.sql.sources.bucketing.",
    "spark.sql.sources.commitProtocolClass",
    "spark.sql.sources.default",
    "spark.sql.sources.disabledJdbcConnProviderList",
    "spark.sql.sources.outputCommitterClass",
    "spark.sql.sources.parallelPartitionDiscovery.",
    "spark.sql.sources.partitionOverwriteMode",
    "spark.sql.sources.schemaStringLengthThreshold",
    "spark.sql.sources.structPredicateDecompose.maxFields",
    "spark.sql.sources.useListFilesFileSystemList",
)
"""Settings of writers, of other formats, and of folders with partitions."""
NULL_STRUCTS = "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing"
"""The setting that changes rows: structs are null in files that have none of the fields that a query reads."""
FAST = "spark.sql.parquet.enable"
FILTERS = "spark.sql.parquet.filterPushdown"

DAYS = "timestamp_micros(-62135596800000000 + id * 86400000000 * 40000)"
SAME = [
    "IF(id % 3 = 0, CAST('NaN' AS DOUBLE), CAST('-0.0' AS DOUBLE)) AS zero",
    "concat('x', id) AS text",
    "CAST(concat('x', id) AS BINARY) AS bytes",
    f"{DAYS} AS time",
    f"CAST({DAYS} AS DATE) AS day",
    f"CAST({DAYS} AS TIMESTAMP_NTZ) AS local",
]
STEPS = [
    [
        "CAST(id AS INT) AS number",
        "CAST(id AS DECIMAL(5,2)) AS exact",
        "IF(id % 4 = 0, NULL, named_struct('a', id)) AS struct",
        "array(named_struct('a', id)) AS list",
        "map('k', named_struct('a', id)) AS map",
        *SAME,
    ],
    [
        "CAST(id AS DOUBLE) AS number",
        "CAST(id AS DECIMAL(20,4)) AS exact",
        "named_struct('a', id, 'b', named_struct('c', 1)) AS struct",
        "array(named_struct('a', id, 'b', 'x')) AS list",
        "map('k', named_struct('a', id, 'b', 'x')) AS map",
        *SAME,
        "id AS extra",
    ],
]
COLUMNS = ["offset", "number", "exact", "struct", "list", "map", "hex(bytes)", "text", "CAST(zero AS STRING)", "extra"]
TIMES = ["unix_micros(time)", "CAST(day AS STRING)", "CAST(local AS STRING)"]
OF_FIELDS = ["offset", "struct.b AS b", "struct IS NULL", "list.b AS l", "map['k'].b AS m"]
FILTERED = " OR ".join(
    f"({each})"
    for each in (
        "zero = 0.0 AND offset < 6",
        "zero > 5 AND offset < 9",
        "number >= 20 AND exact IN (20.00, 21.00)",
        "day < DATE'0400-01-01' AND local < TIMESTAMP_NTZ'0300-01-01 00:00:00'",
        "text LIKE 'x1%' AND struct.b.c = 1",
    )
)
WHERE = ["zero = 0.0", "zero IN (0.0, 7)", "zero > 5", "struct IS NOT NULL", "time < TIMESTAMP'1000-01-01 00:00:00Z'"]


@pytest.fixture(scope="module")
def log(spark, tmp_path_factory):
    """Topic t: its columns became wider and got new fields; the rows of both schemas are in Parquet segments."""
    made = PlainLog(tmp_path_factory.mktemp("settings"))
    for step in STEPS:
        write = spark.range(24).selectExpr(*step).coalesce(1).write.format("pyspark_log").mode("append")
        write.options(topic="t", schema="columns", mergeSchema="true").option("num.partitions", 1).save(made.path)
        roll(made, "t", 0, 1)
    return made


def settings_of(spark):
    """Return the names of the settings in Spark's registry that may be changed."""
    registry = getattr(getattr(spark._jvm.org.apache.spark.sql.internal, "SQLConf$"), "MODULE$").getConfigEntries()
    found, entries = [], registry.iterator()
    while entries.hasNext():
        found.append(entries.next().key())
    return [name for name in found if spark.conf.isModifiable(name)]


def other_values(spark):
    """Return another value of each setting that readers of files ask, but for the one that changes rows."""
    found = {}
    for name in settings_of(spark):
        if not name.startswith((*SCANS, *ALSO)) or name.startswith((*OTHERS, NULL_STRUCTS)):
            continue
        now = spark.conf.get(name)
        if now in {"true", "false"}:
            found[name] = "false" if now == "true" else "true"
        elif name in VALUES:
            found[name] = VALUES[name]
        else:
            assert not name.startswith(SCANS), f"{name} is new: does it change what is read?"
    return found


@contextmanager
def changed(spark, settings):
    """Change settings of the session for a while."""
    known = spark.conf.getAll
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name in settings:
            if name in known:
                spark.conf.set(name, known[name])
            else:
                spark.conf.unset(name)


def queries(frame):
    """Return some queries of the topic's rows."""
    yield frame.selectExpr(*COLUMNS, *TIMES)
    yield frame.selectExpr(*OF_FIELDS)
    yield frame.where(FILTERED).select("offset")
    yield from (frame.where(each).select("offset") for each in WHERE)


def rows_of(frame):
    return [sorted(map(repr, each.collect())) for each in queries(frame)]


@pytest.fixture(scope="module")
def wanted(spark, log):
    """The rows that the source reads."""
    found = rows_of(spark.read.format("pyspark_log").option("subscribe", "t").load(log.path))
    assert all(found)
    return found


def culprits(spark, log, settings, wanted):
    """Return which of these settings alone change the rows: what a person wants to know if a test fails."""
    found = []
    for name, value in settings.items():
        with changed(spark, {name: value}):
            if rows_of(pyspark_log.read(spark, log.path, "t")) != wanted:
                found.append(name)
    return found


@pytest.mark.parametrize("kept", [("nothing",), (FILTERS,), (FAST, FILTERS)], ids=str)
def test_no_other_setting_of_the_session_changes_the_rows_that_spark_reads_from_files(spark, log, wanted, kept):
    settings = {name: value for name, value in other_values(spark).items() if not name.startswith(kept)}
    with changed(spark, settings):
        found = rows_of(pyspark_log.read(spark, log.path, "t"))
    assert found == wanted, culprits(spark, log, settings, wanted)


def test_structs_are_null_in_files_without_the_fields_of_a_query_if_the_session_says_so(spark, log, wanted):
    with changed(spark, {NULL_STRUCTS: "true"}):
        found = rows_of(pyspark_log.read(spark, log.path, "t"))
    assert [number for number, rows in enumerate(found) if rows != wanted[number]] == [1]  # `OF_FIELDS`
    assert list(map(len, found)) == list(map(len, wanted))


def test_settings_that_change_after_a_frame_was_made_do_not_change_its_rows(spark, log, wanted):
    frame = pyspark_log.read(spark, log.path, "t")
    assert "FileScan parquet" in frame._jdf.queryExecution().executedPlan().toString()
    with changed(spark, other_values(spark)):
        assert rows_of(frame) == wanted
