"""The groups of a cluster: which names exist, and the ids under which their journals are stored.

    command         event
    CreateGroup  -> GroupCreated

A group is created by the first process that joins it or commits offsets to it. Its record stays for ever: a group that
is deleted keeps its journal, whose generation a member that slept cannot outlive.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from pyspark_log_storage.errors import UnknownGroup
from pyspark_log_storage.names import check_group
from pyspark_log_storage.ranges import Int64

_GROUP_ID = re.compile(r"[0-9A-Za-z_-]+")
"""A group's id is a part of the path of its journal; its name is not."""


class GroupRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A group as it was created."""

    name: str
    group_id: str
    created_ms: Int64


class CreateGroup(msgspec.Struct, frozen=True):
    """Create a group, unless it exists. `group_id` is new."""

    name: str
    group_id: str


class GroupCreated(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The name belongs to this group."""

    group: GroupRecord


def decide(groups: Mapping[str, GroupRecord], command: CreateGroup, now: int) -> list[GroupCreated]:
    """Return the event that creates the group, none if it exists. Raises `InvalidName`."""
    check_group(command.name)
    return [] if command.name in groups else [GroupCreated(GroupRecord(command.name, command.group_id, now))]


def evolve(groups: Mapping[str, GroupRecord], event: GroupCreated) -> dict[str, GroupRecord]:
    """Return the groups after `event`."""
    if event.group.name in groups:
        raise ValueError(f"group {event.group.name!r} is created twice")
    return {**groups, event.group.name: event.group}


def check(name: str, group: GroupRecord) -> None:
    """Raise `ValueError` or `InvalidName` if a stored record is impossible."""
    if group.name != name:
        raise ValueError(f"group {group.name!r} is stored as {name!r}")
    check_group(name)
    if not _GROUP_ID.fullmatch(group.group_id):
        raise ValueError(f"group {name!r} has the id {group.group_id[:300]!r}")


def group_of(groups: Mapping[str, GroupRecord], name: str) -> GroupRecord:
    """Return the record of a group. Raises `UnknownGroup` if it does not exist."""
    check_group(name)
    if name not in groups:
        existing = ", ".join(sorted(groups)[:10]) or "none"
        message = f"group {name!r} does not exist; join it or commit offsets to it (existing: {existing})"
        raise UnknownGroup(name, message)
    return groups[name]
