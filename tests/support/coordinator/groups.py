"""Groups made by hand: what tests of the group machine have in common."""

import pytest

from pyspark_log_coordinator.group import machine
from pyspark_log_coordinator.group.config import GroupConfig
from pyspark_log_coordinator.group.joining import JoinGroup
from pyspark_log_coordinator.group.machine import StartGroup
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit
from pyspark_log_coordinator.group.rebalance import EndWait, SyncGroup
from pyspark_log_coordinator.group.state import NO_GENERATION, Group, MemberDetails, Protocol

NOW = 1_700_000_000_000


def after(state, *commands, now=NOW):
    """Return the state after some commands."""
    for command in commands:
        for event in machine.decide(state, command, now):
            state = machine.evolve(state, event)
    return state


def refusal(error, state, command):
    """Return the error with which a command is refused."""
    with pytest.raises(error) as refused:
        machine.decide(state, command, NOW)
    return refused.value


def started(delay=0, **config):
    """Return an empty group."""
    return after(Group(), StartGroup("g", GroupConfig(initial_rebalance_delay_ms=delay, **config)))


def join(name, *protocols, instance="", metadata=b"", is_rejoin=False, protocol_type="consumer", **details):
    """Return the command with which a member joins, by default with the protocol range."""
    supported = tuple(Protocol(each, metadata) for each in protocols or ("range",))
    return JoinGroup(MemberDetails(name, supported, instance, **details), protocol_type, is_rejoin)


def rejoin(name, *protocols, **details):
    """Return the command with which a member joins again."""
    return join(name, *protocols, is_rejoin=True, **details)


def stable(*joins, config=None):
    """Return a group in its first generation, whose leader is the first of these members."""
    group = after(started(delay=1, **(config or {})), *joins)
    group = after(group, EndWait(group.barriers))
    work = {name: f"work of {name}".encode() for name in group.members}
    return after(group, SyncGroup(group.leader, 1, work))


def commit(offset=1, name="", generation=NO_GENERATION, partition=0, metadata="", **fields):
    """Return the command with which somebody commits an offset of the topic `t`."""
    return OffsetCommit({"t": {partition: Offset(offset, metadata=metadata)}}, name, generation, **fields)
