"""Assignments, and how members leave, expire and are removed by administrators."""

import pytest

from pyspark_log_coordinator.group import machine
from pyspark_log_coordinator.group.leaving import ExpireMember, LeaveGroup
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_coordinator.group.sync import SyncGroup, WorkAssigned
from pyspark_log_storage.errors import FencedInstance, IllegalGeneration, RebalanceInProgress, UnknownMember
from tests.support.coordinator.groups import NOW, after, commit, join, refusal, rejoin, stable


def completing():
    """Return a group of A and B in generation 2, which A has to assign."""
    return after(stable(join("A"), join("B")), rejoin("A"), rejoin("B"))


def test_the_leader_assigns_the_work():
    group = after(completing(), SyncGroup("A", 2, {"A": b"1", "B": b"2"}))
    assert group.state is GroupState.STABLE
    assert {name: each.assignment for name, each in group.members.items()} == {"A": b"1", "B": b"2"}


def test_whoever_is_left_out_has_nothing():
    group = after(completing(), SyncGroup("A", 2, {"A": b"1", "C": b"no member"}))
    assert {name: each.assignment for name, each in group.members.items()} == {"A": b"1", "B": b""}


def test_a_follower_waits_without_an_entry():
    assert machine.decide(completing(), SyncGroup("B", 2, {"B": b"mine"}), NOW) == []


def test_an_assignment_is_made_once():
    assert machine.decide(stable(join("A")), SyncGroup("A", 1, {"A": b"other"}), NOW) == []


def test_an_assignment_of_another_generation_is_refused():
    error = refusal(IllegalGeneration, completing(), SyncGroup("A", 1, {}))
    assert (error.group, error.member, error.generation) == ("g", "A", 1)


def test_an_assignment_during_a_rebalance_is_refused():
    group = after(stable(join("A"), join("B")), rejoin("B", metadata=b"other"))
    assert not refusal(RebalanceInProgress, group, SyncGroup("A", 1, {})).message.endswith(".")


def test_work_of_somebody_who_is_no_member_is_impossible():
    with pytest.raises(ValueError, match="not a member"):
        machine.evolve(completing(), WorkAssigned({"C": b""}))


def test_a_member_leaves_and_the_others_rebalance():
    group = after(stable(join("A"), join("B")), LeaveGroup("A"))
    assert (group.state, list(group.members)) == (GroupState.PREPARING_REBALANCE, ["B"])


def test_somebody_who_is_no_member_cannot_leave():
    refusal(UnknownMember, stable(join("A")), LeaveGroup("B"))
    refusal(UnknownMember, stable(join("A")), LeaveGroup(instance_id="b"))
    refusal(UnknownMember, stable(join("A")), LeaveGroup())


def test_an_administrator_removes_a_static_member_by_its_instance_id():
    group = after(stable(join("A"), join("B1", instance="b")), LeaveGroup(instance_id="b"))
    assert list(group.members) == ["A"]


def test_a_fenced_process_does_not_remove_its_successor():
    group = after(stable(join("A"), join("B1", instance="b")), join("B2", instance="b"))
    refusal(FencedInstance, group, LeaveGroup("B1", "b"))


def test_a_silent_member_expires():
    group = stable(join("A"), join("B"))
    group = after(group, ExpireMember("B", group.members["B"].acted))
    assert list(group.members) == ["A"]


@pytest.mark.parametrize("action", [commit(1, "B", 1), rejoin("B", metadata=b"other")], ids=["a commit", "a join"])
def test_an_action_is_a_heartbeat(action):
    group = stable(join("A"), join("B"))
    outdated = ExpireMember("B", group.members["B"].acted)
    assert machine.decide(after(group, action), outdated, NOW) == []


def test_an_assignment_is_a_heartbeat_of_the_leader():
    group = completing()
    outdated = ExpireMember("A", group.members["A"].acted)
    assert machine.decide(after(group, SyncGroup("A", 2, {})), outdated, NOW) == []


def test_an_expiry_does_not_hit_a_later_member_of_the_same_id():
    group = stable(join("A"), join("B"))
    outdated = ExpireMember("B", group.members["B"].acted)
    group = after(group, outdated, join("B"))
    assert machine.decide(group, outdated, NOW) == []


def test_a_member_that_is_gone_does_not_expire_again():
    assert machine.decide(stable(join("A")), ExpireMember("B", 1), NOW) == []
