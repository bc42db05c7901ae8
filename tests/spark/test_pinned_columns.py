"""Columns of typed topics in pinned reads: their names, and filters that Spark pushes down to Parquet segments."""

import pytest

import pyspark_log
from tests.support.plain_log import PlainLog
from tests.support.spark.rolled import roll

pytestmark = pytest.mark.spark


@pytest.fixture
def both(spark, tmp_path):
    """Make a topic with these columns twice: rows in a Parquet segment, and as many newer ones."""

    def made(*columns):
        log = PlainLog(tmp_path)
        for rolled in (True, False):
            write = spark.range(10).selectExpr(*columns).write.format("pyspark_log").mode("append")
            write.options(topic="t", schema="columns").option("num.partitions", 1).save(log.path)
            if rolled:
                roll(log, "t", 0, 1)
        wanted = spark.read.format("pyspark_log").option("subscribe", "t").load(log.path)
        return pyspark_log.read(spark, log.path, "t"), wanted

    return made


def in_order(frame):
    return [row.asDict(recursive=True) for row in frame.orderBy("partition", "offset").collect()]


@pytest.mark.parametrize(
    "columns",
    [
        ["id AS `a.b`", "id + 1 AS `back``tick`", "id AS `with space`", "id AS `,;{}()=`"],
        ["named_struct('c.d', id) AS `a.b`", "array(named_struct('x', 'y')) AS `a`", "map('k', id) AS `a.b.c`"],
        ["CAST(id AS INT) AS timestampType", "IF(id % 2 = 0, CAST(array() AS ARRAY<INT>), array(1)) AS headers"],
        ["CAST(id AS STRING) AS headers", "id AS key", "id AS value", "id AS topic_"],
    ],
)
def test_columns_may_have_any_name(both, columns):
    frame, wanted = both(*columns)
    assert "FileScan parquet" in frame._jdf.queryExecution().executedPlan().toString()
    assert frame.schema == wanted.schema
    assert in_order(frame) == in_order(wanted)


NOT_A_NUMBER = "IF(id % 3 = 0, 'NaN', CAST(id AS STRING))"
MINUS_ZERO = "'-0.0'"
KINDS = ("FLOAT", "DOUBLE")


@pytest.mark.parametrize(
    ("value", "rows"),
    [
        (NOT_A_NUMBER, {"{} > 100": 4, "{} IN (7, double('NaN'))": 5, "NOT {} < 100": 4, "{} < 5": 3}),
        (MINUS_ZERO, {"{} = 0.0D": 10, "{} IN (0.0D, 7)": 10, "{} >= 0.0D": 10, "{} <=> 0.0D": 10, "{} < 0.0D": 0}),
    ],
)
def test_filters_of_floating_point_columns_find_all_rows_in_files(both, value, rows):
    frame, _ = both(*(f"CAST({value} AS {kind}) AS {kind}_column" for kind in KINDS))
    for condition, count in rows.items():
        for kind in KINDS:
            where = condition.format(f"{kind}_column")
            assert frame.where(where).count() == 2 * count, where
