"""The columns of a query are those that its topics have when it begins, also in a process that has known the log."""

import pytest

from pyspark_log import opening
from pyspark_log.options import check_source
from pyspark_log.source.topic_columns import typed_columns
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_storage.columns import column_ddl


@pytest.fixture
def log(root, monkeypatch):
    """A log that this process has opened. Its store is as far away as an object store, to which few looks are made."""
    monkeypatch.setattr(Log, "is_remote", True)
    path = str(root / "log")
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


def test_of_a_topic_that_was_created_again_a_moment_ago(log):
    create(log, "t", "id BIGINT")
    assert columns(log, subscribe="t") == ("t", ["id"])
    create(log, "u").delete_topic("t")
    create(log, "t")
    assert columns(log, subscribe="t") is None
