"""What a write creates: a log only with a first write, since an empty folder may be where a disk is not mounted.

And what makes it a first write: not that it is repeated, by its query or by an application that names it.
"""

import json
import logging
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from pyspark_log.documents.topics import queries
from pyspark_log.opening import forget_logs, open_log
from pyspark_log.options import parse_sink
from pyspark_log.sink import checkpoint
from pyspark_log_coordinator.audit import timeline
from pyspark_log_coordinator.model.settings import INT_MAX
from pyspark_log_coordinator.model.topic_config import MAX_MESSAGE_BYTES
from pyspark_log_storage.errors import BatchMismatch, CorruptObject, InvalidOption, NoCluster, UnknownTopic
from tests.support.direct import read, source
from tests.support.plain_log import PlainLog
from tests.support.pyspark_log.typed_frames import task

RECORDS = StructType([StructField("value", BinaryType())])
NAMED = StructType([StructField("topic", StringType()), StructField("value", BinaryType())])
COLUMNS = StructType([StructField("n", LongType())])


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "log"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def every_driver_is_new():
    forget_logs()


def write(path, batch_id=None, rows=({"value": b"v"},), *, frame=RECORDS, streaming=True, **options):
    """Write as Spark does: planned, staged and committed, each by a writer of its own in a stream."""
    given = {"topic": "t"} | {name.replace("__", "."): value for name, value in options.items()}

    def made():
        forget_logs()
        sink = source(path, **{name: value for name, value in given.items() if value is not None})
        return sink.streamWriter(frame, overwrite=False) if streaming else sink.writer(frame, overwrite=False)

    writer = made()
    batch = pa.RecordBatch.from_pylist(list(rows), to_arrow_schema(frame))
    with task(batch_id):
        message = writer.write(iter([batch]))
    (made() if streaming else writer).commit([message], *[batch_id] * streaming)


def batch(path, **options):
    write(path, streaming=False, **options)


def rows(path, topic="t"):
    forget_logs()
    return len(read(path, subscribe=topic))


def test_a_batch_write_creates_the_log_with_a_warning_that_names_the_folder(path, caplog):
    with caplog.at_level(logging.WARNING, "pyspark_log"):
        batch(path)
        batch(path)
    assert rows(path) == 2
    (warning,) = caplog.messages
    assert f"created a new log at {path} (" in warning
    assert "if you expected an existing log there, mount its disk" in warning


@pytest.mark.parametrize(
    ("frame", "row", "options"),
    [
        (RECORDS, {"value": b"v"}, {}),
        (NAMED, {"topic": "t", "value": b"v"}, {"topic": None}),
        (COLUMNS, {"n": 1}, {"schema": "columns"}),
        (RECORDS, {"value": b"v"}, {"dead__letter__topic": "dead"}),
    ],
    ids=["records", "topics named by rows", "columns", "dead letters"],
)
class TestAQuery:
    def test_creates_the_log_with_its_first_micro_batch(self, path, frame, row, options):
        write(path, 0, [row], frame=frame, **options)
        write(path, 1, [row], frame=frame, **options)
        assert rows(path) == 2

    def test_creates_no_log_with_a_later_micro_batch(self, path, frame, row, options):
        with pytest.raises(NoCluster, match=f"there is no log at {path}.* whether its disk is mounted"):
            write(path, 3, [row], frame=frame, **options)
        assert not list(path.iterdir())

    def test_creates_nothing_without_auto_create_topics_enable(self, path, frame, row, options):
        with pytest.raises(NoCluster):
            write(path, 0, [row], frame=frame, auto__create__topics__enable="false", **options)
        assert not list(path.iterdir())


@pytest.mark.parametrize("options", [{"mergeSchema": "true"}, {"key__column": "value"}])
def test_a_log_that_is_missing_is_not_taken_for_a_topic_of_records_in_a_later_foreach_batch(path, options):
    with pytest.raises(NoCluster, match=f"there is no log at {path}.* whether its disk is mounted"):
        write(path, 3, streaming=False, **options)
    assert not list(path.iterdir())


def test_a_later_micro_batch_does_not_create_its_topic(path):
    PlainLog(path).create("other")
    with pytest.raises(UnknownTopic, match="Only a query's first micro-batch creates its topic: was it deleted"):
        write(path, 3)
    assert list(PlainLog(path).log.topics()) == ["other"]
    write(path, 0)
    assert rows(path) == 1


def test_a_later_micro_batch_creates_topics_that_its_rows_name_and_the_dead_letter_topic_for_rows_of_every_size(path):
    PlainLog(path).create("t", max_message_bytes=MAX_MESSAGE_BYTES)
    write(path, 3, [{"topic": "new", "value": b"v"}], frame=NAMED, topic=None)
    write(path, 3, dead__letter__topic="dead")
    log = PlainLog(path).log
    assert set(log.topics()) == {"t", "new", "dead"}
    assert [log.topic(name).config.max_message_bytes for name in ("t", "dead")] == [MAX_MESSAGE_BYTES, INT_MAX]


def test_a_batch_write_of_a_later_micro_batch_creates_its_topic_but_no_log(path):
    with pytest.raises(NoCluster):
        batch(path, batch_id=3)
    assert not list(path.iterdir())
    PlainLog(path)
    batch(path, batch_id=3)
    assert rows(path) == 1


class TestACheckpoint:
    """The query has written its first micro-batch, and its checkpoint knows to which log and topic."""

    @pytest.fixture
    def query(self, path, tmp_path):
        folder = tmp_path / "checkpoint"
        folder.mkdir()
        (folder / "metadata").write_text(json.dumps({"id": "q"}))
        write(path, 0, checkpointLocation=folder)
        return {"checkpointLocation": folder}

    @staticmethod
    def record(query):
        (found,) = filter(Path.is_file, (query["checkpointLocation"] / checkpoint.FOLDER).iterdir())
        return found

    @staticmethod
    def take_away(path):
        path.rename(path.with_name("away"))
        path.mkdir()

    @staticmethod
    def put_back(path):
        shutil.rmtree(path)
        path.with_name("away").rename(path)

    @pytest.mark.parametrize("batch_id", [0, 1], ids=["repeated", "next"])
    def test_of_a_query_creates_no_log_in_place_of_its_own(self, path, query, batch_id):
        self.take_away(path)
        with pytest.raises(NoCluster, match=f"there is no log at {path}, and the query .* is the disk mounted"):
            write(path, batch_id, **query)
        assert not list(path.iterdir())
        self.put_back(path)
        write(path, batch_id, **query)
        assert rows(path) == batch_id + 1

    @pytest.mark.parametrize("batch_id", [0, 1], ids=["repeated", "next"])
    @pytest.mark.parametrize("topic", ["t", None], ids=["named by an option", "named by rows"])
    def test_of_a_query_refuses_a_log_that_another_writer_created_there(self, path, query, batch_id, topic):
        given = {} if topic else {"frame": NAMED, "topic": None, "rows": [{"topic": "t", "value": b"v"}]}
        write(path, 0, **query, **given)
        self.take_away(path)
        batch(path)
        with pytest.raises(NoCluster, match=r"has written to cluster .*: is the right disk mounted"):
            write(path, batch_id, **query, **given)
        assert rows(path) == 1
        self.put_back(path)
        write(path, 1, **query, **given)

    def test_in_an_object_store_is_compared_again_after_it_has_refused_a_log(self, path, query, monkeypatch):
        monkeypatch.setattr(checkpoint, "is_object_store", lambda _: True)
        monkeypatch.setattr(checkpoint, "_compared", {})
        self.take_away(path)
        batch(path)
        for _ in range(2):
            with pytest.raises(NoCluster, match="is the right disk mounted"):
                write(path, 1, **query)
        assert rows(path) == 1

    def test_of_a_query_refuses_a_topic_that_was_created_again(self, path, query):
        log = PlainLog(path)
        log.delete("t")
        for batch_id in (0, 1):
            with pytest.raises(UnknownTopic, match="has written to it: it was deleted"):
                write(path, batch_id, **query)
        log.create("t")
        with pytest.raises(UnknownTopic, match=r"which was deleted\. If the old one is gone for good") as raised:
            write(path, 1, **query)
        assert rows(path) == 0
        record = self.record(query)
        assert str(record) in str(raised.value)
        record.unlink()
        write(path, 1, **query)
        assert rows(path) == 1

    def test_lets_a_query_write_to_another_topic_or_log_as_with_kafka(self, path, tmp_path, query):
        PlainLog(path).create("u")
        write(path, 1, topic="u", **query)
        other = PlainLog(tmp_path / "other")
        other.create("t")
        write(tmp_path / "other", 2, **query)
        assert (rows(path, "u"), rows(tmp_path / "other")) == (1, 1)

    def test_of_a_new_query_in_the_same_folder_knows_nothing(self, path, query):
        (query["checkpointLocation"] / "metadata").write_text(json.dumps({"id": "another"}))
        self.take_away(path)
        write(path, 0, **query)
        assert rows(path) == 1

    def test_that_is_damaged_is_an_error_that_names_the_file(self, path, query):
        record = self.record(query)
        record.write_bytes(b"?" + record.read_bytes()[1:])
        with pytest.raises(CorruptObject, match=str(record)):
            write(path, 1, **query)


@pytest.mark.parametrize(
    ("path", "given", "found"),
    [
        ("/log", "file:///checkpoint/", "/checkpoint"),
        ("s3://bucket/log", "/checkpoint", "/checkpoint"),
        ("s3://bucket/log", "s3a://other/checkpoint", "s3://other/checkpoint"),
        ("/log", "s3a://bucket/checkpoint", None),
        ("/log", "hdfs://server/checkpoint", None),
        ("/log", None, None),
    ],
)
def test_a_checkpoint_is_read_in_folders_and_in_the_kind_of_store_that_the_log_is_in(path, given, found):
    options = {"path": path} if given is None else {"path": path, "checkpointlocation": given}
    assert checkpoint.address_of(parse_sink(options, streaming=True)) == found
    assert checkpoint.address_of(parse_sink(options, streaming=False)) is None


def test_a_checkpoint_that_cannot_be_used_here_fails_no_write(path, tmp_path, caplog):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "metadata").write_text(json.dumps({"id": "q"}))
    (folder / "sinks").touch()  # a file instead of a folder
    with caplog.at_level(logging.WARNING, "pyspark_log"):
        write(path, 0, checkpointLocation=folder)
    assert f"the checkpoint {folder} cannot be used here" in caplog.text
    assert rows(path) == 1


def test_a_query_is_shown_by_its_newest_name_and_known_by_its_id(path):
    for batch_id, name in enumerate(("a", "b", None)):
        write(path, batch_id, queryName=name)
        topic = open_log(str(path)).topic("t", polls=True)
        assert [each["query"] for each in queries("t", topic.state)] == [name or "q"]
    assert list(topic.state.producers) == ["q"]
    assert [each.producer for each in timeline.moments(topic) if each.rows] == ["a", "b", "q"]


def test_a_micro_batch_belongs_to_the_application_that_it_names(path):
    for _ in range(2):
        write(path, 0, txnAppId="one")
    assert rows(path) == 1
    assert open_log(str(path)).topic("t").state.producers.keys() == {"one"}


@pytest.mark.parametrize("options", [{}, {"schema": "columns"}])
def test_no_topic_is_created_for_a_write_whose_dead_letter_topic_is_typed(path, options):
    PlainLog(path).log.create_topic("typed", 1, columns=pa.schema([("n", pa.int64())]))
    for streaming in (True, False):
        with pytest.raises(InvalidOption, match=r"dead.letter.topic is 'typed', a typed topic"):
            write(path, 0, frame=RECORDS, streaming=streaming, dead__letter__topic="typed", **options)
    assert PlainLog(path).log.topics().keys() == {"typed"}


@pytest.mark.parametrize("large", [1, 2])
def test_topics_of_an_application_that_share_a_dead_letter_topic_have_all_their_dead_letters(path, large):
    options = {"txnAppId": "app", "txnVersion": 7, "max.message.bytes": 3, "dead.letter.topic": "dead"}
    for topic, count in (("a", 1), ("b", large)) * 2:
        batch(path, rows=[{"value": b"ok"}, *[{"value": b"is large"}] * count], topic=topic, **options)
    assert (rows(path, "a"), rows(path, "b"), rows(path, "dead")) == (1, 1, 1 + large)


@pytest.mark.parametrize("applications", [("one", "two"), ("one", None), (None, "one")])
def test_a_micro_batch_that_is_repeated_for_another_application_is_written_once(path, applications):
    for application in applications:
        write(path, 0, txnAppId=application)
    assert rows(path) == 1


def test_a_write_cannot_overwrite_the_log(path):
    with pytest.raises(InvalidOption, match="would delete the log"):
        source(path, topic="t").writer(RECORDS, overwrite=True)


def test_a_query_whose_log_has_lost_its_newest_entry_fails_unless_it_takes_over(path):
    """The checkpoint knows a micro-batch that the log does not."""
    for batch_id, row in enumerate([[{"value": b"v"}], [], [{"value": b"v"}]]):
        write(path, batch_id, row)
    log = PlainLog(path)
    assert log.log.topic("t").state.producers["q"].batch_id == 2
    log.newest_entry("t").unlink()
    with pytest.raises(BatchMismatch, match="sends batch 3 after batch 1: the batches between are missing"):
        write(path, 3)
    write(path, 3, txnAppId="app", txnTakeOver="true")
    write(path, 4, txnAppId="app")
    assert rows(path) == 3


def test_a_task_of_a_process_that_knew_the_log_finds_at_once_that_it_is_not_mounted(path, tmp_path):
    write(path, 0)
    away = path.rename(tmp_path / "away")
    path.mkdir()
    forget_logs()
    planned = source(path, topic="t").streamWriter(RECORDS, overwrite=False)
    path.rmdir()
    away.rename(path)
    open_log(str(path))  # as a task before did in the process that is used again
    path.rename(away)
    path.mkdir()
    batch = pa.RecordBatch.from_pylist([{"value": b"v"}], to_arrow_schema(RECORDS))
    with task(1), pytest.raises(NoCluster, match="check the address, and whether its disk is mounted"):
        planned.write(iter([batch]))
    assert list(path.iterdir()) == []
