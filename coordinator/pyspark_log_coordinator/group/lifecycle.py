"""The life of a group: it starts, is configured, and is deleted.

    command             events
    StartGroup       -> GroupStarted             the journal's first entry, or the next life of a dead group
    AlterGroupConfig -> GroupConfigAltered
    DeleteGroup      -> GroupDeleted             of an empty group

A group that was deleted keeps its numbers: if one of the same id starts again, no generation or action number is used
twice, so that no command for the former group applies to the new one.
"""

from __future__ import annotations

import msgspec

from pyspark_log_coordinator.group.config import GroupConfig
from pyspark_log_coordinator.group.state import Group, GroupState
from pyspark_log_storage.errors import GroupNotEmpty
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


Command = StartGroup | AlterGroupConfig | DeleteGroup
Event = GroupStarted | GroupConfigAltered | GroupDeleted


def decide(group: Group, command: Command, now: int) -> list[Event]:
    """Return the events that carry out `command`, none if it is done."""
    match command:
        case StartGroup():
            if group.started and group.state is not GroupState.DEAD:
                return []
            check_group(command.group_id)
            return [GroupStarted(command.group_id, command.config)]
        case AlterGroupConfig():
            changed = group.config.alter(command.settings)
            return [] if changed == group.config else [GroupConfigAltered(changed)]
        case DeleteGroup():
            if group.state is GroupState.DEAD:
                return []
            if group.members:
                raise GroupNotEmpty(
                    group.group_id,
                    f"group {group.group_id!r} has {len(group.members)} members (generation {group.generation}), and "
                    "only an empty group can be deleted; stop them first",
                )
            return [GroupDeleted(now)]


def evolve(group: Group, event: Event) -> Group:
    """Return the group after `event`."""
    match event:
        case GroupStarted():
            if group.started and group.state is not GroupState.DEAD:
                raise ValueError("the group is started twice")
            return msgspec.structs.replace(
                group, group_id=event.group_id, config=event.config, state=GroupState.EMPTY, deleted_ms=None
            )
        case GroupConfigAltered():
            return msgspec.structs.replace(group, config=event.config)
        case GroupDeleted():
            return msgspec.structs.replace(group, state=GroupState.DEAD, offsets={}, deleted_ms=event.at_ms)
