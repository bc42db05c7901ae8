"""A group after any commands: it never gets stuck, and its journal replays to the same state."""

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_log_coordinator.group import machine, rebalance
from pyspark_log_coordinator.group.joining import ExpireMember, LeaveGroup
from pyspark_log_coordinator.group.machine import DeleteGroup, StartGroup
from pyspark_log_coordinator.group.rebalance import EndWait, SyncGroup
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_storage.errors import LogError
from tests.support.coordinator.groups import NOW, commit, join, rejoin, started

PATIENT = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""The machine may be busy."""
NAMES = ("A", "B", "C")
commands = st.one_of(
    st.builds(join, st.sampled_from(NAMES), metadata=st.sampled_from([b"", b"1"])),
    st.builds(lambda name: join(name, instance=name[0]), st.sampled_from(["S1", "S2", "S3"])),
    st.builds(rejoin, st.sampled_from(NAMES), metadata=st.sampled_from([b"", b"1"])),
    st.builds(LeaveGroup, st.sampled_from(NAMES)),
    st.sampled_from([LeaveGroup(instance_id="S"), DeleteGroup(), StartGroup("g")]),
    st.builds(commit, st.integers(0, 3), st.sampled_from(NAMES), st.integers(0, 4)),
    st.builds(commit, st.integers(0, 3)),
    st.just(EndWait),
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
def test_whatever_is_submitted_no_state_is_a_dead_end_and_replay_gives_the_same(submitted):
    group = started()
    for each in submitted:
        restored = machine.MACHINE.decode_state(machine.MACHINE.encode_state(group))
        assert restored == group
        try:
            events = machine.decide(group, filled_in(group, each), NOW)
        except LogError:
            continue
        for event in machine.MACHINE.decode_events(msgspec.msgpack.encode(events)):
            group, restored = machine.evolve(group, event), machine.evolve(restored, event)
        assert restored == group
        # A group with members always waits for something, or is stable: no state is a dead end.
        assert bool(group.members) == (group.barrier is not None or group.state is GroupState.STABLE)
        if group.state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}:
            assert group.leader in group.members
            assert all(group.protocol in rebalance.names_of(each.details) for each in group.members.values())
