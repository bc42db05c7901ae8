"""Members of a group: several processes with one clock, and what each of them has."""

import pytest

from pyspark_log_coordinator.group.offsets import Offset
from pyspark_log_coordinator.group.rebalance import EndWait
from pyspark_log_storage.errors import (
    UnknownMember,
)
from tests.support.coordinator.members import COOPERATIVE, SESSION, Processes, numbers, shares, told


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


def test_a_member_that_failed_as_it_gave_something_up_joins_again_so_that_others_get_it():
    world = Processes()
    a = world.consumer(COOPERATIVE)
    world.settle()

    def fail(added, group):
        del a.assigned
        raise KeyboardInterrupt

    a.assigned = fail
    b = world.consumer(COOPERATIVE)
    with pytest.raises(KeyboardInterrupt):
        world.settle()
    world.settle()
    assert shares(a, b) == [3, 3]


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


def test_a_member_that_was_suspended_has_lost_everything_cannot_commit_and_joins_again():
    world = Processes()
    a, b = world.consumer(), world.consumer()
    world.settle()
    world.kill(b.member)
    world.settle()
    former = b.member.member_id
    with pytest.raises(UnknownMember, match=former):
        b.member.commit({"t": {0: Offset(1)}})
    assert b.member.session.silence() > SESSION
    world.running.append(b.member)
    world.settle()
    assert len(told(b, "lost")) == 1
    assert b.member.member_id != former
    assert shares(a, b) == [3, 3]
    assert told(a, "lost") == []


def test_a_static_member_that_missed_a_rebalance_reads_again_from_the_committed_offsets():
    world = Processes()
    a, b = (world.consumer(COOPERATIVE, instance_id=name) for name in "ab")
    world.settle()
    b.positions = dict.fromkeys(b.positions, 50)
    had = numbers(b)
    world.kill(b.member)
    c = world.consumer(COOPERATIVE)
    world.run(4)
    a.member.session.submit(EndWait(world.group.barrier.number))
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
