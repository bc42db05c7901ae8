"""The groups of a cluster: which exist, and the ids under which their journals are stored.

    command         event
    CreateGroup  -> GroupCreated

A group is created by the first process that joins it or commits offsets to it. Its record stays forever: a group that
is deleted keeps its journal, so that a member that slept finds a later generation there.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pyspark_log_storage.errors import UnknownGroup
from pyspark_log_storage.names import check_group
from pyspark_log_storage.stored_fields import Int64, UniqueId


class GroupRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A group as it was created."""

    group_id: str
    """Kafka's `group.id`: the group's name."""
    journal_id: UniqueId
    """A part of the path of the group's journal; `group_id` is none."""
    created_ms: Int64


class CreateGroup(msgspec.Struct, frozen=True):
    """Create a group, unless it exists. `journal_id` is new."""

    group_id: str
    journal_id: str


class GroupCreated(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The name belongs to this group."""

    group: GroupRecord


def decide(groups: Mapping[str, GroupRecord], command: CreateGroup, now: int) -> list[GroupCreated]:
    """Return the event that creates the group, none if it exists. Raises `InvalidName`."""
    check_group(command.group_id)
    return [] if command.group_id in groups else [GroupCreated(GroupRecord(command.group_id, command.journal_id, now))]


def evolve(groups: Mapping[str, GroupRecord], event: GroupCreated) -> dict[str, GroupRecord]:
    """Return the groups after `event`."""
    if event.group.group_id in groups:
        raise ValueError(f"group {event.group.group_id!r} is created twice")
    return {**groups, event.group.group_id: event.group}


def group_of(groups: Mapping[str, GroupRecord], name: str) -> GroupRecord:
    """Return the record of a group. Raises `UnknownGroup` if it does not exist."""
    check_group(name)
    if name not in groups:
        existing = ", ".join(sorted(groups)[:10]) or "none"
        message = f"group {name!r} does not exist; join it or commit offsets to it (existing: {existing})"
        raise UnknownGroup(name, message)
    return groups[name]
