"""Joining a group: new members, members that rejoin, restarted static members, and protocols that do not fit."""

import msgspec
import pytest

from pyspark_log_coordinator.group import machine
from pyspark_log_coordinator.group.joining import (
    JoinGroup,
    LeaveGroup,
    MemberJoined,
    StaticMemberReplaced,
)
from pyspark_log_coordinator.group.rebalance import EndWait, RebalanceExtended, RebalanceStarted, SyncGroup
from pyspark_log_coordinator.group.state import GroupState, MemberDetails, Protocol
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


def test_the_first_member_waits_for_others_no_longer_than_the_rebalance_time_out():
    group = after(started(delay=3_000), join("A", rebalance_timeout_ms=5_000))
    assert (group.state, group.protocol_type) == (GroupState.PREPARING_REBALANCE, "consumer")
    assert group.barrier.wait_ms == 3_000
    assert machine.decide(group, join("A"), NOW) == [], "submitted twice"
    assert after(group, join("B"), now=NOW - 10**9).barrier.wait_ms == 3_000, "of a clock that is behind"
    group = after(group, join("B", rebalance_timeout_ms=5_000), now=NOW + 2_500)
    assert group.barrier.wait_ms == 2_500
    assert after(group, join("C"), now=NOW + 6_000).state is GroupState.COMPLETING_REBALANCE
    group = after(started(), join("A"))
    assert (group.state, group.generation, group.leader) == (GroupState.COMPLETING_REBALANCE, 1, "A")


def test_a_new_member_extends_only_the_first_rebalance():
    assert kinds(after(started(delay=1), join("A")), join("B")) == [RebalanceExtended, MemberJoined]
    later = after(stable(join("A"), join("B")), join("C"))
    assert kinds(later, join("D")) == [MemberJoined]


def test_a_member_that_rejoins_starts_a_rebalance_if_it_leads_or_has_changed():
    group = stable(join("A"), join("B"))
    assert machine.decide(group, rejoin("B"), NOW) == []
    assert kinds(group, rejoin("B", metadata=b"other")) == [RebalanceStarted, MemberJoined]
    assert kinds(group, rejoin("A")) == [RebalanceStarted, MemberJoined]
    patient = machine.decide(group, rejoin("A", rebalance_timeout_ms=10**7), NOW)
    assert patient[0] == RebalanceStarted(10**7), "the others have as much time as the one that asks for most"
    begun = after(group, rejoin("A"))
    assert begun.members["A"].assignment == b"work of A"
    group = after(begun, rejoin("B"))
    assert group.state is GroupState.COMPLETING_REBALANCE
    assert machine.decide(group, rejoin("A"), NOW) == [], "it waits for the assignment"
    assert kinds(group, rejoin("B", metadata=b"other")) == [RebalanceStarted, MemberJoined]
    assert "join again as a new member" in refusal(UnknownMember, stable(join("A")), rejoin("B")).message


def test_a_member_without_a_common_protocol_is_refused():
    group = stable(join("A", "range", "sticky"), join("B", "sticky"))
    error = refusal(InconsistentProtocol, group, join("C", "range"))
    assert "the protocols that all members support are sticky" in error.message
    for type_ in ("connect", ""):
        refusal(InconsistentProtocol, group, join("C", "sticky", protocol_type=type_))
    command = join("A")
    for protocols in ((), command.member.protocols * 2):
        member = msgspec.structs.replace(command.member, protocols=protocols)
        refusal(InconsistentProtocol, started(), msgspec.structs.replace(command, member=member))
    group = after(stable(join("A")), LeaveGroup("A"), join("B", "first", protocol_type="election"))
    group = after(group, EndWait(group.barriers))
    assert (group.protocol_type, group.protocol) == ("election", "first"), "an empty group takes any"


def test_the_session_time_out_is_within_the_bounds_of_the_group_and_ids_are_names():
    for ms in (5_999, 1_800_001):
        error = refusal(InvalidOption, started(), join("A", session_timeout_ms=ms))
        assert error.option == "session.timeout.ms"
    for name, instance in (("a/b", ""), ("", ""), ("A", "a/b")):
        refusal(InvalidName, started(), join(name, instance=instance))


# Static members


def test_a_restarted_static_member_has_the_place_and_the_assignment_of_the_former_process():
    before = stable(join("A", instance="a"), join("B1", instance="b"))
    group = after(before, join("B2", instance="b"))
    assert (group.state, group.generation) == (GroupState.STABLE, 1)
    assert group.members["B2"].assignment == b"work of B1"
    assert list(group.members) == ["A", "B2"]
    assert list(after(group, join("B1", instance="b")).members) == ["A", "B1"], "the last one that starts has the place"
    assert after(before, join("A2", instance="a")).leader == "A2"
    changed = join("B2", instance="b", metadata=b"other")
    assert kinds(before, changed) == [RebalanceStarted, StaticMemberReplaced]
    assert after(before, changed).members["B2"].joined


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


def test_a_static_member_that_restarts_during_a_rebalance_has_joined_it_and_before_the_assignment_starts_another():
    waiting = after(stable(join("A"), join("B1", instance="b")), rejoin("A"))
    group = after(waiting, join("B2", instance="b"))
    assert (group.state, list(group.members)) == (GroupState.COMPLETING_REBALANCE, ["A", "B2"])
    group = after(waiting, rejoin("B1", instance="b"))
    assert kinds(group, join("B2", instance="b")) == [RebalanceStarted, StaticMemberReplaced]


def test_the_former_process_is_fenced():
    group = after(stable(join("A"), join("B1", instance="b")), join("B2", instance="b"))
    error = refusal(FencedInstance, group, rejoin("B1", instance="b"))
    assert "stop this process" in error.message
    refusal(FencedInstance, group, SyncGroup("B1", 1, {}, "b"))


def test_a_member_with_an_instance_id_cannot_rejoin_without_it():
    begun = after(stable(join("A"), join("B", instance="b")), join("C"))
    assert "group.instance.id" in str(refusal(InvalidOption, begun, rejoin("B")))


def test_a_member_id_that_would_lead_to_another_folder_is_not_read():
    forged = msgspec.msgpack.encode([MemberJoined(MemberDetails("../A", (Protocol("range"),)), "consumer")])
    with pytest.raises(msgspec.ValidationError, match="matching regex"):
        machine.MACHINE.decode_events(forged)
