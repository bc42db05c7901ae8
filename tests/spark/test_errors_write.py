"""What the writer of a log is shown when something is wrong, and that nothing was written."""

import subprocess

import pytest

from pyspark_log_storage import layout
from pyspark_log_storage.objects import node
from tests.support.coordinator.spares import spare_file
from tests.support.plain_log import flip_bit
from tests.support.spark.spark_log import SparkLog, refused


@pytest.fixture
def log(spark, tmp_path):
    made = SparkLog(spark, tmp_path)
    made.create("t", 2)
    return made


GOOD = "select 'v' value"
WRITES = [
    (GOOD, {"topics": "t"}, "write. Did you mean topic?"),
    (GOOD, {"topic": ".."}, "option topic is '..': invalid topic name '..'"),
    (GOOD, {"topic": "a/b"}, "only ASCII letters, digits, '.', '_' and '-' are allowed"),
    (GOOD, {}, "no topic is given: set the option 'topic', or add a column 'topic'"),
    (
        GOOD,
        {"topic": "x", "auto.create.topics.enable": "false"},
        "UnknownTopic: topic 'x' does not exist; create it first",
    ),
    (GOOD, {"topic": "t", "acks": "2"}, "option acks is '2': it is not a known value"),
    (GOOD, {"topic": "t", "compression.type": "gzip"}, "option compression.type is 'gzip': chunks are Arrow data"),
    (GOOD, {"topic": "t", "txnAppId": "a"}, "option txnAppId is given without txnVersion"),
    (
        GOOD,
        {"topic": "t", "asyncProgressTrackingEnabled": "true"},
        "which breaks exactly-once; expected false (default: false)",
    ),
    ("select 1 id", {"topic": "t"}, "the frame has no column 'value' (it has id)"),
    ("select 1 value", {"topic": "t"}, "column 'value' has type int, expected binary or string"),
    (f"{GOOD}, 0L partition", {"topic": "t"}, "column 'partition' has type bigint, expected int"),
    (f"{GOOD}, 2 partition", {"topic": "t"}, "InvalidRecord: topic 't': a row names partition 2"),
    (f"{GOOD}, -1 partition", {"topic": "t"}, "InvalidRecord: topic 't': a row names partition -1"),
    (f"{GOOD}, cast(null as string) topic", {}, "InvalidRecord: a row has a null topic"),
    (f"{GOOD}, 'x' topic", {"auto.create.topics.enable": "false"}, "UnknownTopic: topic 'x' does not exist"),
    (f"{GOOD}, '..' topic", {}, "InvalidName: invalid topic name '..'"),
    (
        "select repeat('v', 100) value",
        {"topic": "t", "max.message.bytes": 99},
        "InvalidRecord: topic 't': a row of 100 bytes is larger than max.message.bytes (99)",
    ),
]


@pytest.mark.parametrize(("query", "options", "message"), WRITES)
def test_a_wrong_batch_write_is_refused(log, query, options, message):
    with refused() as shown:
        log.write(log.spark.sql(query), **options)
    assert message in shown.first_line
    assert log.rows("t") == 0
    assert list(log.log.topics()) == ["t"]


@pytest.mark.parametrize(("query", "options", "message"), [WRITES[at] for at in (0, 4, 9, 10, 12, 14)])
def test_a_wrong_streaming_write_is_refused(log, query, options, message):
    log.create("source")
    log.append("source", {0: [b"row"]})
    frame = log.stream(subscribe="source", startingOffsets="earliest")
    with refused() as shown:
        log.drain(frame.selectExpr(*query.removeprefix("select ").split(", ")), **options)
    assert message in shown.first_line
    assert log.rows("t") == 0


@pytest.mark.default
def test_overwriting_is_refused(log):
    with refused() as shown:
        log.spark.sql(GOOD).write.format("pyspark_log").mode("overwrite").option("topic", "t").save(log.path)
    assert "mode('overwrite') would delete the log; write with mode('append')" in shown.first_line


def test_a_path_that_is_a_file_is_refused(log):
    file = log.folder / "a-file"
    file.write_text("not a folder")
    with refused() as shown:
        log.spark.sql(GOOD).write.format("pyspark_log").mode("append").option("topic", "t").save(str(file))
    assert f"StoreRefused: cannot use {file}/" in shown.first_line
    assert "a part of the path is a file; choose another path" in shown.first_line


@pytest.mark.on_disk("an object store has no spares")
def test_a_damaged_journal_is_refused_and_left_alone(log):
    entry = log.newest_entry("t")
    for each in (entry, spare_file(entry)):
        flip_bit(each, 8 * 40)
    with refused() as shown:
        log.write(log.spark.sql(GOOD), topic="t")
    assert f"CorruptObject: journal entry {entry} is damaged" in shown.first_line
    assert [entry] == list(entry.parent.iterdir())


def test_a_marker_of_another_incarnation_is_refused(log):
    marker = node.read_marker(log.log.store)
    assert marker is not None
    log.log.store.put(layout.MARKER, node.encode(node.Marker(marker.cluster, marker.node, "another")))
    with refused() as shown:
        log.write(log.spark.sql(GOOD), topic="t")
    assert f"NodeMissing: node '0' at {log.path} is another node, or of another incarnation" in shown.first_line
    assert "Mount the right one" in shown.first_line


@pytest.fixture
def read_only(log):
    """The log, mounted once more where nobody may write: a check of permissions would let root pass."""
    mounted = log.folder / "read-only"
    mounted.mkdir()
    bind = ["mount", "--bind", log.path, str(mounted)]
    remount = ["mount", "-o", "remount,bind,ro", str(mounted)]
    if subprocess.run(bind, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a folder")
    try:
        subprocess.run(remount, capture_output=True, check=True)
        yield mounted
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


def test_a_folder_that_is_read_only_can_be_read_and_not_written(log, read_only):
    log.append("t", {0: [b"row"]})
    with refused() as shown:
        log.spark.sql(GOOD).write.format("pyspark_log").mode("append").option("topic", "t").save(str(read_only))
    assert f"StoreUnwritable: cannot use {read_only}/" in shown.first_line
    assert "the file system is read-only; mount it for writing" in shown.first_line
    frame = log.spark.read.format("pyspark_log").option("subscribe", "t").load(str(read_only))
    assert [row.value for row in frame.collect()] == [b"row"]
