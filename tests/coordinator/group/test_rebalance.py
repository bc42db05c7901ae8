"""Rebalances: when they end, who is dropped, how the members vote and who leads."""

import msgspec
import pytest

from pyspark_log_coordinator.group import machine
from pyspark_log_coordinator.group.joining import ExpireMember, LeaveGroup
from pyspark_log_coordinator.group.rebalance import EndWait
from pyspark_log_coordinator.group.state import GroupState, joined_members
from tests.support.coordinator.groups import NOW, after, join, rejoin, stable, started


def complete(group):
    return after(group, EndWait(group.barriers))


def test_a_rebalance_waits_for_the_longest_rebalance_time_out():
    group = stable(join("A", rebalance_timeout_ms=7), join("B", rebalance_timeout_ms=9))
    assert after(group, rejoin("A", rebalance_timeout_ms=7)).barrier.wait_ms == 9
    assert after(group, join("C", rebalance_timeout_ms=11)).barrier.wait_ms == 11


def test_members_that_are_late_are_dropped_and_static_ones_stay_with_their_assignment():
    members = (join("A", metadata=b"mine"), join("B", instance="b"), join("C"))
    group = complete(after(stable(*members), rejoin("A", metadata=b"mine")))
    seen = {each.member_id: (each.metadata, each.away) for each in joined_members(group)}
    assert seen == {"A": (b"mine", None), "B": (b"", b"work of B")}


def test_static_members_that_are_all_away_are_waited_for():
    group = after(stable(join("A", instance="a"), join("B")), LeaveGroup("B"))
    again = complete(group)
    assert again.state is GroupState.PREPARING_REBALANCE
    assert again.barrier.number == group.barrier.number + 1


def test_a_barrier_that_was_replaced_ends_nothing():
    joining = after(started(delay=3_000), join("A"))
    outdated = EndWait(joining.barriers)
    assert machine.decide(after(joining, join("B")), outdated, NOW) == []
    assert machine.decide(complete(joining), outdated, NOW) == []
    assert machine.decide(stable(join("A")), EndWait(1), NOW) == []


def test_a_leader_that_assigns_nothing_is_dropped():
    group = after(stable(join("A"), join("B")), rejoin("A"), rejoin("B"))
    assert group.leader == "A"
    group = after(group, EndWait(group.barriers))
    assert (group.state, list(group.members)) == (GroupState.PREPARING_REBALANCE, ["B"])
    alone = after(group, rejoin("B"))
    assert alone.leader == "B"
    empty = after(alone, EndWait(alone.barriers))
    assert (empty.state, empty.generation) == (GroupState.EMPTY, 4)


def test_a_static_leader_that_assigns_nothing_keeps_its_place_and_another_member_leads():
    group = after(stable(join("A", instance="a"), join("B")), rejoin("A", instance="a"), rejoin("B"))
    former = group.members["A"]
    group = after(group, EndWait(group.barriers))
    assert (group.state, list(group.members)) == (GroupState.PREPARING_REBALANCE, ["B", "A"])
    assert group.members["A"] == msgspec.structs.replace(former, joined=False)
    away = complete(after(group, rejoin("B")))
    assert (away.leader, {each.member_id: each.away for each in joined_members(away)}) == (
        "B",
        {"B": None, "A": b"work of A"},
    )
    assert after(group, rejoin("A", instance="a"), rejoin("B")).leader == "B"
    assert after(group, rejoin("A", instance="a"), LeaveGroup("B")).leader == "A"


def test_the_first_member_that_rejoined_replaces_a_leader_that_did_not():
    group = complete(
        after(stable(join("A", instance="a"), join("B"), join("C")), rejoin("C", metadata=b"other"), rejoin("B"))
    )
    assert group.leader == "B"
    assert "A" in group.members


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


def test_the_last_member_leaves_an_empty_group():
    group = after(stable(join("A"), join("B")), LeaveGroup("A"), LeaveGroup("B"))
    assert (group.state, group.generation, group.leader, group.barrier) == (GroupState.EMPTY, 2, "", None)
    group = after(started(delay=3_000), join("A"), join("B"), LeaveGroup("A"))
    assert group.state is GroupState.PREPARING_REBALANCE
    assert after(group, LeaveGroup("B")).state is GroupState.EMPTY


def test_a_member_that_is_gone_ends_the_wait_for_it():
    group = after(stable(join("A"), join("B")), rejoin("A"))
    group = after(group, ExpireMember("B", group.members["B"].acted))
    assert (group.state, list(group.members)) == (GroupState.COMPLETING_REBALANCE, ["A"])
