"""What the writer of a log is shown when something is wrong, and that nothing was written."""

import pytest

from tests.support.spark.spark_log import SparkLog, refused


@pytest.fixture
def log(spark, tmp_path):
    made = SparkLog(spark, tmp_path)
    made.create("t", 2)
    return made


GOOD = "select 'v' value"


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        (GOOD, {"topic": "t", "acks": "2"}, "option acks is '2': it is not a known value"),
        ("select 1 id", {"topic": "t"}, "the frame has no column 'value' (it has id)"),
        ("select 1 value", {"topic": "t"}, "column 'value' has type int, expected binary or string"),
        (f"{GOOD}, 0L partition", {"topic": "t"}, "column 'partition' has type bigint, expected int"),
        (f"{GOOD}, 2 partition", {"topic": "t"}, "InvalidRecord: topic 't': a row names partition 2"),
    ],
)
def test_a_wrong_batch_write_is_refused(log, query, options, message):
    with refused() as shown:
        log.write(log.spark.sql(query), **options)
    assert message in shown.first_line
    assert log.rows("t") == 0
    assert list(log.log.topics()) == ["t"]


@pytest.mark.default
def test_overwriting_is_refused(log):
    with refused() as shown:
        log.spark.sql(GOOD).write.format("pyspark_log").mode("overwrite").option("topic", "t").save(log.path)
    assert "mode('overwrite') would delete the log; write with mode('append')" in shown.first_line
