"""Members that are all dead, whom a process expires that is no member."""

import pytest

from pyspark_log_coordinator.membership.heartbeats import Heartbeats
from pyspark_log_coordinator.membership.last_members import expire_last
from tests.support.coordinator.members import Processes, shares


@pytest.fixture
def world():
    world = Processes()
    world.consumer(), world.consumer(instance_id="static", session_timeout_ms=60_000)
    world.settle()
    return world


def expire(world):
    """Expire members, and return how many and how long that was to take, and how long it took."""
    said, began = [], world.now
    log = world.log()
    log.open(create=False)
    expire_last(log.group("g"), log.environment, lambda *told: said.append(told))
    return said, world.now - began


def lets_live(world, monkeypatch, *members):
    """Let these members run while somebody sleeps."""
    sleep = Processes._sleep

    def slept(self, seconds):
        for each in members:
            each.stay()
        sleep(self, seconds)

    monkeypatch.setattr(Processes, "_sleep", slept)


def test_are_removed_after_the_longest_session(world):
    said, took = expire(world)
    assert said == [(2, 60.0)]
    assert not world.group.members
    assert 60 <= took < 63


def test_of_whom_one_shows_life_stay(world, monkeypatch):
    alive = world.running[1]
    lets_live(world, monkeypatch, alive)
    _, took = expire(world)
    assert took <= 5, "until it sends its next heartbeat"
    assert len(world.group.members) == 2


def test_whose_heartbeats_cannot_be_read_stay(world, monkeypatch):
    monkeypatch.setattr(Heartbeats, "listen", lambda _: None)
    said, took = expire(world)
    assert said == [(2, 60.0)]
    assert 60 <= took < 63
    assert len(world.group.members) == 2


def test_of_a_group_that_has_none_make_nobody_wait(world):
    expire(world)
    assert expire(world) == ([], 0)
    reader = world.consumer()
    world.running[:] = [reader.member]
    world.settle()
    assert shares(reader) == [6]
