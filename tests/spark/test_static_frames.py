"""A batch frame is planned once for each `load()`: what that means for a stream beside it, and what helps."""

import re
from pathlib import Path

import pytest

from tests.support.spark.spark_log import SparkLog

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "batch-reads.md"


@pytest.fixture
def log(spark, tmp_path):
    made = SparkLog(spark, tmp_path)
    for topic in ("carriers", "events", "named"):
        made.create(topic)
    write(made, "carriers", "UA", "United")
    return made


def write(log, topic, key, value):
    log.write(log.spark.createDataFrame([(key, value)], "key string, value string"), topic=topic)


def texts(log, topic):
    rows = log.read(subscribe=topic).selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").collect()
    return sorted((row.key, row.value) for row in rows)


def two_batches(log, query):
    """Let a query have one micro-batch with an event of UA, and then another with a carrier that came since."""
    try:
        query.processAllAvailable()
        write(log, "events", "UA", "4")
        query.processAllAvailable()
        write(log, "carriers", "AA", "American")
        write(log, "events", "AA", "7")
        query.processAllAvailable()
    finally:
        query.stop()


def test_the_documented_join_sees_the_newest_rows_in_each_micro_batch(log):
    section = PAGE.read_text().split("## A batch frame is planned once")[1]
    [_, program, *_] = re.split(r"```(?:python)?\n", section)
    program = program.replace("/data/log", log.path).replace("/data/checkpoint", str(log.folder / "checkpoint"))
    names = {"spark": log.spark}
    exec(program, names)
    two_batches(log, names["query"])
    assert texts(log, "named") == [("AA", "American: 7"), ("UA", "United: 4")]
