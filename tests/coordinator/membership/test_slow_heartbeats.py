"""Members of a group in an object store, whose heartbeats are far apart because each is a request."""

import pytest

from pyspark_log_coordinator.group.config import MemberSettings
from pyspark_log_storage.errors import StoreUnavailable
from tests.support.coordinator.breakable_store import BreakableStore
from tests.support.coordinator.members import SESSION, Processes, shares, told

INTERVAL_MS = 15_000


def pair(world):
    """Two members that have been in the group for a while."""
    a, b = (world.consumer(interval_ms=INTERVAL_MS) for _ in range(2))
    world.settle()
    world.run(300)
    return a, b


@pytest.mark.parametrize(
    ("given", "session_ms", "is_remote", "interval"),
    [
        (None, 45_000, False, 3_000),
        (None, 45_000, True, 15_000),
        (None, 1_800_000, True, 15_000),
        (None, 18_000, True, 6_000),
        (None, 6_000, True, 3_000),
        (500, 45_000, True, 500),
    ],
)
def test_the_default_interval_is_longer_where_each_heartbeat_is_a_request(given, session_ms, is_remote, interval):
    settings = MemberSettings(heartbeat_interval_ms=given, session_timeout_ms=session_ms)
    assert settings.interval_ms(is_remote=is_remote) == interval


def test_a_killed_member_is_found_as_soon_as_its_session_is_over():
    for moment in range(0, 15, 3):
        world = Processes()
        a, b = pair(world)
        killed_at, heard, count = world.now + 15 + moment, 0.0, None
        while len(world.group.members) == 2:
            if world.now >= killed_at and b.member in world.running:
                world.kill(b.member)
            world.run(0.5)
            silence = a.member.session._liveness._silences.get(b.member.member_id)
            if silence is not None and silence.count != count:
                heard, count = world.now, silence.count
        assert SESSION - 1 <= world.now - heard <= SESSION + 1
        world.settle()
        assert shares(a) == [6]


def test_a_store_that_does_not_answer_for_a_while_costs_nobody_their_partitions():
    for seconds in range(5, 125, 4):
        world = Processes(BreakableStore())
        a, b = pair(world)
        before = world.group.generation
        world.store.broken = StoreUnavailable
        world.run(seconds)
        world.store.broken = None
        world.run(120)
        assert world.group.generation == before
        assert shares(a, b) == [3, 3]


def test_a_heartbeat_that_the_store_did_not_take_is_sent_again_soon(monkeypatch):
    world = Processes()
    a, _ = pair(world)
    sent = []

    def beat(member_id):
        sent.append(world.now)
        return len(sent) > 2

    monkeypatch.setattr(a.member.session._heartbeats, "beat", beat)
    world.run(30)
    assert [round(each - sent[0]) for each in sent[:3]] == [0, 3, 6]
    assert not told(a, "lost")


def test_after_heartbeats_could_not_be_listed_every_member_has_time_to_send_one(monkeypatch):
    for moment in range(0, 15, 2):
        world = Processes()
        a, b = pair(world)
        world.run(moment)
        world.kill(b.member)
        world.run(12)
        with monkeypatch.context() as broken:
            broken.setattr(a.member.session._heartbeats, "listen", lambda: None)
            world.run(60)
        world.run(10)
        assert len(world.group.members) == 2
