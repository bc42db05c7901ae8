"""Spark with Delta reads the table of a compacted topic, which has one row of each key, and may not change it."""

import pytest

import pyspark_log
from pyspark_log_coordinator.maintenance import topic_cleanup, topic_roll
from pyspark_log_storage import layout
from tests.support.plain_log import PlainLog

pytestmark = pytest.mark.spark
COMPACTED = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0, "file_delete_delay_ms": 0}


@pytest.fixture
def log(tmp_path):
    return PlainLog(tmp_path / "log")


def send(log, *rows):
    with pyspark_log.Producer(log.path, {"linger.ms": 1000}) as producer:
        for key, value in rows:
            producer.send("t", value, key=key)


def maintain(log):
    handle = log.log.topic("t")
    topic_roll.roll_and_merge(handle)
    topic_cleanup.clean_up_topic(handle)


def table_of(log):
    return f"{log.path}/{layout.topic_folder('t', log.log.topic('t').topic_id)}"


def rows_of(frame, *columns):
    return sorted(map(tuple, frame.select(*columns).collect()))


def test_spark_with_delta_reads_the_newest_state_after_each_compaction(spark, log):
    log.create("t", 2, **COMPACTED)
    for number in range(5):
        keys = range(2_000 * number, 2_000 * number + 6_000)
        send(log, *((b"%d" % key, b"%d" % number if key % 5 else None) for key in keys))
        maintain(log)
        table = spark.read.format("delta").load(table_of(log)).where("value IS NOT NULL")
        wanted = rows_of(pyspark_log.latest(spark, log.path, "t"), "partition", "offset", "key", "value")
        assert rows_of(table, "partition", "offset", "key", "value") == wanted
        assert table.count() == len(wanted)
        newest = max(row[1] for row in wanted)
        assert table.where(f"offset >= {newest}").count() == sum(row[1] >= newest for row in wanted)


def test_large_files_and_one_of_deletions_alone_are_read(spark, log):
    log.create("t", 1, **COMPACTED)
    send(log, *((b"%d" % key, b"1") for key in range(150_000)))
    maintain(log)
    send(log, *((b"%d" % key, None if key % 3 else b"2") for key in range(100_000)))
    maintain(log)
    table = spark.read.format("delta").load(table_of(log)).where("value IS NOT NULL")
    wanted = rows_of(pyspark_log.latest(spark, log.path, "t"), "offset", "key", "value")
    assert len(wanted) == 50_000 + 33_334
    assert rows_of(table, "offset", "key", "value") == wanted
    log.create("u", 1, **COMPACTED)
    with pyspark_log.Producer(log.path, {"linger.ms": 1000}) as producer:
        producer.send("u", None, key=b"a")
    handle = log.log.topic("u")
    topic_roll.roll_and_merge(handle)
    topic_cleanup.clean_up_topic(handle)
    dead = spark.read.format("delta").load(f"{log.path}/{layout.topic_folder('u', handle.topic_id)}")
    assert rows_of(dead, "key", "value") == [(b"a", None)]


@pytest.mark.parametrize(
    "change", ["DELETE FROM delta.`{}` WHERE offset = 0", "OPTIMIZE delta.`{}`", "VACUUM delta.`{}`"]
)
def test_spark_with_delta_refuses_to_change_it(spark, log, change):
    log.create("t", 1, **COMPACTED)
    for rows in (((b"a", b"1"), (b"b", b"1"), (b"c", b"1")), ((b"b", b"2"),)):
        send(log, *rows)
        maintain(log)
    with pytest.raises(Exception, match="pysparkLogSegments"):
        spark.sql(change.format(table_of(log))).collect()
    assert spark.read.format("delta").load(table_of(log)).count() == 3
