"""The state machine of a group: one journal for each group, which takes the place of Kafka's group coordinator.

    command                         events
    StartGroup, AlterGroupConfig, DeleteGroup       see `lifecycle`
    BeginJournal                    see `journal.state_machine`
    JoinGroup                       see `joining`
    CompleteJoin, ExpireSync        see `rebalance`
    SyncGroup                       see `sync`
    LeaveGroup, ExpireMember        see `leaving`
    OffsetCommit, OffsetDelete, ResetOffsets           see `offsets`
    EndJournal                      see `decide_end`

Members read their part in the state: a command returns nothing but errors. Heartbeats are not commands. `now` is only
recorded, and bounds the wait of a first rebalance: safety does not depend on a clock.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from pyspark_log_coordinator.group import (
    joining,
    leaving,
    lifecycle,
    offsets,
    rebalance,
    sync,
)
from pyspark_log_coordinator.group.joining import JoinGroup
from pyspark_log_coordinator.group.leaving import ExpireMember, LeaveGroup
from pyspark_log_coordinator.group.lifecycle import (
    AlterGroupConfig,
    DeleteGroup,
    GroupConfigAltered,
    GroupDeleted,
    GroupStarted,
    StartGroup,
)
from pyspark_log_coordinator.group.offsets import (
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsReset,
)
from pyspark_log_coordinator.group.rebalance import CompleteJoin, ExpireSync
from pyspark_log_coordinator.group.state import Group, GroupState
from pyspark_log_coordinator.group.sync import SyncGroup, WorkAssigned
from pyspark_log_coordinator.journal.state_machine import (
    BeginJournal,
    EndJournal,
    JournalBegun,
    JournalEnded,
    Machine,
    decide_end,
    events_decoder,
)
from pyspark_log_storage.errors import UnknownGroup

Command = (
    lifecycle.Command
    | JoinGroup
    | rebalance.Command
    | SyncGroup
    | leaving.Command
    | offsets.Command
    | BeginJournal
    | EndJournal
)
Event = lifecycle.Event | joining.Event | rebalance.Event | WorkAssigned | offsets.Event | JournalBegun | JournalEnded
_decode_state = msgspec.msgpack.Decoder(Group).decode


def decide(state: Group, command: Command, now: int) -> list[Any]:
    """Return the events that carry out `command`, none if it is done. Raise `LogError` if it is refused."""
    if isinstance(command, EndJournal):
        return list(decide_end(state.journal_generation, command))
    if isinstance(command, StartGroup):
        return list(lifecycle.decide(state, command, now))
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
        case AlterGroupConfig() | DeleteGroup():
            return list(lifecycle.decide(state, command, now))
        case JoinGroup():
            return _with_completion(state, joining.decide(state, command, now))
        case LeaveGroup() | ExpireMember():
            return _with_completion(state, leaving.decide(state, command, now))
        case CompleteJoin() | ExpireSync():
            return _with_completion(state, rebalance.decide(state, command))
        case SyncGroup():
            return list(sync.decide(state, command))
        case _:
            return list(offsets.decide(state, command, now))


def evolve(state: Group, event: Event) -> Group:
    """Return the state after `event`."""
    match event:
        case OffsetsCommitted() | OffsetsDeleted() | OffsetsReset():
            return offsets.evolve(state, event)
        case joining.MemberJoined() | joining.StaticMemberReplaced():
            return joining.evolve(state, event)
        case WorkAssigned():
            return sync.evolve(state, event)
        case GroupStarted() | GroupConfigAltered() | GroupDeleted():
            return lifecycle.evolve(state, event)
        case JournalBegun():
            if state.started:
                raise ValueError("the group is started twice")
            return _decode_state(event.state)
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
