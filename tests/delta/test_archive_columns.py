"""The columns of an archive: the topic's become wider, or get new fields, and the table, by path or name, follows."""

import datetime as dt
import itertools

import pytest

import pyspark_log
from pyspark_log_storage.errors import InvalidInput
from tests.support.plain_log import PlainLog

pytestmark = pytest.mark.spark
ROWS = 5
_number = itertools.count()


@pytest.fixture
def log(tmp_path):
    return PlainLog(tmp_path / "log")


@pytest.fixture(params=["path", "name"])
def table(request, spark, tmp_path):
    """A table that does not exist, as SQL names it and as `archive` takes it."""
    if request.param == "path":
        yield f"delta.`{tmp_path / 'a table'}`", str(tmp_path / "a table")
        return
    name = f"archive_{next(_number)}"
    spark.sql(f"CREATE DATABASE {name} LOCATION '{tmp_path / 'database'}'")
    try:
        yield f"{name}.archive", f"{name}.archive"
    finally:
        spark.sql(f"DROP DATABASE {name} CASCADE")


def write(spark, log, *columns):
    frame = spark.range(ROWS).selectExpr(*columns).write.format("pyspark_log").mode("append")
    frame.options(topic="t", schema="columns", mergeSchema="true").option("num.partitions", 1).save(log.path)


def values(frame):
    """The topic's own columns, in the order of the rows."""
    return [tuple(row)[1:] for row in sorted(frame.drop("topic", "partition", "timestamp").collect())]


NARROW = (
    "CAST(id AS INT) AS a",
    "CAST(id AS INT) AS b",
    "CAST(id AS DECIMAL(5, 2)) AS c",
    "named_struct('x.y', CAST(id AS INT), 'z', array(named_struct('q', CAST(id AS FLOAT)))) AS d",
    "map('k', CAST(id AS SMALLINT)) AS e",
)
WIDE = (
    "id + 10000000000 AS a",
    "id + 0.5D AS b",
    "CAST(id + 0.125 AS DECIMAL(12, 3)) AS c",
    "named_struct('x.y', id + 10000000000, 'z', array(named_struct('q', id + 0.1D, 'r', 'x')), 'f', 1) AS d",
    "map('k', CAST(id + 40000 AS INT)) AS e",
    "'x' AS name",
)


def test_a_table_gets_no_narrower_values_than_the_topic_has(spark, log, table):
    sql, name = table

    def archive():
        pyspark_log.archive(spark, log.path, "t", name, local_retention=dt.timedelta(0))

    def log_start():
        return log.log.topic("t").refresh().partitions[0].log_start

    write(spark, log, *NARROW)
    pyspark_log.archive(spark, log.path, "t", name)
    write(spark, log, *WIDE)
    wanted = pyspark_log.read(spark, log.path, "t")
    expected = values(wanted)
    both = pyspark_log.read(spark, log.path, "t", archive=name)
    assert (values(both), both.dtypes) == (expected, wanted.dtypes)
    with pytest.raises(InvalidInput, match=r"column `a` is int, .* SET TBLPROPERTIES \('delta.enableTypeWidening'"):
        archive()
    assert (log_start(), spark.table(sql).count()) == (0, ROWS)
    spark.sql(f"ALTER TABLE {sql} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    archive()
    assert log_start() == 2 * ROWS
    assert values(pyspark_log.read(spark, log.path, "t", archive=name)) == expected
    assert values(spark.table(sql)) == expected


@pytest.mark.parametrize(
    ("name", "why"),
    [("", "table is empty"), ("a-b", "table 'a-b': .*a-b"), ("db.", "table 'db.': .+"), ("seen", "is a view")],
)
def test_a_name_that_is_none_is_refused(spark, log, name, why):
    write(spark, log, "id AS v")
    spark.range(1).createOrReplaceTempView("seen")
    with pytest.raises(InvalidInput, match=why):
        pyspark_log.archive(spark, log.path, "t", name)
