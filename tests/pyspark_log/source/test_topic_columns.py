"""The columns of a query are those that its topics have when it begins, also in a process that has known the log."""

import pytest

from pyspark_log import opening
from pyspark_log.options import check_source
from pyspark_log.source.topic_columns import typed_columns
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_storage.columns import column_ddl
from pyspark_log_storage.errors import InvalidInput
from tests.support.direct import Stream
from tests.support.pyspark_log.typed_frames import write


@pytest.fixture
def log(tmp_path, monkeypatch):
    """A log that this process has opened. Its store is as far away as an object store, to which few looks are made."""
    monkeypatch.setattr(Log, "is_remote", True)
    path = str(tmp_path / "log")
    opening.open_log(path, create=True)
    return path


def create(path, topic, ddl=None):
    """Create a topic in another process."""
    other = opening.own_log(path)
    other.open(create=False)
    other.create_topic(topic, 1, TopicConfig(), columns=None if ddl is None else column_ddl.parse(ddl))
    return other


def columns(path, **subscription):
    found = typed_columns(check_source({"path": path} | subscription))
    return None if found is None else (found[0], found[1].names)


@pytest.mark.parametrize("subscription", [{"subscribe": "t"}, {"assign": '{"t": [0]}'}, {"subscribepattern": "t.*"}])
def test_of_a_topic_that_another_process_created_a_moment_ago(log, subscription):
    assert columns(log, **subscription) is None
    create(log, "t", "id BIGINT")
    assert columns(log, **subscription) == ("t", ["id"])


BEGUN = "open BOOLEAN, n BIGINT"


@pytest.mark.parametrize(
    ("ddl", "refused"),
    [
        ("open INT, n BIGINT", "topic 'b': column 'open' has type int, not boolean; leave the topic out"),
        ("open BOOLEAN, n DOUBLE", "topic 'b': column 'n' has type double, not bigint; leave the topic out"),
        ("open BOOLEAN", "topic 'b': unknown column 'n'"),
        (None, "topic 'b' holds records of key and value: unknown column 'open'"),
        ("n INT, open BOOLEAN, more STRING", None),
    ],
)
@pytest.mark.parametrize("options", [{"subscribePattern": ".*"}, {"subscribe": "a,b"}, {"assign": '{"a":[0],"b":[0]}'}])
def test_a_stream_makes_no_offset_of_a_later_topic_whose_columns_it_cannot_read(tmp_path, options, ddl, refused):
    path = str(tmp_path / "log")
    opening.open_log(path, create=True)
    create(path, "a", BEGUN)
    first = Stream(path, subscribe="a", startingOffsets="earliest")
    start = first.reader.latestOffset(first.start, first.limit)
    stream = Stream(path, start, **options)  # a topic that does not exist is not missed by a query that has begun
    create(path, "b", ddl)
    if refused is None:
        write(path, "n INT, open BOOLEAN", [{"n": 1, "open": True}], topic="b")
        end = stream.reader.latestOffset(start, stream.limit)
        [split] = stream.reader.partitions(start, end)
        [rows] = stream.reader.read(split)
        assert [(row["open"], row["n"]) for row in rows.to_pylist()] == [(True, 1)]
        return
    with pytest.raises(InvalidInput, match=refused):
        stream.reader.latestOffset(start, stream.limit)


def test_a_stream_of_records_reads_no_typed_topic_that_comes_in_place_of_its_own(tmp_path):
    path = str(tmp_path / "log")
    opening.open_log(path, create=True)
    log = create(path, "a")
    stream = Stream(path, subscribe="a", startingOffsets="earliest", failOnDataLoss="false")
    start = stream.reader.latestOffset(stream.start, stream.limit)
    log.delete_topic("a")
    create(path, "a", "key BINARY, value STRING")
    with pytest.raises(InvalidInput, match="topic 'a': column 'value' has type string, not binary"):
        stream.reader.latestOffset(start, stream.limit)


def test_a_stream_reads_on_in_a_topic_whose_columns_became_wider_since(tmp_path):
    path = str(tmp_path / "log")
    opening.open_log(path, create=True)
    create(path, "a", "n INT")
    stream = Stream(path, subscribe="a", startingOffsets="earliest")
    start = stream.reader.latestOffset(stream.start, stream.limit)
    write(path, "n BIGINT", [{"n": 1}], topic="a", mergeSchema="true")
    [split] = stream.reader.partitions(start, stream.reader.latestOffset(start, stream.limit))
    assert [rows.column("n").to_pylist() for rows in stream.reader.read(split)] == [[1]]
