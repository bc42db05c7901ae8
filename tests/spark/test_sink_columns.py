"""What a batch write puts into the log: Kafka's columns, where Kafka puts them."""

import datetime as dt

import pyarrow as pa
import pytest

from pyspark_log.writing.partitioner import partition_of
from tests.support.spark.spark_log import SparkLog, configured, refused


@pytest.fixture(scope="module")
def log(spark, tmp_path_factory):
    return SparkLog(spark, tmp_path_factory.mktemp("columns"))


def sql(log, text):
    return log.spark.sql(text)


def stored(log, topic, *columns):
    rows = log.read(subscribe=topic, includeHeaders="true").orderBy("partition", "offset").collect()
    return [tuple(row[column] for column in columns) for row in rows]


@pytest.mark.default
def test_keys_and_values_may_be_strings_or_binary(log):
    log.write(sql(log, "select 'k' key, 'ä' value"), topic="texts")
    log.write(sql(log, "select X'00ff' key, X'' value"), topic="texts")
    log.write(sql(log, "select cast(null as string) key, cast(null as binary) value"), topic="texts")
    assert stored(log, "texts", "key", "value") == [(b"k", "ä".encode()), (b"\x00\xff", b""), (None, None)]


@pytest.mark.default
def test_headers_and_times_are_kept_and_other_columns_left_out(log):
    frame = sql(
        log,
        "select 'v' value, array(struct('h' as key, X'01' as value)) headers, 7 delay,"
        " timestamp '2001-02-03 04:05:06.789012Z' timestamp",
    )
    log.write(frame, topic="full")
    [(headers, time_)] = stored(log, "full", "headers", "timestamp")
    assert headers == [("h", b"\x01")]
    when = dt.datetime(2001, 2, 3, 4, 5, 6, 789012, dt.timezone.utc)
    assert time_ == when.astimezone().replace(tzinfo=None)


@pytest.mark.parametrize("batch_rows", [1, 10_000])
def test_large_types_and_the_size_of_sparks_batches_change_nothing(log, batch_rows):
    settings = {
        "spark__sql__execution__arrow__useLargeVarTypes": "true",
        "spark__sql__execution__arrow__maxRecordsPerBatch": str(batch_rows),
    }
    topic = f"large-{batch_rows}"
    with configured(log.spark, **settings):
        frame = log.spark.range(0, 5, 1, 1).selectExpr(
            "if(id = 3, null, X'00ff') key",
            "cast(id as string) value",
            "array(struct('h' as key, X'01' as value)) headers",
            f"'{topic}' as topic",
            "0 as partition",
        )
        log.write(frame)
        found = stored(log, topic, "key", "value", "headers")
    assert found == [(None if i == 3 else b"\x00\xff", b"%d" % i, [("h", b"\x01")]) for i in range(5)]


@pytest.mark.default
def test_rows_go_to_the_topics_that_they_name(log):
    frame = log.spark.range(0, 9, 1, 2).selectExpr("cast(id as string) value", "concat('named-', id % 3) topic")
    log.write(frame, **{"num.partitions": 2})
    for rest in range(3):
        assert sorted(stored(log, f"named-{rest}", "value")) == [(b"%d" % i,) for i in range(rest, 9, 3)]
        assert len(log.log.topic(f"named-{rest}").journal.state.partitions) == 2


@pytest.mark.default
def test_a_row_may_name_its_partition(log):
    frame = sql(log, "select 'k' key, * from values ('a', 2), ('b', null), ('c', 0) as t(value, partition)")
    log.write(frame, topic="explicit", **{"num.partitions": 3})
    by_key = int(partition_of(pa.array([b"k"]), None, 3, 0)[0])
    assert sorted(stored(log, "explicit", "value", "partition")) == [(b"a", 2), (b"b", by_key), (b"c", 0)]


@pytest.mark.default
def test_a_bad_row_in_one_task_keeps_the_rows_of_all_out(log):
    log.create("all-or-none", 1)  # else it depends on which task is quicker whether it is there
    frame = log.spark.range(0, 1000, 1, 2).selectExpr(
        "cast(id as string) value", "if(id = 999, null, 'all-or-none') topic"
    )
    with refused() as shown:
        log.write(frame)
    assert "InvalidRecord: a row has a null topic" in shown.first_line
    assert log.rows("all-or-none") == 0
    assert log.log.topic("all-or-none").journal.number == 1


@pytest.mark.default
def test_rows_that_cannot_be_written_are_dead_letters_and_the_others_are_written(log):
    frame = log.spark.range(0, 100, 1, 2).selectExpr(
        "if(id = 42, repeat('x', 1100000), cast(id as string)) value",
        "if(id = 7, null, 'with-dead-letters') topic",
        "if(id = 99, 5, 0) partition",
    )
    log.write(frame, **{"dead.letter.topic": "dead"})
    said = {}
    for value, headers in stored(log, "dead", "value", "headers"):
        kind, reason = (header.value.decode() for header in headers[-2:])
        said[len(value)] = (kind, reason.split(";")[0])
    topic = "topic 'with-dead-letters'"
    assert log.rows("with-dead-letters") == 97
    assert said == {
        1: ("InvalidRecord", "a row has a null topic"),
        2: ("InvalidRecord", f"{topic}: a row names partition 5, but the topic has only partition 0"),
        1_100_000: ("InvalidRecord", f"{topic}: a row of 1100000 bytes is larger than max.message.bytes (1048588)"),
    }


def test_a_dead_letter_topic_that_does_not_exist_is_refused_before_anything_is_written(log):
    log.create("without-dead-letters", 1)
    options = {"dead.letter.topic": "no-such-topic", "auto.create.topics.enable": "false"}
    with refused() as shown:
        log.write(sql(log, "select 'v' value"), topic="without-dead-letters", **options)
    assert "UnknownTopic: topic 'no-such-topic' does not exist" in shown.first_line
    assert log.rows("without-dead-letters") == 0
