"""Joining a group: new members, members that rejoin, restarted static members, and protocols that do not fit."""

import msgspec
import pytest

from pyspark_log_coordinator.group import machine
from pyspark_log_coordinator.group.joining import (
    JoinGroup,
    JoinRequest,
    JoinTogether,
    MemberJoined,
    StaticMemberReplaced,
)
from pyspark_log_coordinator.group.leaving import LeaveGroup
from pyspark_log_coordinator.group.rebalance import CompleteJoin, RebalanceExtended, RebalanceStarted
from pyspark_log_coordinator.group.state import GroupState, MemberDetails, Protocol
from pyspark_log_coordinator.group.sync import SyncGroup
from pyspark_log_storage.errors import (
    FencedInstance,
    InconsistentProtocol,
    InvalidName,
    InvalidOption,
    UnknownMember,
)
from tests.support.coordinator.groups import NOW, after, join, refusal, rejoin, stable, started


def kinds(state, command, now=NOW):
    """Return the types of the events that a command has."""
    return [type(event) for event in machine.decide(state, command, now)]


def test_the_first_member_waits_for_others():
    group = after(started(delay=3_000), join("A"))
    assert group.state is GroupState.PREPARING_REBALANCE
    assert group.barrier.wait_ms == 3_000
    assert group.protocol_type == "consumer"


def test_the_first_rebalance_waits_no_longer_than_the_rebalance_time_out():
    group = after(started(delay=3_000), join("A", rebalance_timeout_ms=5_000))
    group = after(group, join("B", rebalance_timeout_ms=5_000), now=NOW + 2_500)
    assert group.barrier.wait_ms == 2_500
    assert after(group, join("C"), now=NOW + 6_000).state is GroupState.COMPLETING_REBALANCE


def test_a_clock_that_is_behind_makes_no_wait_longer_than_the_delay():
    group = after(started(delay=3_000), join("A"))
    assert after(group, join("B"), now=NOW - 10**9).barrier.wait_ms == 3_000


def test_without_a_delay_the_first_member_begins_a_generation():
    group = after(started(), join("A"))
    assert (group.state, group.generation, group.leader) == (GroupState.COMPLETING_REBALANCE, 1, "A")


def test_a_join_that_is_submitted_twice_adds_one_member():
    group = after(started(delay=1), join("A"))
    assert machine.decide(group, join("A"), NOW) == []


def test_a_new_member_extends_only_the_first_rebalance():
    assert kinds(after(started(delay=1), join("A")), join("B")) == [RebalanceExtended, MemberJoined]
    later = after(stable(join("A"), join("B")), join("C"))
    assert kinds(later, join("D")) == [MemberJoined]


def test_a_follower_that_rejoins_with_the_same_metadata_uses_the_generation():
    group = stable(join("A"), join("B"))
    assert machine.decide(group, rejoin("B"), NOW) == []


def test_a_follower_with_other_metadata_starts_a_rebalance():
    group = stable(join("A"), join("B"))
    assert kinds(group, rejoin("B", metadata=b"other")) == [RebalanceStarted, MemberJoined]


def test_the_leader_may_start_a_rebalance_with_the_same_metadata():
    group = stable(join("A"), join("B"))
    assert kinds(group, rejoin("A")) == [RebalanceStarted, MemberJoined]


def test_a_member_that_rejoins_before_the_assignment_waits_for_it():
    group = after(stable(join("A"), join("B")), rejoin("A"), rejoin("B"))
    assert group.state is GroupState.COMPLETING_REBALANCE
    assert machine.decide(group, rejoin("A"), NOW) == []
    assert kinds(group, rejoin("B", metadata=b"other")) == [RebalanceStarted, MemberJoined]


def test_a_member_keeps_its_assignment_through_a_rebalance():
    group = after(stable(join("A"), join("B")), rejoin("A"))
    assert group.members["A"].assignment == b"work of A"


def test_a_member_that_was_removed_cannot_rejoin():
    assert "join again as a new member" in refusal(UnknownMember, stable(join("A")), rejoin("B")).message


@pytest.mark.parametrize("type_", ["connect", ""])
def test_a_member_of_another_protocol_type_is_refused(type_):
    refusal(InconsistentProtocol, stable(join("A")), join("B", protocol_type=type_))


def test_a_member_without_a_common_protocol_is_refused():
    error = refusal(InconsistentProtocol, stable(join("A", "range", "sticky"), join("B", "sticky")), join("C", "range"))
    assert "the protocols that all members support are sticky" in error.message


@pytest.mark.parametrize("names", [(), ("range", "range")])
def test_protocols_are_given_once_each(names):
    command = join("A")
    member = type(command.member)("A", tuple(command.member.protocols[0] for _ in names))
    refusal(InconsistentProtocol, started(), type(command)(member, "consumer"))


def test_an_empty_group_takes_any_protocol_type():
    group = after(stable(join("A")), machine.LeaveGroup("A"), join("B", "first", protocol_type="election"))
    group = after(group, CompleteJoin(group.barriers))
    assert (group.protocol_type, group.protocol) == ("election", "first")


@pytest.mark.parametrize("ms", [5_999, 1_800_001])
def test_the_session_time_out_is_within_the_bounds_of_the_group(ms):
    error = refusal(InvalidOption, started(), join("A", session_timeout_ms=ms))
    assert error.option == "session.timeout.ms"


@pytest.mark.parametrize("names", [("a/b", ""), ("", ""), ("A", "a/b")])
def test_member_ids_are_names(names):
    refusal(InvalidName, started(), join(names[0], instance=names[1]))


# Static members


def test_a_restarted_static_member_has_the_assignment_of_the_former_process():
    group = stable(join("A"), join("B1", instance="b"))
    group = after(group, join("B2", instance="b"))
    assert (group.state, group.generation) == (GroupState.STABLE, 1)
    assert group.members["B2"].assignment == b"work of B1"
    assert list(group.members) == ["A", "B2"]


def test_a_restarted_leader_is_the_leader():
    assert after(stable(join("A1", instance="a"), join("B")), join("A2", instance="a")).leader == "A2"


def test_a_restarted_static_member_with_other_metadata_starts_a_rebalance():
    group = stable(join("A"), join("B1", instance="b"))
    command = join("B2", instance="b", metadata=b"other")
    assert kinds(group, command) == [RebalanceStarted, StaticMemberReplaced]
    assert after(group, command).members["B2"].joined


def test_a_restarted_static_member_has_nothing_and_gets_what_it_had():
    said = tuple(Protocol("range", b"wants", state) for state in (b"has", b""))
    before, restarted = (JoinGroup(MemberDetails(f"B{n}", (each,), "b"), "consumer") for n, each in enumerate(said))
    group = after(stable(join("A"), before), restarted)
    assert (group.state, group.members["B1"].assignment) == (GroupState.STABLE, b"work of B0")
    assert kinds(
        stable(join("A"), before), msgspec.structs.replace(before, member=MemberDetails("B0", said[1:], "b"))
    ) == [
        RebalanceStarted,
        MemberJoined,
    ]


def test_a_static_member_that_restarts_before_the_assignment_starts_another_rebalance():
    group = after(stable(join("A"), join("B1", instance="b")), rejoin("A"), rejoin("B1", instance="b"))
    assert kinds(group, join("B2", instance="b")) == [RebalanceStarted, StaticMemberReplaced]


def test_a_static_member_that_restarts_during_a_rebalance_has_joined_it():
    group = after(stable(join("A"), join("B1", instance="b")), rejoin("A"), join("B2", instance="b"))
    assert group.state is GroupState.COMPLETING_REBALANCE
    assert list(group.members) == ["A", "B2"]


def test_the_former_process_is_fenced():
    group = after(stable(join("A"), join("B1", instance="b")), join("B2", instance="b"))
    error = refusal(FencedInstance, group, rejoin("B1", instance="b"))
    assert "stop this process" in error.message
    refusal(FencedInstance, group, SyncGroup("B1", 1, {}, "b"))


def test_the_last_process_that_starts_with_an_instance_id_has_the_place():
    group = after(stable(join("A"), join("B1", instance="b")), join("B2", instance="b"), join("B1", instance="b"))
    assert list(group.members) == ["A", "B1"]


def request(state, command):
    known = state.members.get(command.member.member_id)
    return JoinRequest(command, state.generation, known.acted if known else 0)


def test_who_joins_takes_others_along_and_the_result_is_that_of_their_joins_one_by_one():
    group = stable(join("A"), join("B"), join("C"))
    begun = after(group, join("D"))
    rejoins = [rejoin(name) for name in "ABC"]
    together = after(begun, JoinTogether(rejoins[0], tuple(request(begun, each) for each in rejoins[1:])))
    assert together == after(begun, *rejoins)
    assert together.state is GroupState.COMPLETING_REBALANCE


def test_new_members_begin_a_group_together():
    empty = started(delay=3_000)
    joins = [join(name) for name in "ABC"]
    group = after(empty, JoinTogether(joins[0], tuple(request(empty, each) for each in joins[1:])))
    assert list(group.members) == ["A", "B", "C"]
    assert group == after(empty, *joins)


def test_a_request_is_void_when_its_generation_is_over_or_its_member_has_acted_since():
    group = stable(join("A"), join("B"))
    begun = after(group, join("C"))
    old = request(group, rejoin("B"))
    for void in (
        msgspec.structs.replace(old, generation=0),
        msgspec.structs.replace(old, acted=old.acted - 1),
        msgspec.structs.replace(old, acted=0),
        JoinRequest(join("D"), begun.generation, 5),
    ):
        found = after(begun, JoinTogether(rejoin("A"), (void,)))
        assert found == after(begun, rejoin("A"))


def test_a_request_of_a_member_that_was_removed_does_not_bring_it_back():
    group = stable(join("A"), join("B"), join("C"))
    asked = request(group, rejoin("B"))
    left = after(group, LeaveGroup("B"))
    assert "B" not in after(left, JoinTogether(rejoin("A"), (asked,))).members


def test_a_new_static_member_joins_only_by_its_own_entry():
    # Its process may be dead, and a younger one may have the place by now.
    begun = after(stable(join("A"), join("B1", instance="b")), join("C"))
    asked = request(begun, join("B2", instance="b"))
    assert after(begun, JoinTogether(rejoin("A"), (asked,))) == after(begun, rejoin("A"))
    assert "B2" in after(begun, join("B2", instance="b")).members


def test_a_request_that_is_refused_does_not_stop_the_others_and_ones_own_does():
    group = stable(join("A"), join("B"))
    begun = after(group, join("C"))
    foreign, right = request(begun, join("D", protocol_type="connect")), request(begun, rejoin("B"))
    found = after(begun, JoinTogether(rejoin("A"), (foreign, right)))
    assert found == after(begun, rejoin("A"), rejoin("B"))
    assert refusal(InconsistentProtocol, begun, JoinTogether(foreign.join, (right,)))
