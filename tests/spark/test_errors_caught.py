"""Which exceptions a program catches, as docs/reference/errors.md says: Spark's, with our error in the message.

A user sees the message first, and no traceback of Python.
"""

import pytest
from pyspark.errors import AnalysisException, PySparkException, PythonException, StreamingQueryException

from tests.support.plain_log import flip_bit
from tests.support.spark.spark_log import SparkLog, refused

AT_PLANNING = (AnalysisException, "PYTHON_DATA_SOURCE_ERROR")
IN_A_TASK = (PythonException, "PYTHON_EXCEPTION")
OF_A_STREAM = (StreamingQueryException, "STREAM_FAILED")


@pytest.fixture
def log(spark, tmp_path):
    made = SparkLog(spark, tmp_path)
    made.create("t", 2)
    made.append("t", {0: [b"a", b"b"]})
    return made


@pytest.fixture
def rows(spark):
    return spark.createDataFrame([("v",)], "value string")


def caught(kind, condition, name, action, *arguments, **options):
    """Expect an action to fail with an error of this kind, which is one of Spark's, without a Python traceback."""
    assert issubclass(kind, PySparkException)
    with pytest.raises(kind) as raised:
        action(*arguments, **options)
    assert raised.value.getCondition() == condition
    assert f"{name}: " in str(raised.value)
    assert "Traceback" not in str(raised.value)


def test_of_load(log):
    for load in (log.read, log.stream):
        caught(*AT_PLANNING, "InvalidOption", load, subscribe="t", failOnDataLoss="maybe")


def test_of_the_plan_of_a_batch_read(log):
    caught(*AT_PLANNING, "UnknownTopic", log.read(subscribe="x").count)


def test_of_the_options_and_columns_of_a_batch_write(log, rows):
    caught(*AT_PLANNING, "InvalidOption", log.write, rows, topic="t", acks="2")
    caught(*AT_PLANNING, "InvalidRecord", log.write, rows.selectExpr("value AS payload"), topic="t")


def test_of_the_commit_of_a_batch_write(log, rows):
    log.write(rows, topic="t", txnAppId="a", txnVersion=5)
    caught(*AT_PLANNING, "BatchMismatch", log.write, rows, topic="t", txnAppId="a", txnVersion=4)


@pytest.mark.default
def test_of_a_task(log, rows):
    caught(*IN_A_TASK, "InvalidRecord", log.write, rows.selectExpr("value", "9 AS partition"), topic="t")
    [file] = log.files("t")
    flip_bit(file, 8 * 70)
    caught(*IN_A_TASK, "CorruptObject", log.read(subscribe="t").collect)


def test_of_a_streaming_query(log):
    stream = log.stream(subscribe="x", startingOffsets="earliest")
    caught(*OF_A_STREAM, "UnknownTopic", log.gathered, stream)
    query = log.drain(log.stream(subscribe="t", startingOffsets="earliest"), topic="out")
    assert query.exception() is None


def test_of_a_write_within_foreach_batch(log):
    found = []

    def write(batch, _):
        caught(*AT_PLANNING, "InvalidOption", log.write, batch, topic="t", acks="2")
        found.append("caught")

    stream = log.stream(subscribe="t", startingOffsets="earliest")
    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(log.folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert found == ["caught"]


@pytest.mark.default
@pytest.mark.parametrize("loss", ["recreated", "deleted"])
def test_a_topic_that_went_from_under_a_query_is_a_loss(log, loss):
    log.drain(log.stream(subscribe="t", startingOffsets="earliest"), topic="out", **{"num.partitions": 2})
    log.delete("t")
    if loss == "recreated":
        log.create("t", 2)
        log.append("t", {0: [b"another"]})
    with refused() as shown:
        log.drain(log.stream(subscribe="t"), topic="out")
    assert "DataLoss: topic 't'" in shown.first_line
    assert "set failOnDataLoss=false" in shown.first_line
    assert log.rows("out") == 2
    log.drain(log.stream(subscribe="t", failOnDataLoss="false"), topic="out")
    assert log.rows("out") == (3 if loss == "recreated" else 2)
