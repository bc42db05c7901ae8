"""Sessions of members: silence, stores that do not answer, and what members leave behind."""

import pytest

from pyspark_log_coordinator.group.leaving import LeaveGroup
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
from tests.support.elsewhere import PlainStore


def test_a_store_that_does_not_answer_for_a_while_costs_nobody_their_partitions():
    world = Processes(BreakableStore())
    a, b = world.consumer(), world.consumer()
    world.settle()
    before = world.group.generation
    world.store.broken = StoreUnavailable
    world.run(120)
    world.store.broken = None
    world.run(60)
    assert world.group.generation == before
    assert shares(a, b) == [3, 3]
    assert not told(a, "lost") + told(b, "lost")


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


def test_a_static_process_that_works_too_long_falls_silent():
    world = Processes()
    a, b = world.consumer(max_poll_interval_ms=10_000, instance_id="i"), world.consumer()
    world.settle()
    world.kill(a.member)
    for _ in range(50):
        a.member.stay()
        world.run(1)
    assert len(world.group.members) == 2, "it keeps its place for its session"
    world.run(10)
    world.settle()
    assert shares(b) == [6]


def test_what_a_killed_member_left_is_deleted():
    world = Processes()
    a, b = world.consumer(), world.consumer()
    world.settle()
    world.run(10)
    folder = layout.heartbeats(world._log.group("g").journal_id)
    assert len(list(world.store.list(folder))) == 2
    world.kill(b.member)
    world.run(SESSION + 10)
    assert [key.removeprefix(folder).rpartition(".")[0] for key in world.store.list(folder)] == [a.member.member_id]


def test_maintenance_deletes_what_the_last_members_left_and_keeps_the_living():
    world = Processes()
    a = world.consumer()
    world.settle()
    world.run(5)
    heartbeats = layout.heartbeats(world._log.group("g").journal_id)
    world.store.create(f"{heartbeats}gone.7", b"")
    assert clean_up_groups(world.log(create=True), failed=print) == 1
    assert [key.removeprefix(heartbeats).rpartition(".")[0] for key in world.store.list(heartbeats)] == [
        a.member.member_id
    ]


def test_maintenance_leaves_offsets_of_a_deleted_topic_while_the_group_has_members():
    world = Processes()
    a = world.consumer()
    world.settle()
    a.member.commit({"t": {0: Offset(7)}})
    world.store.create(f"{layout.heartbeats(world._log.group('g').journal_id)}gone.7", b"")
    log = world.log(create=True)
    assert clean_up_groups(log, failed=pytest.fail) == 1
    group = log.group_handle(log.group("g"))
    assert group.begin().committed("t", 0).offset == 7
    a.member.leave()
    clean_up_groups(log, failed=pytest.fail)
    assert group.begin().committed("t", 0) is None


def test_a_member_that_could_not_leave_in_time_goes_on_as_a_new_one():
    world = Processes(BreakableStore())
    a = world.consumer(max_poll_interval_ms=10_000)
    world.settle()
    former = a.member.member_id
    world.now += 11
    world.store.broken = StoreUnavailable
    with pytest.raises(StoreUnavailable):
        a.member.stay()
    world.store.broken = None
    a.member.poll()
    assert a.member.member_id != former
    assert len(told(a, "lost")) == 1
    world.run(SESSION + 10)
    world.settle()
    assert list(world.group.members) == [a.member.member_id]


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


def test_a_member_that_commits_often_writes_few_heartbeats(monkeypatch):
    world = Processes()
    a = world.consumer()
    world.settle()
    beats = []
    monkeypatch.setattr(a.member.session._heartbeats, "beat", beats.append)
    for offset in range(60):
        a.member.commit({"t": {0: Offset(offset)}})
        world.run(1)
    assert not beats
    world.run(60)
    assert 20 <= len(beats) <= 26


@pytest.mark.on_disk("an object store has no spares")
def test_a_change_is_found_although_only_the_spare_of_its_entry_is_left():
    world = Processes()
    a, b = world.consumer(), world.consumer()
    world.settle()
    b.member.session.submit(LeaveGroup(b.member.member_id))
    world.kill(b.member)
    world.store.delete(world._log.group("g").journal.entries.keys(world.entries)[0])
    world.run(40)
    assert shares(a) == [6]


def test_nobody_expires_while_heartbeats_cannot_be_listed(monkeypatch):
    world = Processes()
    a, b = world.consumer(), world.consumer()
    world.settle()
    world.kill(b.member)
    monkeypatch.setattr(a.member.session._heartbeats, "listen", lambda: None)
    world.run(3 * SESSION)
    assert len(world.group.members) == 2
    monkeypatch.undo()
    world.settle()
    assert shares(a) == [6]


def test_an_idle_member_asks_its_store_little():
    class Counted(PlainStore):
        calls = 0

        def __getattribute__(self, name):
            if name in {"create", "create_unflushed", "delete", "exists", "list", "read"}:
                self.calls += 1
            return super().__getattribute__(name)

    world = Processes(Counted())
    for _ in range(5):
        world.consumer()
    world.settle()
    world.run(60)
    before = world.store.calls
    world.run(600)
    assert (world.store.calls - before) / 5 / 10 < 110, "four calls in each interval, and a refresh now and then"
