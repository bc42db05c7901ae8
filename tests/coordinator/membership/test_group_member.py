"""Members of a group: several processes with one clock, and what each of them has."""

import pytest

from pyspark_log_coordinator.group.leaving import ExpireMember, LeaveGroup
from pyspark_log_coordinator.group.lifecycle import DeleteGroup
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit, ResetOffsets
from pyspark_log_coordinator.group.rebalance import CompleteJoin
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_coordinator.maintenance.group_cleanup import clean_up_groups
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    FencedInstance,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidOption,
    StoreUnavailable,
    UnknownMember,
)
from tests.coordinator.breakable_store import BreakableStore
from tests.coordinator.members import COOPERATIVE, Election, Killed, Processes
from tests.memory_store import MemoryStore

SESSION = 45.0


def numbers(consumer):
    return sorted(each.partition for each in consumer.positions)


def shares(*consumers):
    """The partitions of each, which are all, each once."""
    found = [numbers(each) for each in consumers]
    assert sorted(number for each in found for number in each) == list(range(6))
    return [len(each) for each in found]


def die(_):
    raise Killed


def told(consumer, what):
    return [[each.partition for each in given] for word, given in consumer.notes if word == what]


@pytest.fixture(params=[("range",), COOPERATIVE], ids=["eager", "cooperative"])
def strategies(request):
    return request.param


def test_members_share_the_partitions_as_they_come_and_go(strategies):
    world = Processes()
    a, b, c = (world.consumer(strategies) for _ in range(3))
    world.settle()
    assert shares(a, b, c) == [2, 2, 2]
    world.leave(b.member)
    world.settle()
    assert shares(a, c) == [3, 3]
    world.leave(a.member)
    world.settle()
    assert shares(c) == [6]


def test_eager_members_give_up_everything_in_a_rebalance_and_cooperative_ones_only_what_moves():
    for strategies, revoked in ((("range",), [[0, 1, 2, 3, 4, 5]]), (COOPERATIVE, [[3, 4, 5]])):
        world = Processes()
        a = world.consumer(strategies)
        world.settle()
        b = world.consumer(strategies)
        world.settle()
        assert shares(a, b) == [3, 3]
        assert told(a, "revoked") == revoked
        assert not told(a, "lost")


def test_a_partition_goes_on_at_the_offset_that_its_former_owner_has_committed(strategies):
    world = Processes()
    a = world.consumer(strategies)
    world.settle()
    a.positions = {each: 10 + each.partition for each in a.positions}
    b = world.consumer(strategies)
    world.settle()
    assert {each.partition: offset for each, offset in (a.positions | b.positions).items()} == {
        number: 10 + number for number in range(6)
    }


def test_a_killed_member_is_expired_after_its_session_and_its_partitions_go_on(strategies):
    world = Processes()
    a, b = world.consumer(strategies), world.consumer(strategies)
    world.settle()
    b.member.commit({"t": {each.partition: Offset(7) for each in b.positions}})
    gone = numbers(b)
    world.kill(b.member)
    world.run(SESSION - 3)
    assert len(world.group.members) == 2
    world.settle()
    assert shares(a) == [6]
    assert {offset for each, offset in a.positions.items() if each.partition in gone} == {7}


def test_a_leader_that_is_killed_in_a_rebalance_is_replaced(strategies):
    world = Processes()
    a, b = world.consumer(strategies), world.consumer(strategies)
    world.settle()
    c = world.consumer(strategies)
    leader, other = (a, b) if world.group.leader == a.member.member_id else (b, a)
    leader.member._assign = die
    while leader.member in world.running:
        world.run(0.05)
    assert world.group.state is GroupState.COMPLETING_REBALANCE
    world.settle()
    assert shares(other, c) == [3, 3]


def test_a_member_that_was_suspended_has_lost_everything_cannot_commit_and_joins_again():
    world = Processes()
    a, b = world.consumer(), world.consumer()
    world.settle()
    world.kill(b.member)
    world.settle()
    former = b.member.member_id
    with pytest.raises(UnknownMember, match=former):
        b.member.commit({"t": {0: Offset(1)}})
    assert b.member.silence() > SESSION
    world.running.append(b.member)
    world.settle()
    assert len(told(b, "lost")) == 1
    assert b.member.member_id != former
    assert shares(a, b) == [3, 3]
    assert told(a, "lost") == []


def test_a_commit_for_a_generation_that_is_over_is_refused_and_the_member_goes_on():
    world = Processes()
    a, b = world.consumer(), world.consumer()
    world.settle()
    b.member.session.submit(ExpireMember(a.member.member_id, world.group.members[a.member.member_id].acted))
    world.kill(a.member)
    world.settle()
    generation = b.member.generation
    b.member._standing = b.member._standing.__class__(b.member.member_id, "", True, generation - 1)
    with pytest.raises(IllegalGeneration):
        b.member.commit({"t": {0: Offset(1)}})
    world.settle()
    b.member.commit({"t": {0: Offset(1)}})


def rolling_restart(static):
    """How many generations and entries of rebalances three members cost that restart one after another."""
    world = Processes()
    consumers = [world.consumer(instance_id=f"i{number}" if static else "") for number in range(3)]
    world.settle()
    before = world.group.generation
    for index, each in enumerate(consumers):
        had = numbers(each)
        world.leave(each.member)
        world.run(10)
        consumers[index] = world.consumer(instance_id=f"i{index}" if static else "")
        world.settle()
        if static:
            assert numbers(consumers[index]) == had
    shares(*consumers)
    return world.group.generation - before


def test_a_rolling_restart_of_three_static_members_causes_no_rebalance_and_without_that_six():
    assert rolling_restart(static=True) == 0
    assert rolling_restart(static=False) == 6


def test_a_static_member_whose_place_is_taken_is_fenced_for_good():
    world = Processes()
    first = world.consumer(instance_id="i")
    world.settle()
    world.kill(first.member)
    second = world.consumer(instance_id="i")
    world.settle()
    world.now += 3
    for _ in range(2):
        with pytest.raises(FencedInstance, match=r"belongs to member 'i-.*stop this process"):
            first.member.poll()
    with pytest.raises(FencedInstance):
        first.member.commit({"t": {0: Offset(1)}})
    assert first.positions == {}
    assert shares(second) == [6]


def test_a_static_member_that_missed_a_rebalance_reads_again_from_the_committed_offsets():
    world = Processes()
    a, b = (world.consumer(COOPERATIVE, instance_id=name) for name in "ab")
    world.settle()
    b.positions = dict.fromkeys(b.positions, 50)
    had = numbers(b)
    world.kill(b.member)
    c = world.consumer(COOPERATIVE)
    world.run(4)
    a.member.session.submit(CompleteJoin(world.group.barrier.number))
    world.run(1)
    assert b.member.member_id in world.group.members
    world.running.append(b.member)
    world.settle()
    assert told(b, "lost") == [had]
    assert set(b.positions.values()) == {0}
    assert shares(a, b, c) == [2, 2, 2]


def test_members_rejoin_when_a_topic_gets_partitions_and_when_they_want_other_topics(strategies):
    world = Processes(partitions={"t": 6, "u": 2})
    a, b = world.consumer(strategies, ["t"]), world.consumer(strategies, ["t"])
    world.settle()
    world.topics["t"] = 8
    world.run(10)
    world.settle()
    assert sorted(numbers(a) + numbers(b)) == list(range(8))
    b.wanted = ("u",)
    world.run(10)
    world.settle()
    assert numbers(a) == list(range(8))
    assert {each.topic for each in b.positions} == {"u"}


def test_a_new_leader_that_has_assigned_nothing_yet_notices_new_partitions_too():
    world = Processes()
    world.consumer(instance_id="a"), world.consumer(instance_id="b")
    world.settle()
    leader = next(each for each in world.running if each.member_id == world.group.leader)
    instance = leader._settings.instance_id
    world.kill(leader)
    world.consumer(instance_id=instance)
    world.settle()
    world.topics["t"] = 7
    before = world.group.generation
    world.run(10)
    world.settle()
    assert world.group.generation == before + 1


def test_the_first_rebalance_of_a_group_waits_for_more_members():
    world = Processes(delay_ms=3000)
    a, b = world.consumer(), world.consumer()
    assert world.settle() >= 3
    assert world.group.generation == 1
    assert shares(a, b) == [3, 3]


def test_an_idle_group_makes_no_entries():
    world = Processes()
    for _ in range(3):
        world.consumer()
    world.settle()
    before = world.entries
    world.run(3600)
    assert world.entries == before


def test_rewinds_of_a_running_group_are_taken_up_and_not_undone(strategies):
    world = Processes()
    a = world.consumer(strategies)
    world.settle()
    a.positions = dict.fromkeys(a.positions, 50)
    a.member.session.submit(ResetOffsets({"t": {2: Offset(5)}}, running=True))
    world.run(5)
    assert ("rewound", 0) in a.notes
    assert a.member.rewinds == 1
    b = world.consumer(strategies)
    world.settle()
    assert {offset for each, offset in (a.positions | b.positions).items() if each.partition == 2} == {5}


def test_a_deleted_group_starts_again():
    world = Processes()
    a = world.consumer()
    world.settle()
    world.leave(a.member)
    a.member.session.submit(DeleteGroup())
    b = world.consumer()
    world.settle()
    assert shares(b) == [6]


def test_a_member_that_its_group_cannot_have_is_told_why():
    world = Processes()
    world.consumer()
    world.settle()
    with pytest.raises(InconsistentProtocol, match=r"partition.assignment.strategy"):
        world.consumer(COOPERATIVE).member.poll()
    with pytest.raises(InvalidOption, match=r"session.timeout.ms=5 .* is not from 6000"):
        world.consumer(session_timeout_ms=5).member.poll()


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


def test_a_join_whose_answer_was_lost_is_no_second_member():
    world = Processes()
    a = world.consumer()
    submit = a.member.session.submit

    def lose_answer(command):
        a.member.session.submit = submit
        submit(command)
        raise StoreUnavailable("", "", "the answer was lost")

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


def test_an_election_has_one_winner_in_each_term_and_another_one_when_it_dies():
    world = Processes()
    candidates = {world.start(each): each for each in (Election() for _ in range(3))}
    world.settle()
    (winner,) = [member for member, each in candidates.items() if each.is_elected]
    world.kill(winner)
    with pytest.raises(InconsistentProtocol):
        world.consumer().member.poll()
    world.running.pop()
    world.run(SESSION)
    world.settle()
    (second,) = [member for member in world.running if candidates[member].is_elected]
    terms = [term for each in candidates.values() for term in each.terms]
    assert len(terms) == len(set(terms))
    world.run(1)
    winner.poll()
    assert not candidates[winner].is_elected, "it learns that it was removed before it acts"
    assert candidates[second].is_elected


def test_a_simple_consumer_may_commit_only_while_there_are_no_members():
    world = Processes()
    command = OffsetCommit({"t": {0: Offset(4)}})
    world._log.group("g").submit(command)
    a = world.consumer()
    world.settle()
    assert a.positions[min(a.positions)] == 4
    with pytest.raises(UnknownMember, match="has members"):
        world._log.group("g").submit(OffsetCommit({"t": {0: Offset(5)}}))


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


def test_a_rewind_that_comes_with_a_rebalance_is_not_undone_by_it():
    world = Processes()
    a = world.consumer(COOPERATIVE)
    world.settle()
    a.positions = dict.fromkeys(a.positions, 50)
    world._log.group("g").submit(ResetOffsets({"t": {number: Offset(5) for number in range(6)}}, running=True))
    b = world.consumer(COOPERATIVE)
    b.member.poll()
    assert world.group.state is GroupState.PREPARING_REBALANCE, "it notices both together"
    world.settle()
    assert set((a.positions | b.positions).values()) == {5}


def test_a_rewind_is_taken_up_by_a_member_that_was_taken_along_and_finds_out_when_it_joins():
    world = Processes()
    a = world.consumer(COOPERATIVE)
    b = world.consumer(COOPERATIVE)
    world.settle()
    b.positions = dict.fromkeys(b.positions, 50)
    submit, generation = b.member.session.submit, b.member.generation

    def submit_after_others(command):
        b.member.session.submit = submit
        world.kill(b.member)
        a.member.rejoin()
        world.run(5)
        assert world.group.state is GroupState.STABLE
        assert world.group.generation == generation + 1
        world._log.group("g").submit(ResetOffsets({"t": {number: Offset(5) for number in range(6)}}, running=True))
        world.running.append(b.member)
        return submit(command)

    b.member.session.submit = submit_after_others
    b.member.rejoin()
    world.settle()
    assert b.member.rewinds == 1
    assert len(b.positions) == 3
    assert set(b.positions.values()) == {5}


def test_a_static_member_that_missed_a_rebalance_and_finds_out_when_it_joins_has_lost_what_it_had():
    world = Processes()
    a = world.consumer(COOPERATIVE)
    b = world.consumer(COOPERATIVE, instance_id="i", session_timeout_ms=1_800_000)
    world.settle()
    submit, generation = b.member.session.submit, b.member.generation

    def submit_after_others(command):
        b.member.session.submit = submit
        b.member.session.withdraw(b.member.member_id)
        world.kill(b.member)
        a.member.rejoin()
        world.run(400)
        assert world.group.state is GroupState.STABLE
        assert world.group.generation == generation + 1
        world.running.append(b.member)
        return submit(command)

    b.member.session.submit = submit_after_others
    b.member.rejoin()
    world.settle()
    assert told(b, "lost")


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


def test_partitions_of_topics_that_a_cooperative_member_does_not_want_any_more_are_free_at_once():
    world = Processes(partitions={"t": 6, "u": 2})
    a, b = world.consumer(COOPERATIVE, ["t"]), world.consumer(COOPERATIVE, ["t"])
    world.settle()
    before = world.group.generation
    b.wanted = ("u",)
    b.member.rejoin()
    world.settle()
    assert world.group.generation == before + 1
    assert numbers(a) == list(range(6))


def test_eager_sticky_members_get_back_what_they_gave_up():
    world = Processes()
    a, b = world.consumer(("sticky",)), world.consumer(("sticky",))
    world.settle()
    had = numbers(a), numbers(b)
    world.consumer(("sticky",))
    world.settle()
    assert set(numbers(a)) < set(had[0])
    assert set(numbers(b)) < set(had[1])
    assert told(a, "revoked") != []


def test_a_member_that_joins_again_without_news_keeps_its_partitions(strategies):
    world = Processes()
    a, b = world.consumer(strategies), world.consumer(strategies)
    world.settle()
    before = world.group.generation
    follower = b if world.group.leader == a.member.member_id else a
    follower.member.rejoin()
    world.settle()
    assert shares(a, b) == [3, 3]
    if strategies != COOPERATIVE:  # else it says what it owns by now
        assert world.group.generation == before


def test_an_idle_member_asks_its_store_little():
    class Counted(MemoryStore):
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
