"""Rebalances: when they end, who is dropped, how the members vote and who leads."""

import msgspec

from pyspark_log_coordinator.group import machine
from pyspark_log_coordinator.group.joining import JoinGroup
from pyspark_log_coordinator.group.leaving import ExpireMember, LeaveGroup
from pyspark_log_coordinator.group.rebalance import CompleteJoin, ExpireSync
from pyspark_log_coordinator.group.state import GroupState, joined_members
from tests.support.coordinator.groups import NOW, after, join, rejoin, stable, started


def complete(group):
    return after(group, CompleteJoin(group.barriers))


def test_a_rebalance_ends_when_all_members_have_rejoined():
    group = after(stable(join("A"), join("B")), rejoin("A"))
    assert group.state is GroupState.PREPARING_REBALANCE
    group = after(group, rejoin("B"))
    assert (group.state, group.generation) == (GroupState.COMPLETING_REBALANCE, 2)


def test_a_rebalance_waits_for_the_longest_rebalance_time_out():
    group = stable(join("A", rebalance_timeout_ms=7), join("B", rebalance_timeout_ms=9))
    assert after(group, rejoin("A", rebalance_timeout_ms=7)).barrier.wait_ms == 9
    assert after(group, join("C", rebalance_timeout_ms=11)).barrier.wait_ms == 11


def test_members_that_are_late_are_dropped():
    group = complete(after(stable(join("A"), join("B"), join("C")), rejoin("A")))
    assert list(group.members) == ["A"]


def test_static_members_that_are_late_stay_with_their_assignment():
    group = complete(after(stable(join("A"), join("B", instance="b")), rejoin("A")))
    away = {each.member_id: each.away for each in joined_members(group)}
    assert away == {"A": None, "B": b"work of B"}


def test_static_members_that_are_all_away_are_waited_for():
    group = after(stable(join("A", instance="a"), join("B")), LeaveGroup("B"))
    again = complete(group)
    assert again.state is GroupState.PREPARING_REBALANCE
    assert again.barrier.number == group.barrier.number + 1


def test_a_barrier_that_was_replaced_ends_nothing():
    group = after(started(delay=3_000), join("A"))
    outdated = CompleteJoin(group.barriers)
    assert machine.decide(after(group, join("B")), outdated, NOW) == []
    assert machine.decide(stable(join("A")), CompleteJoin(1), NOW) == []


def test_each_end_has_its_command():
    joining = after(started(delay=3_000), join("A"))
    assert machine.decide(joining, ExpireSync(joining.barriers), NOW) == []
    syncing = complete(joining)
    assert machine.decide(syncing, CompleteJoin(syncing.barriers), NOW) == []


def test_a_leader_that_assigns_nothing_is_dropped():
    group = after(stable(join("A"), join("B")), rejoin("A"), rejoin("B"))
    group = after(group, ExpireSync(group.barriers))
    assert (group.state, list(group.members)) == (GroupState.PREPARING_REBALANCE, ["B"])
    assert after(group, rejoin("B")).leader == "B"


def test_a_leader_without_followers_that_assigns_nothing_leaves_the_group_empty():
    group = after(started(), join("A"))
    group = after(group, ExpireSync(group.barriers))
    assert (group.state, group.generation) == (GroupState.EMPTY, 2)


def test_a_static_leader_that_assigns_nothing_keeps_its_place_and_another_member_leads():
    group = after(stable(join("A", instance="a"), join("B")), rejoin("A", instance="a"), rejoin("B"))
    former = group.members["A"]
    group = after(group, ExpireSync(group.barriers))
    assert (group.state, list(group.members)) == (GroupState.PREPARING_REBALANCE, ["B", "A"])
    assert group.members["A"] == msgspec.structs.replace(former, joined=False)
    away = complete(after(group, rejoin("B")))
    assert (away.leader, {each.member_id: each.away for each in joined_members(away)}) == (
        "B",
        {"B": None, "A": b"work of A"},
    )
    assert after(group, rejoin("A", instance="a"), rejoin("B")).leader == "B"
    assert complete(after(group, rejoin("A", instance="a"), LeaveGroup("B"))).leader == "A"


def test_the_leader_stays_if_it_rejoins():
    group = after(stable(join("A"), join("B")), rejoin("B"), rejoin("A"))
    assert group.leader == "A"


def test_the_first_member_that_rejoined_replaces_a_leader_that_did_not():
    group = complete(
        after(stable(join("A", instance="a"), join("B"), join("C")), rejoin("C", metadata=b"other"), rejoin("B"))
    )
    assert group.leader == "B"
    assert "A" in group.members


def test_the_protocol_that_most_members_prefer_is_chosen():
    joins = (join("A", "range", "sticky"), join("B", "sticky", "range"), join("C", "sticky", "range"))
    assert stable(*joins).protocol == "sticky"


def test_a_protocol_that_one_member_does_not_support_gets_no_votes():
    joins = (join("A", "sticky", "range"), join("B", "sticky", "range"), join("C", "range"))
    assert stable(*joins).protocol == "range"


def test_the_earliest_member_decides_a_tie():
    assert stable(join("A", "sticky", "range"), join("B", "range", "sticky")).protocol == "sticky"


def test_the_last_member_leaves_an_empty_group():
    group = after(stable(join("A"), join("B")), LeaveGroup("A"), LeaveGroup("B"))
    assert (group.state, group.generation, group.leader, group.barrier) == (GroupState.EMPTY, 2, "", None)


def test_a_first_rebalance_whose_members_all_left_is_over():
    group = after(started(delay=3_000), join("A"), join("B"), LeaveGroup("A"))
    assert group.state is GroupState.PREPARING_REBALANCE
    assert after(group, LeaveGroup("B")).state is GroupState.EMPTY


def test_a_member_that_is_gone_ends_the_wait_for_it():
    group = after(stable(join("A"), join("B")), rejoin("A"))
    group = after(group, ExpireMember("B", group.members["B"].acted))
    assert (group.state, list(group.members)) == (GroupState.COMPLETING_REBALANCE, ["A"])


def test_metadata_of_the_chosen_protocol_goes_to_the_leader():
    member = join("A", "sticky", metadata=b"mine")
    assert isinstance(member, JoinGroup)
    (seen,) = joined_members(stable(member))
    assert (seen.member_id, seen.metadata) == ("A", b"mine")
