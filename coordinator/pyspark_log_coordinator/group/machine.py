"""The state machine of a group: one journal for each group, which takes the place of Kafka's group coordinator.

    command                             events
    StartGroup                       -> GroupStarted             the journal's first entry, or the next life of a group
    BeginJournal                     -> JournalBegun
    AlterGroupConfig                 -> GroupConfigAltered
    DeleteGroup                      -> GroupDeleted             of an empty group
    JoinGroup, LeaveGroup, ExpireMember             see `joining`
    EndWait, SyncGroup                              see `rebalance`
    OffsetCommit, OffsetDelete, ResetOffsets        see `offsets`
    EndJournal                       -> JournalEnded

A group that was deleted keeps its numbers: if one of the same id starts again, no generation or action number is used
twice, so that no command for the former group applies to the new one.

Members read their part in the state: a command returns nothing but errors. Heartbeats are not commands. `now` is only
recorded, and bounds the wait of a first rebalance: safety does not depend on a clock.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from pyspark_log_coordinator.group import joining, offsets, rebalance
from pyspark_log_coordinator.group.config import GroupConfig
from pyspark_log_coordinator.group.joining import ExpireMember, JoinGroup, LeaveGroup
from pyspark_log_coordinator.group.rebalance import EndWait, SyncGroup
from pyspark_log_coordinator.group.state import Group, GroupState
from pyspark_log_coordinator.journal.state_machine import (
    BeginJournal,
    EndJournal,
    JournalBegun,
    JournalEnded,
    Machine,
    decide_end,
    events_decoder,
)
from pyspark_log_storage.errors import GroupNotEmpty, UnknownGroup
from pyspark_log_storage.names import check_group
from pyspark_log_storage.stored_fields import Int64


class StartGroup(msgspec.Struct, frozen=True):
    """Begin a group, unless it exists."""

    group_id: str
    config: GroupConfig = GroupConfig()


class AlterGroupConfig(msgspec.Struct, frozen=True):
    """Change the configuration: settings by Kafka's names."""

    settings: dict[str, str]


class DeleteGroup(msgspec.Struct, frozen=True):
    """Delete an empty group, with its committed offsets."""


class GroupStarted(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The group exists, empty."""

    group_id: str
    config: GroupConfig


class GroupConfigAltered(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The group has this configuration from now on."""

    config: GroupConfig


class GroupDeleted(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The group was deleted."""

    at_ms: Int64


Command = (
    StartGroup
    | AlterGroupConfig
    | DeleteGroup
    | JoinGroup
    | LeaveGroup
    | ExpireMember
    | EndWait
    | SyncGroup
    | offsets.Command
    | BeginJournal
    | EndJournal
)
Event = (
    GroupStarted
    | GroupConfigAltered
    | GroupDeleted
    | joining.Event
    | rebalance.Event
    | offsets.Event
    | JournalBegun
    | JournalEnded
)
_decode_state = msgspec.msgpack.Decoder(Group).decode


def decide(state: Group, command: Command, now: int) -> list[Any]:
    """Return the events that carry out `command`, none if it is done. Raise `LogError` if it is refused."""
    if isinstance(command, EndJournal):
        return list(decide_end(state.journal_generation, command))
    if isinstance(command, StartGroup):
        return _start(state, command)
    if isinstance(command, BeginJournal):
        return [] if state.started else [JournalBegun(command.state)]
    assert state.started, "the journal begins before any other command"
    if state.state is GroupState.DEAD and not isinstance(command, DeleteGroup):
        raise UnknownGroup(
            state.group_id,
            f"group {state.group_id!r} was deleted (generation {state.generation}); join or commit anew, which starts "
            "it again, without offsets",
        )
    match command:
        case AlterGroupConfig():
            changed = state.config.alter(command.settings)
            return [] if changed == state.config else [GroupConfigAltered(changed)]
        case DeleteGroup():
            return _delete(state, now)
        case JoinGroup():
            return _with_completion(state, joining.decide(state, command, now))
        case LeaveGroup() | ExpireMember():
            return _with_completion(state, joining.decide_leaving(state, command, now))
        case EndWait():
            return _with_completion(state, rebalance.decide_end(state, command))
        case SyncGroup():
            return list(rebalance.decide_sync(state, command))
        case _:
            return list(offsets.decide(state, command, now))


def _start(state: Group, command: StartGroup) -> list[GroupStarted]:
    if state.started and state.state is not GroupState.DEAD:
        return []
    check_group(command.group_id)
    return [GroupStarted(command.group_id, command.config)]


def _delete(state: Group, now: int) -> list[GroupDeleted]:
    if state.state is GroupState.DEAD:
        return []
    if state.members:
        raise GroupNotEmpty(
            state.group_id,
            f"group {state.group_id!r} has {len(state.members)} members (generation {state.generation}), and only an "
            "empty group can be deleted; stop them first",
        )
    return [GroupDeleted(now)]


def evolve(state: Group, event: Event) -> Group:
    match event:
        case offsets.OffsetsCommitted() | offsets.OffsetsDeleted() | offsets.OffsetsReset():
            return offsets.evolve(state, event)
        case joining.MemberJoined() | joining.StaticMemberReplaced():
            return joining.evolve(state, event)
        case GroupStarted() | JournalBegun():
            if state.started and (state.state is not GroupState.DEAD or isinstance(event, JournalBegun)):
                raise ValueError("the group is started twice")
            if isinstance(event, JournalBegun):
                return _decode_state(event.state)
            return msgspec.structs.replace(
                state, group_id=event.group_id, config=event.config, state=GroupState.EMPTY, deleted_ms=None
            )
        case GroupConfigAltered():
            return msgspec.structs.replace(state, config=event.config)
        case GroupDeleted():
            return msgspec.structs.replace(state, state=GroupState.DEAD, offsets={}, deleted_ms=event.at_ms)
        case JournalEnded():
            return msgspec.structs.replace(state, journal_generation=event.generation)
        case _:
            return rebalance.evolve(state, event)


def _with_completion(state: Group, events: list[Any]) -> list[Any]:
    """Return the events, and those of a rebalance that then waits for nobody, in the same entry."""
    if not events:
        return []
    after = functools.reduce(evolve, events, state)
    return [*events, *rebalance.decide_completion(after)]


MACHINE: Machine[Group, Command] = Machine(
    initial=Group(),
    decide=decide,
    evolve=evolve,
    decode_events=events_decoder(Event),
    encode_state=msgspec.msgpack.encode,
    decode_state=_decode_state,
    generation=lambda state: state.journal_generation,
)
