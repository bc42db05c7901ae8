"""Compacted topics: `latest` has the newest row of each key, whatever has been cleaned, merged or only written."""

import pytest
from pyspark.errors import PySparkException

import pyspark_log
from pyspark_log_coordinator.maintenance import topic_roll
from tests.support.spark.spark_log import SparkLog

pytestmark = pytest.mark.spark


@pytest.fixture
def log(spark, tmp_path):
    return SparkLog(spark, tmp_path)


def frame(spark, rows):
    """Return rows of key and value, each a number or None."""
    text = [(str(key), None if value is None else str(value)) for key, value in rows]
    return spark.createDataFrame(text, "key string, value string").repartition(1)


def compact(log):
    topic_roll.roll_and_merge(log.log.topic("t"))


@pytest.mark.default
def test_the_columns_are_those_of_a_batch_read(spark, log):
    log.create("t", 1, cleanup_policy="compact")
    log.write(frame(spark, [(1, 1), (2, 2), (1, 3)]), topic="t")
    before = pyspark_log.latest(spark, log.path, "t")
    compact(log)
    after = pyspark_log.latest(spark, log.path, "t")
    wanted = log.read(subscribe="t", includeHeaders="true")
    assert before.schema == after.schema == wanted.schema
    assert sorted(before.collect()) == sorted(after.collect())
    assert sorted(row.offset for row in after.collect()) == [1, 2]


def test_the_rows_are_fixed_when_the_frame_is_made_though_they_are_compacted_before_it_is_used(spark, log):
    log.create("t", 1, cleanup_policy="compact")
    log.write(frame(spark, [(1, 1), (2, 2)]), topic="t")
    compact(log)
    log.write(frame(spark, [(1, 3)]), topic="t")
    made = pyspark_log.latest(spark, log.path, "t")
    replayed = pyspark_log.read(spark, log.path, "t")
    log.write(frame(spark, [(1, 4), (2, None), (5, 5)]), topic="t")
    topic_roll.roll_and_merge(log.log.topic("t"), at_once=True)
    assert log.log.topic("t").refresh().partitions[0].compacted_end == 6
    assert {(int(row.key), int(row.value)) for row in made.collect()} == {(1, 3), (2, 2)}
    with pytest.raises(PySparkException, match="offsets 0 to 2 were compacted since this frame was made"):
        replayed.collect()


def test_keys_of_a_typed_topic_are_in_a_column_and_so_is_what_deletes_them(spark, log):
    rows = spark.createDataFrame(
        [(1, "a", False), (2, "b", False), (1, "c", False)], "id long, name string, gone boolean"
    )
    log.write(rows.repartition(1), topic="t", schema="columns", **{"key.column": "id"})
    handle = log.log.topic("t")
    handle.alter_config({"cleanup.policy": "compact", "delete.when": "gone"})
    compact(log)
    more = spark.createDataFrame([(2, "d", True), (3, "e", None)], "id long, name string, gone boolean")
    log.write(more.repartition(1), topic="t")
    for _ in range(2):
        found = pyspark_log.latest(spark, log.path, "t").select("id", "name").collect()
        assert sorted(map(tuple, found)) == [(1, "c"), (3, "e")]
        compact(log)


def test_filters_skip_pages_by_the_page_index(spark, log):
    """A page index that is in another place than the footer says ends such a query."""
    log.create("t", 1, cleanup_policy="compact")
    rows = spark.range(50_000).selectExpr("cast(id as string) key", "cast(id as string) value").repartition(1)
    log.write(rows, topic="t")
    compact(log)
    log.write(frame(spark, [(7, 0)]), topic="t")
    log.log.topic("t").alter_config({"min.cleanable.dirty.ratio": "0"})
    compact(log)
    first = log.log.topic("t").refresh().partitions[0].segments[0]
    assert first.keyed.rows == 49_999
    state = pyspark_log.latest(spark, log.path, "t")
    assert state.where("offset >= 49000").count() == 1_001
    assert state.where("offset < 100 or offset = 50000").count() == 100
    assert state.where("timestamp > timestamp'2001-01-01'").count() == 50_000


def numbers(log, **options):
    """Return the keys and values that a stream over the topic has."""
    found = log.gathered(log.stream(subscribe="t", **options))
    return [(int(row.key), None if row.value is None else int(row.value)) for batch in found for row in batch]


@pytest.mark.parametrize("compacts", [False, True])
def test_a_stream_that_starts_where_latest_was_taken_has_every_later_row(spark, log, compacts):
    log.create("t", 2, cleanup_policy="compact")
    log.write(frame(spark, [(1, 0), (2, 1), (1, 2), (3, 3), (3, None)]), topic="t")
    if compacts:
        compact(log)
    log.write(frame(spark, [(5, 7)]), topic="t")
    state, offsets = pyspark_log.latest_with_offsets(spark, log.path, "t")
    found = {int(row.key): int(row.value) for row in state.collect()}
    assert found == {1: 2, 2: 1, 5: 7}
    log.write(frame(spark, [(5, 8), (2, None), (1, 10)]), topic="t")
    found.update(numbers(log, startingOffsets=offsets))
    assert found == {1: 10, 2: None, 5: 8}
