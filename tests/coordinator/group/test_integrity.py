"""Stored entries and snapshots of a group that have the right types and impossible values are found."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_log_coordinator.group import integrity, machine
from pyspark_log_coordinator.group.config import GroupConfig
from pyspark_log_coordinator.group.joining import MemberJoined, StaticMemberReplaced
from pyspark_log_coordinator.group.leaving import ExpireMember, LeaveGroup
from pyspark_log_coordinator.group.lifecycle import (
    DeleteGroup,
    GroupConfigAltered,
    GroupStarted,
    StartGroup,
)
from pyspark_log_coordinator.group.offsets import Offset, OffsetsCommitted, ResetOffsets
from pyspark_log_coordinator.group.rebalance import (
    CompleteJoin,
    ExpireSync,
    GenerationStarted,
    MembersRemoved,
    RebalanceStarted,
)
from pyspark_log_coordinator.group.state import CommittedOffset, Group, GroupState, MemberDetails, Protocol
from pyspark_log_coordinator.group.sync import SyncGroup
from pyspark_log_coordinator.journal.state_machine import JournalBegun
from pyspark_log_storage.errors import InvalidName, LogError
from tests.support.coordinator.groups import NOW, after, commit, join, rejoin, stable, started

PATIENT = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""The machine may be busy."""
STABLE = stable(join("A"), join("B", instance="b"))
WAITING = after(STABLE, rejoin("A"))
COMPLETING = after(WAITING, rejoin("B", instance="b"))
DEAD = after(started(), DeleteGroup())


def checked(state, *events):
    """Apply an entry's events as replay does."""
    before = state
    for event in events:
        state = machine.evolve(state, event)
    integrity.check_entry(before, list(events), state, 9)


def details(name, protocol="range", instance=""):
    return MemberDetails(name, (Protocol(protocol),), instance)


@pytest.mark.parametrize(
    ("state", "events"),
    [
        (Group(), [RebalanceStarted(1)]),
        (Group(), [GroupStarted("a\nb", GroupConfig())]),
        (DEAD, [GroupConfigAltered(GroupConfig())]),
        (DEAD, [GroupStarted("other", GroupConfig())]),
        (DEAD, [OffsetsCommitted({"t": {0: Offset(1)}}, "", NOW)]),
        (STABLE, [GroupConfigAltered(GroupConfig(offset_metadata_max_bytes=-1))]),
        (STABLE, [GenerationStarted("range", "C", 1)]),
        (STABLE, [GenerationStarted("sticky", "A", 1)]),
        (STABLE, [MembersRemoved(("A",), "left")]),
        (WAITING, [MembersRemoved(("A", "B"), "left")]),
        (STABLE, [MemberJoined(details("C"), "consumer")]),
        (WAITING, [MemberJoined(details("C", "sticky"), "consumer")]),
        (WAITING, [MemberJoined(details("C"), "")]),
        (WAITING, [MemberJoined(details("C", instance="b"), "consumer")]),
        (WAITING, [MemberJoined(details("a/b"), "consumer")]),
        (WAITING, [MemberJoined(details("A", instance="a/b"), "consumer")]),
        (WAITING, [StaticMemberReplaced("B", details("C", instance="a/b"))]),
        (started(), [RebalanceStarted(1)]),
    ],
)
def test_entries_that_no_rule_leads_to_are_found(state, events):
    with pytest.raises((ValueError, InvalidName)):
        checked(state, *events)


@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": ""},
        {"state": GroupState.EMPTY},
        {"state": GroupState.DEAD},
        {"state": GroupState.PREPARING_REBALANCE},
        {"leader": "C"},
        {"leader": ""},
        {"protocol": "sticky"},
        {"protocol_type": ""},
        {"actions": 0},
        {"generation": 0},
        {"deleted_ms": 5},
        {"members": {"C": STABLE.members["A"]}},
        {"members": {}},
        {"rewinds": 2**63 - 1},
        {"barriers": 2**63 - 1},
    ],
)
def test_impossible_states_are_found(fields):
    integrity.check_snapshot(STABLE, 9)
    with pytest.raises((ValueError, InvalidName)):
        integrity.check_snapshot(msgspec.structs.replace(STABLE, **fields), 9)


def test_a_barrier_that_is_not_the_newest_is_found():
    integrity.check_snapshot(COMPLETING, 9)
    with pytest.raises(ValueError, match="barrier"):
        integrity.check_snapshot(msgspec.structs.replace(COMPLETING, barriers=99), 9)


def test_a_rewind_that_never_happened_is_found():
    group = after(started(), ResetOffsets({"t": {0: msgspec.structs.replace(commit().offsets["t"][0])}}))
    integrity.check_snapshot(group, 9)
    with pytest.raises(ValueError, match="rewound by 1 of 0"):
        integrity.check_snapshot(msgspec.structs.replace(group, rewinds=0), 9)
    begun = Group(group_id="g", offsets={"t": {0: CommittedOffset(5, -1, "", NOW, 3)}}, rewinds=2)
    with pytest.raises(ValueError, match="rewound by 3 of 2"):
        checked(Group(), JournalBegun(msgspec.msgpack.encode(begun)))


def test_a_number_that_goes_back_and_a_group_that_becomes_another_are_found():
    for what in ("generation", "barriers", "actions", "rewinds", "journal_generation"):
        later, earlier = (msgspec.structs.replace(STABLE, **{what: number}) for number in (10, 9))
        with pytest.raises(ValueError, match=f"{what} goes back from 10 to 9"):
            integrity.check_entry(later, [None], earlier, 9)
    with pytest.raises(ValueError, match="becomes 'other'"):
        integrity.check_entry(STABLE, [None], msgspec.structs.replace(STABLE, group_id="other"), 9)


NAMES = ("A", "B", "C")
commands = st.one_of(
    st.builds(join, st.sampled_from(NAMES), metadata=st.sampled_from([b"", b"1"])),
    st.builds(lambda name: join(name, instance=name[0]), st.sampled_from(["S1", "S2", "S3"])),
    st.builds(rejoin, st.sampled_from(NAMES), metadata=st.sampled_from([b"", b"1"])),
    st.builds(LeaveGroup, st.sampled_from(NAMES)),
    st.sampled_from([LeaveGroup(instance_id="S"), DeleteGroup(), StartGroup("g")]),
    st.builds(commit, st.integers(0, 3), st.sampled_from(NAMES), st.integers(0, 4)),
    st.builds(commit, st.integers(0, 3)),
    st.sampled_from([CompleteJoin, ExpireSync]),
    st.just(SyncGroup),
    st.builds(lambda name: (ExpireMember, name), st.sampled_from([*NAMES, "S1", "S2"])),
)


def filled_in(group, command):
    """Return the command, about the newest barrier, generation or action if it needs one."""
    match command:
        case (kind, name):
            return kind(name, group.members[name].acted if name in group.members else 0)
        case type() if command is SyncGroup:
            return SyncGroup(group.leader, group.generation, {name: name.encode() for name in group.members})
        case type():
            return command(group.barriers)
        case _:
            return command


@PATIENT
@given(st.lists(commands, max_size=25))
def test_whatever_is_submitted_each_state_is_possible_and_replay_gives_the_same(submitted):
    group = started()
    for each in submitted:
        restored = machine.MACHINE.decode_state(machine.MACHINE.encode_state(group))
        assert restored == group
        try:
            events = machine.decide(group, filled_in(group, each), NOW)
        except LogError:
            continue
        before = group
        for event in machine.MACHINE.decode_events(msgspec.msgpack.encode(events)):
            group, restored = machine.evolve(group, event), machine.evolve(restored, event)
        assert restored == group
        if events:
            integrity.check_entry(before, events, group, 9)
        integrity.check_snapshot(group, 9)
        # A group with members always waits for something, or is stable: no state is a dead end.
        assert bool(group.members) == (group.barrier is not None or group.state is GroupState.STABLE)
