"""What the reader of a log is shown when something is wrong: the message first, and no Python traceback."""

import pytest

from pyspark_log_storage import layout
from pyspark_log_storage.objects import node
from tests.support.coordinator.spares import spare_file
from tests.support.plain_log import NOON_MS, flip_bit
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
    ({}, "set exactly one of the options subscribe, subscribePattern and assign", "found none of them"),
    ({"subscribe": "t", "assign": '{"t":[0]}'}, "set exactly one of the options", "found subscribe and assign"),
    ({"subscribe": "x"}, "UnknownTopic: topic 'x' does not exist", "create it first (existing: t)"),
    ({"subscribe": ".."}, "option subscribe is '..'", "a topic name cannot be '..'"),
    (
        {"assign": '{"t":[5]}'},
        "option assign names partition 5 of topic 't', which has 2",
        "assign partitions that exist",
    ),
    (
        {"subscribe": "t", "startingOffsets": '{"t":{"0":9,"1":0}}'},
        "DataLoss: topic 't', partition 0 has no offset 9",
        "its offsets are 0 to 2",
    ),
    (
        {"subscribe": "t", "startingOffsets": '{"t":{"0":0}}'},
        "give an offset for every subscribed partition",
        "t-1 has none",
    ),
    (
        {"subscribe": "t", "startingTimestamp": NOON_MS + 1},
        "topic 't', partition 0 has no row at or after",
        "startingOffsetsByTimestampStrategy=latest",
    ),
    ({"subscribe": "t", "versionAsOf": 99}, "UnknownVersion: ", "versions 1 to 2"),
]


@pytest.mark.parametrize(("options", "what", "advice"), READS)
def test_a_wrong_batch_read_is_refused(log, options, what, advice):
    with refused() as shown:
        log.read(**options).collect()
    assert what in shown.first_line
    assert advice in shown.first_line


@pytest.mark.parametrize(("options", "what", "advice"), [READS[0], READS[3], READS[6]])
def test_a_wrong_streaming_read_is_refused(log, options, what, advice):
    with refused() as shown:
        log.gathered(log.stream(**options))
    assert what in shown.first_line
    assert advice in shown.first_line


BAD_IN_ANY_STREAM = [
    ({"startingOffsets": "sooner"}, "option startingOffsets is 'sooner'"),
    ({"startingOffsets": '{"t":"newest"}'}, "'newest' of topic t is neither earliest nor latest"),
    ({"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger is '0': it is less than 1"),
    (
        {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "2"},
        "option minOffsetsPerTrigger is 5, which is more than",
    ),
    ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay is 'soon'"),
    ({"path": "hdfs://host/log"}, "hdfs:// stores cannot hold a log"),
]


@pytest.mark.parametrize(("options", "message"), BAD_IN_ANY_STREAM)
def test_a_bad_streaming_option_is_refused_at_load(spark, tmp_path, options, message):
    with refused() as shown:
        spark.readStream.format("pyspark_log").options(**{"path": str(tmp_path), "subscribe": "t"} | options).load()
    assert message in shown.first_line


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("payload binary", "unknown column 'payload'; the columns are key, value, topic"),
        ("value string", "column 'value' has type binary, not string; remove .schema(), and cast after the read"),
    ],
)
def test_a_schema_that_a_row_does_not_have_is_refused(log, schema, message):
    with refused() as batch:
        log.spark.read.schema(schema).format("pyspark_log").option("subscribe", "t").load(log.path).collect()
    with refused() as stream:
        reader = log.spark.readStream.schema(schema).format("pyspark_log").option("subscribe", "t")
        log.gathered(reader.load(log.path))
    assert message in batch.first_line
    assert message in stream.first_line


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere", "NoCluster: there is no log at {}"),
        ("a-file", "StoreRefused: cannot use {}/"),
    ],
)
def test_a_wrong_path_is_refused(spark, tmp_path, path, message):
    (tmp_path / "a-file").write_text("not a folder")
    where = tmp_path / path
    with refused() as shown:
        spark.read.format("pyspark_log").option("subscribe", "t").load(str(where)).collect()
    assert message.format(where) in shown.first_line


def test_a_missing_path_is_refused(spark):
    with refused() as shown:
        spark.read.format("pyspark_log").option("subscribe", "t").load().collect()
    assert "option path is required" in shown.first_line


@pytest.mark.default
def test_a_flipped_bit_of_a_row_names_topic_partition_and_offsets(log):
    [file] = log.files("t")
    flip_bit(file, 8 * 70)
    with refused() as shown:
        log.read(subscribe="t").collect()
    assert "CorruptObject: topic 't', partition 0, offsets 0 to 1 (" in shown.first_line
    assert f"/{file.name} at byte 0) is damaged" in shown.first_line
    assert [row.value for row in log.read(assign='{"t":[1]}').collect()] == [b"c"]


def test_a_missing_file_is_named_with_topic_partition_and_offset(log):
    [file] = log.files("t")
    file.unlink()
    with refused() as shown:
        log.read(assign='{"t": [0]}').collect()
    key = str(file).partition("?")[0].rpartition("/topics/")[2]
    expected = f"ObjectMissing: topic 't', partition 0, offset 0: there is no object 'topics/{key}' in {log.path}"
    assert expected in shown.first_line
    assert "verify --repair" in shown.first_line


@pytest.mark.on_disk("an object store has no spares")
def test_a_flipped_bit_of_the_newest_journal_entry_names_it_if_its_spare_is_damaged_too(log):
    entry = log.newest_entry("t")
    for each in (entry, spare_file(entry)):
        flip_bit(each, 8 * 40)
    with refused() as shown:
        log.read(subscribe="t").collect()
    assert f"CorruptObject: journal entry {entry} is damaged: its checksum does not match" in shown.first_line


def test_a_marker_of_another_incarnation_is_refused(log):
    marker = node.read_marker(log.log.store)
    assert marker is not None
    log.log.store.put(layout.MARKER, node.encode(node.Marker(marker.cluster, marker.node, "another")))
    with refused() as shown:
        log.read(subscribe="t").collect()
    assert f"NodeMissing: node '0' at {log.path} is another node, or of another incarnation" in shown.first_line
    assert "is its disk mounted, or was it wiped?" in shown.first_line


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
