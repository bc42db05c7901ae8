"""The rows that Spark gets: Kafka's columns, in Kafka's types, whatever was stored."""

import datetime as dt

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

import pyspark_log
from pyspark_log.writing.rows import Rows
from tests.support.plain_log import NOON_MS, record
from tests.support.spark.spark_log import SparkLog, configured

KAFKA_ROW = [
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
]
HEADERS = ("headers", "array<struct<key:string,value:binary>>")


@pytest.fixture(scope="module")
def log(spark, tmp_path_factory):
    """Topic t: three partitions, the last without rows; tombstones, empty texts and headers in partition 0."""
    made = SparkLog(spark, tmp_path_factory.mktemp("rows"))
    made.create("t", 3)
    keys, values = [b"k", None, b"", b"gone"], [b"v", b"\xff\x00", b"", None]
    headers = [None, [], [{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None]
    made.append_rows("t", Rows(record(values, keys, headers=headers), None, pa.array([0] * 4, pa.int32())))
    made.append("t", {1: [b"%d" % i for i in range(20)]})
    made.create("empty", 2)
    return made


def types(frame):
    return [(field.name, field.dataType.simpleString()) for field in frame.schema]


@pytest.mark.default
@pytest.mark.parametrize("way", ["read", "stream"])
def test_a_row_has_kafkas_columns(log, way):
    assert types(getattr(log, way)(subscribe="t")) == KAFKA_ROW
    assert types(getattr(log, way)(subscribe="t", includeHeaders="true")) == [*KAFKA_ROW, HEADERS]
    assert all(field.nullable for field in getattr(log, way)(subscribe="t").schema)


@pytest.mark.default
def test_nulls_tombstones_empty_texts_and_headers_arrive_and_empty_headers_are_null(log):
    rows = log.read(assign='{"t":[0]}', includeHeaders="true").orderBy("offset").collect()
    noon = dt.datetime.fromtimestamp(NOON_MS / 1000, dt.timezone.utc).astimezone().replace(tzinfo=None)
    assert [tuple(row[:7]) for row in rows] == [
        (b"k", b"v", "t", 0, 0, noon, 0),
        (None, b"\xff\x00", "t", 0, 1, noon, 0),
        (b"", b"", "t", 0, 2, noon, 0),
        (b"gone", None, "t", 0, 3, noon, 0),
    ]
    assert [row.headers for row in rows] == [None, None, [("h", b"1"), ("h", None)], None]


@pytest.mark.default
def test_an_empty_topic_is_an_empty_frame(log):
    assert log.read(subscribe="empty").count() == 0
    assert log.read(subscribePattern="nothing").collect() == []


def test_tasks_are_as_many_and_as_small_as_asked_for(log):
    frame = log.read(subscribe="t", maxRecordsPerPartition=5)
    assert frame.rdd.getNumPartitions() == 5
    assert frame.count() == 24
    assert log.read(subscribe="t", minPartitions=12).rdd.getNumPartitions() == 12


@pytest.mark.default
def test_a_given_schema_chooses_columns(log):
    frame = log.spark.read.schema("offset bigint, value binary").format("pyspark_log").option("subscribe", "t")
    rows = frame.load(log.path).where("offset >= 19").collect()
    assert [(tuple(row), row.__fields__) for row in rows] == [((19, b"19"), ["offset", "value"])]


@pytest.mark.default
def test_a_given_schema_chooses_columns_of_a_stream(log):
    reader = log.spark.readStream.schema("headers array<struct<key:string,value:binary>>, partition int")
    frame = reader.format("pyspark_log").options(assign='{"t":[0]}', startingOffsets="earliest").load(log.path)
    [rows] = log.gathered(frame)
    assert [tuple(row) for row in rows] == [(None, 0), (None, 0), ([("h", b"1"), ("h", None)], 0), (None, 0)]


@pytest.mark.default
def test_a_replay_is_a_frame_of_the_rows_between_two_positions(log):
    frame = pyspark_log.read(log.spark, log.path, "t", {1: 5}, {1: 8})
    assert types(frame) == [*KAFKA_ROW, HEADERS]
    assert [row.value for row in frame.orderBy("offset").collect()] == [b"5", b"6", b"7"]
    noon = dt.datetime.fromtimestamp(NOON_MS / 1000, dt.timezone.utc)
    assert pyspark_log.read(log.spark, log.path, "t", noon).count() == 24
    assert pyspark_log.read(log.spark, log.path, "t", end=noon).count() == 0


def test_values_of_several_megabytes_arrive_whole(log):
    log.create("big")
    frame = log.spark.range(3).select(f.expr("repeat(cast(id as string), 5000000)").alias("value"))
    log.write(frame, topic="big", **{"max.message.bytes": 8_000_000})
    found = log.read(subscribe="big").select("value", f.expr("substring(value, 1, 1)"), f.length("value")).collect()
    assert sorted((bytes(row[1]), row[2]) for row in found) == [(b"%d" % i, 5_000_000) for i in range(3)]
    assert all(row.value == bytes(row[1]) * 5_000_000 for row in found)


@pytest.mark.parametrize("zone", ["America/St_Johns", "Asia/Kathmandu"])
def test_a_time_is_the_same_instant_in_every_zone(log, zone):
    instants = [0, -1, 1_711_846_799_999_999, 1_711_850_400_000_000, NOON_MS * 1000]  # about a change of the clocks
    topic = "zone-" + zone.replace("/", "-")
    with configured(log.spark, spark__sql__session__timeZone=zone):
        frame = log.spark.createDataFrame([(each,) for each in instants], "us bigint")
        frame = frame.selectExpr("cast(us as string) as value", "timestamp_micros(us) as timestamp")
        log.write(frame.coalesce(1), topic=topic)
        here = log.read(subscribe=topic).selectExpr("unix_micros(timestamp)", "cast(value as string)").collect()
    there = log.read(subscribe=topic).selectExpr("unix_micros(timestamp)", "cast(value as string)").collect()
    assert sorted(map(tuple, here)) == sorted(map(tuple, there)) == sorted((each, str(each)) for each in instants)
