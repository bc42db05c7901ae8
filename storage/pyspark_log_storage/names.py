"""The rules for the names of topics, groups, members, nodes and racks.

Source: Kafka's `org.apache.kafka.common.internals.Topic`.
"""

from __future__ import annotations

import re

from pyspark_log_storage.errors import InvalidName

NAME_LENGTH_MAX = 249
RACK_LENGTH_MAX = 255
GROUP_LENGTH_MAX = 255
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def _check(kind: str, name: str) -> None:
    if name in {"", ".", ".."}:
        reason = f"a {kind} name cannot be {name!r}" if name else f"a {kind} name cannot be empty"
    elif len(name) > NAME_LENGTH_MAX:
        reason = f"it has {len(name)} characters; the maximum is {NAME_LENGTH_MAX}"
    elif not _LEGAL.fullmatch(name):
        reason = "only ASCII letters, digits, '.', '_' and '-' are allowed"
    else:
        return
    raise InvalidName(name, f"invalid {kind} name {name[:300]!r}: {reason}; choose another name")


def check_topic(name: str) -> None:
    """Raise `InvalidName` unless `name` is a legal topic name.

    That is 1 to 249 characters of `[a-zA-Z0-9._-]`, but neither `.` nor `..`.
    """
    _check("topic", name)


def is_topic(name: str) -> bool:
    try:
        check_topic(name)
    except InvalidName:
        return False
    return True


def check_node(name: str) -> None:
    """Raise `InvalidName` unless `name` is a legal node id (the rule of topic names)."""
    _check("node", name)


def check_member(name: str) -> None:
    """Raise `InvalidName` unless `name` is a legal member id or `group.instance.id` (the rule of topic names)."""
    _check("member", name)


def check_rack(name: str) -> None:
    """Raise `InvalidName` unless `name` is a legal rack: up to 255 printable characters; empty for no rack."""
    _check_printable("rack", name, RACK_LENGTH_MAX)


def check_group(name: str) -> None:
    """Raise `InvalidName` unless `name` is a legal `group.id`: 1 to 255 printable characters, as in Kafka."""
    if not name:
        raise InvalidName(name, "a group name cannot be empty; choose another name")
    _check_printable("group", name, GROUP_LENGTH_MAX)


def _check_printable(kind: str, name: str, length_max: int) -> None:
    if len(name) > length_max:
        reason = f"it has {len(name)} characters; the maximum is {length_max}"
    elif not name.isprintable():
        reason = "it has characters that cannot be printed"
    else:
        return
    raise InvalidName(name, f"invalid {kind} name {name[:300]!r}: {reason}; choose another name")
