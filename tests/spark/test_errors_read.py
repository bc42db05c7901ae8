"""What the reader of a log is shown when something is wrong: the message first, and no Python traceback."""

import pytest

from tests.support.plain_log import flip_bit
from tests.support.spark.spark_log import SparkLog, refused


@pytest.fixture
def log(spark, tmp_path):
    made = SparkLog(spark, tmp_path)
    made.create("t", 2)
    made.append("t", {0: [b"a", b"b"], 1: [b"c"]})
    return made


READS = [
    (
        {"subscribe": "t", "failOnDataLos": "false"},
        "unknown option failondatalos for a",
        "Did you mean failOnDataLoss?",
    ),
    ({"subscribe": "x"}, "UnknownTopic: topic 'x' does not exist", "create it first (existing: t)"),
]


@pytest.mark.parametrize(("options", "what", "advice"), READS)
def test_a_wrong_batch_read_is_refused(log, options, what, advice):
    with refused() as shown:
        log.read(**options).collect()
    assert what in shown.first_line
    assert advice in shown.first_line


@pytest.mark.parametrize(("options", "what", "advice"), READS)
def test_a_wrong_streaming_read_is_refused(log, options, what, advice):
    with refused() as shown:
        log.gathered(log.stream(**options))
    assert what in shown.first_line
    assert advice in shown.first_line


@pytest.mark.default
def test_a_flipped_bit_of_a_row_names_topic_partition_and_offsets(log):
    [file] = log.files("t")
    flip_bit(file, 8 * 70)
    with refused() as shown:
        log.read(subscribe="t").collect()
    assert "CorruptObject: topic 't', partition 0, offsets 0 to 1 (" in shown.first_line
    assert f"/{file.name} at byte 0) is damaged" in shown.first_line
    assert [row.value for row in log.read(assign='{"t":[1]}').collect()] == [b"c"]


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
    assert log.rows("out") == 3
    log.drain(log.stream(subscribe="t", failOnDataLoss="false"), topic="out")
    assert log.rows("out") == (4 if loss == "recreated" else 3)
