"""Queries that share topic t: no thread acts by itself, no call waits for rows, and the processes have one clock."""

import pytest

from pyspark_log import opening
from pyspark_log.reading import stream_planner
from pyspark_log_coordinator.membership.member_thread import MemberThread
from tests.support.pyspark_log.source.shared_queries import Clock, Queries


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def stepwise(monkeypatch, clock):
    monkeypatch.setattr(opening, "real_environment", clock.environment)
    monkeypatch.setattr(MemberThread, "start", lambda _: None)
    monkeypatch.setattr(stream_planner, "IDLE_WAIT_SECONDS", 0.0)


@pytest.fixture
def queries(tmp_path, stepwise):
    return Queries(str(tmp_path))
