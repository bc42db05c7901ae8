"""Sessions of members: silence, stores that do not answer, and what members leave behind."""

import pytest

from pyspark_log_coordinator.group.config import MemberSettings
from pyspark_log_coordinator.group.offsets import Offset
from pyspark_log_coordinator.maintenance.cluster_cleanup import clean_up_groups
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    OutcomeUnknown,
    StoreUnavailable,
    UnknownMember,
)
from tests.support.coordinator.breakable_store import BreakableStore
from tests.support.coordinator.members import SESSION, Processes, shares, told


@pytest.mark.parametrize("error", [StoreUnavailable("", "", "the answer was lost"), OutcomeUnknown("it may be")])
def test_a_join_whose_answer_was_lost_is_no_second_member(error):
    world = Processes()
    a = world.consumer()
    submit = a.member.session.submit

    def lose_answer(command):
        a.member.session.submit = submit
        submit(command)
        raise error

    a.member.session.submit = lose_answer
    world.settle()
    b = world.consumer()
    world.run(120)
    assert list(world.group.members) == [a.member.member_id, b.member.member_id]
    assert shares(a, b) == [3, 3]


FAR_APART_MS = 15_000
"""Between heartbeats in an object store, where each is a request."""


@pytest.mark.parametrize("seconds", [5, 33, 61, 121])
def test_a_store_that_does_not_answer_for_a_while_costs_nobody_their_partitions(seconds):
    world = Processes(BreakableStore())
    a, b = (world.consumer(interval_ms=FAR_APART_MS) for _ in range(2))
    world.settle()
    world.run(300)
    before = world.group.generation
    world.store.broken = StoreUnavailable
    world.run(seconds)
    world.store.broken = None
    world.run(120)
    assert world.group.generation == before
    assert shares(a, b) == [3, 3]


@pytest.mark.parametrize(
    ("given", "session_ms", "is_remote", "interval"),
    [
        (None, 45_000, False, 3_000),
        (None, 45_000, True, 15_000),
        (None, 18_000, True, 6_000),
        (None, 6_000, True, 3_000),
        (500, 45_000, True, 500),
    ],
)
def test_the_default_interval_is_longer_where_each_heartbeat_is_a_request(given, session_ms, is_remote, interval):
    settings = MemberSettings(heartbeat_interval_ms=given, session_timeout_ms=session_ms)
    assert settings.interval_ms(is_remote=is_remote) == interval


def test_a_heartbeat_that_the_store_did_not_take_is_sent_again_soon(monkeypatch):
    world = Processes()
    a = world.consumer(interval_ms=FAR_APART_MS)
    world.settle()
    sent = []

    def beat(member_id):
        sent.append(world.now)
        return len(sent) > 2

    monkeypatch.setattr(a.member.session._heartbeats, "beat", beat)
    world.run(30)
    assert [round(each - sent[0]) for each in sent[:3]] == [0, 3, 6]


def test_after_heartbeats_could_not_be_listed_every_member_has_time_to_send_one(monkeypatch):
    world = Processes()
    a, b = (world.consumer(interval_ms=FAR_APART_MS) for _ in range(2))
    world.settle()
    world.kill(b.member)
    world.run(12)
    with monkeypatch.context() as broken:
        broken.setattr(a.member.session._heartbeats, "listen", lambda: None)
        world.run(60)
    world.run(10)
    assert len(world.group.members) == 2
    world.run(SESSION)
    world.settle()
    assert shares(a) == [6]


def test_a_process_that_works_too_long_leaves_and_rejoins_with_its_next_poll():
    world = Processes()
    a, b = world.consumer(max_poll_interval_ms=60_000), world.consumer()
    world.settle()
    world.kill(a.member)
    for _ in range(59):
        a.member.stay()  # its second thread
        world.run(1)
    assert len(world.group.members) == 2
    world.run(3)
    a.member.stay()
    assert "poll was not called for 62" in a.member.dropped
    assert "max.poll.interval.ms=60000" in a.member.dropped
    world.settle()
    assert shares(b) == [6]
    with pytest.raises(UnknownMember):
        a.member.commit({"t": {0: Offset(1)}})
    world.running.append(a.member)
    world.settle()
    assert len(told(a, "lost")) == 1
    assert shares(a, b) == [3, 3]


def test_maintenance_leaves_offsets_of_a_deleted_topic_while_the_group_has_members():
    world = Processes()
    a = world.consumer()
    world.settle()
    a.member.commit({"t": {0: Offset(7)}})
    world.store.create(f"{layout.heartbeats(world._log.group('g').journal_id)}gone.7", b"")
    log = world.log(create=True)
    assert clean_up_groups(log, failed=pytest.fail) == 1
    group = log.group_handle(log.group("g"))
    assert group.refresh().committed("t", 0).offset == 7
    a.member.leave()
    clean_up_groups(log, failed=pytest.fail)
    assert group.refresh().committed("t", 0) is None


def test_a_member_rests_when_the_store_does_not_answer():
    world = Processes(BreakableStore())
    a = world.consumer()
    world.settle()
    world.now += 3
    world.store.broken = StoreUnavailable
    a.member.poll()
    assert a.member.pause() == pytest.approx(0.1)
    calls = []
    a.member.session.keep_alive = lambda: calls.append(1)
    a.member.poll()
    assert not calls
