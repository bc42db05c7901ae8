"""Rebalances: how long they wait, how the members vote, and what counts as a heartbeat."""

import pytest

from pyspark_log_coordinator.group import machine
from pyspark_log_coordinator.group.joining import ExpireMember
from pyspark_log_coordinator.group.rebalance import SyncGroup, WorkAssigned
from tests.support.coordinator.groups import NOW, after, commit, join, rejoin, stable


def test_a_rebalance_waits_for_the_longest_rebalance_time_out():
    group = stable(join("A", rebalance_timeout_ms=7), join("B", rebalance_timeout_ms=9))
    assert after(group, rejoin("A", rebalance_timeout_ms=7)).barrier.wait_ms == 9
    assert after(group, join("C", rebalance_timeout_ms=11)).barrier.wait_ms == 11


@pytest.mark.parametrize(
    ("protocols", "chosen"),
    [
        ((("range", "sticky"), ("sticky", "range"), ("sticky", "range")), "sticky"),
        ((("sticky", "range"), ("sticky", "range"), ("range",)), "range"),  # all must support it
        ((("sticky", "range"), ("range", "sticky")), "sticky"),  # the earliest member decides a tie
    ],
)
def test_the_protocol_that_most_members_prefer_is_chosen(protocols, chosen):
    assert stable(*(join(name, *of) for name, of in zip("ABC", protocols, strict=False))).protocol == chosen


def completing():
    """Return a group of A and B in generation 2, which A has to assign."""
    return after(stable(join("A"), join("B")), rejoin("A"), rejoin("B"))


def test_work_of_somebody_who_is_no_member_is_impossible():
    with pytest.raises(ValueError, match="not a member"):
        machine.evolve(completing(), WorkAssigned({"C": b""}))


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
