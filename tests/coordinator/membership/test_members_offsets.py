"""What members commit, and rewinds: no commit undoes a rewind."""

import pytest

from pyspark_log_coordinator.group.leaving import ExpireMember
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit, ResetOffsets
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_storage.errors import (
    IllegalGeneration,
    UnknownMember,
)
from tests.support.coordinator.members import COOPERATIVE, Processes


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


def test_a_simple_consumer_may_commit_only_while_there_are_no_members():
    world = Processes()
    command = OffsetCommit({"t": {0: Offset(4)}})
    world._log.group("g").submit(command)
    a = world.consumer()
    world.settle()
    assert a.positions[min(a.positions)] == 4
    with pytest.raises(UnknownMember, match="has members"):
        world._log.group("g").submit(OffsetCommit({"t": {0: Offset(5)}}))


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
