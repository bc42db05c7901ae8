"""Assignments, and how members leave, expire and are removed by administrators."""

import pytest

from pyspark_log_coordinator.group import machine
from pyspark_log_coordinator.group.joining import ExpireMember, LeaveGroup
from pyspark_log_coordinator.group.rebalance import SyncGroup, WorkAssigned
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_storage.errors import FencedInstance, IllegalGeneration, RebalanceInProgress, UnknownMember
from tests.support.coordinator.groups import NOW, after, commit, join, refusal, rejoin, stable


def completing():
    """Return a group of A and B in generation 2, which A has to assign."""
    return after(stable(join("A"), join("B")), rejoin("A"), rejoin("B"))


def test_the_leader_assigns_the_work_and_whoever_is_left_out_has_nothing():
    assert machine.decide(completing(), SyncGroup("B", 2, {"B": b"mine"}), NOW) == [], "a follower waits"
    group = after(completing(), SyncGroup("A", 2, {"A": b"1", "C": b"no member"}))
    assert group.state is GroupState.STABLE
    assert {name: each.assignment for name, each in group.members.items()} == {"A": b"1", "B": b""}


def test_an_assignment_is_made_once_in_its_generation():
    assert machine.decide(stable(join("A")), SyncGroup("A", 1, {"A": b"other"}), NOW) == []
    error = refusal(IllegalGeneration, completing(), SyncGroup("A", 1, {}))
    assert (error.group, error.member, error.generation) == ("g", "A", 1)
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


def test_an_administrator_removes_a_static_member_by_its_instance_id_and_a_fenced_process_does_not():
    group = after(stable(join("A"), join("B1", instance="b")), LeaveGroup(instance_id="b"))
    assert list(group.members) == ["A"]
    group = after(stable(join("A"), join("B1", instance="b")), join("B2", instance="b"))
    refusal(FencedInstance, group, LeaveGroup("B1", "b"))


@pytest.mark.parametrize(
    ("group", "name", "action"),
    [
        (stable(join("A"), join("B")), "B", commit(1, "B", 1)),
        (stable(join("A"), join("B")), "B", rejoin("B", metadata=b"other")),
        (completing(), "A", SyncGroup("A", 2, {})),
    ],
    ids=["a commit", "a join", "an assignment"],
)
def test_an_action_is_a_heartbeat(group, name, action):
    outdated = ExpireMember(name, group.members[name].acted)
    assert machine.decide(after(group, action), outdated, NOW) == []
    assert name not in after(group, outdated).members


def test_an_expiry_does_not_hit_a_later_member_of_the_same_id():
    group = stable(join("A"), join("B"))
    outdated = ExpireMember("B", group.members["B"].acted)
    gone = after(group, outdated)
    assert machine.decide(gone, outdated, NOW) == []
    assert machine.decide(after(gone, join("B")), outdated, NOW) == []
