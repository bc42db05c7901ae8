"""Joining a group: new members, members that rejoin, restarted static members, and protocols that do not fit."""

import msgspec
import pytest

from pyspark_log_coordinator.group import machine
from pyspark_log_coordinator.group.joining import (
    JoinGroup,
    MemberJoined,
)
from pyspark_log_coordinator.group.rebalance import RebalanceStarted
from pyspark_log_coordinator.group.state import GroupState, MemberDetails, Protocol
from pyspark_log_storage.errors import (
    InvalidName,
    InvalidOption,
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


def test_the_session_time_out_is_within_the_bounds_of_the_group_and_ids_are_names():
    for ms in (5_999, 1_800_001):
        error = refusal(InvalidOption, started(), join("A", session_timeout_ms=ms))
        assert error.option == "session.timeout.ms"
    for name, instance in (("a/b", ""), ("", ""), ("A", "a/b")):
        refusal(InvalidName, started(), join(name, instance=instance))


# Static members


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


def test_a_member_with_an_instance_id_cannot_rejoin_without_it():
    begun = after(stable(join("A"), join("B", instance="b")), join("C"))
    assert "group.instance.id" in str(refusal(InvalidOption, begun, rejoin("B")))


def test_a_member_id_that_would_lead_to_another_folder_is_not_read():
    forged = msgspec.msgpack.encode([MemberJoined(MemberDetails("../A", (Protocol("range"),)), "consumer")])
    with pytest.raises(msgspec.ValidationError, match="matching regex"):
        machine.MACHINE.decode_events(forged)
