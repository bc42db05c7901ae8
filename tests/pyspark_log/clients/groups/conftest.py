"""Fixtures of the tests of consumers that share a topic of six partitions."""

import pytest

from pyspark_log.clients import consumer_group
from pyspark_log_coordinator.membership import group_member
from tests.support.plain_log import PlainLog
from tests.support.pyspark_log.clients.group_programs import COOPERATIVE, EAGER, Programs


@pytest.fixture
def log(tmp_path):
    made = PlainLog(tmp_path)
    made.create("t", 6)
    return made


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Members ask often whether there are other topics and partitions."""
    monkeypatch.setattr(group_member, "NEWS_SECONDS", 0.1)
    monkeypatch.setattr(consumer_group, "FIND_AGAIN_SECONDS", 0.1)


@pytest.fixture
def programs(log):
    made = Programs(log)
    yield made
    made.close()


@pytest.fixture(params=[EAGER, COOPERATIVE])
def strategy(request):
    return request.param
