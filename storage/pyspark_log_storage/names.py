"""The rules for names: those that become paths, and racks.

Kafka's characters and lengths, from `org.apache.kafka.common.internals.Topic`.
"""

from __future__ import annotations

import re

from pyspark_log_storage.errors import InvalidName

NAME_LENGTH_MAX = 249
RACK_LENGTH_MAX = 255
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def _check(kind: str, name: str) -> None:
    if name in {"", ".", ".."}:
        reason = f"a {kind} name cannot be {name!r}" if name else f"a {kind} name cannot be empty"
    elif len(name) > NAME_LENGTH_MAX:
        reason = f"it has {len(name)} characters, and {NAME_LENGTH_MAX} is the longest"
    elif not _LEGAL.fullmatch(name):
        reason = "only ASCII letters, digits, '.', '_' and '-' are allowed"
    else:
        return
    raise InvalidName(name, f"invalid {kind} name {name[:300]!r}: {reason}; choose another name")


def check_topic(name: str) -> None:
    """Raise `InvalidName` unless `name` is a legal Kafka topic name.

    That is 1 to 249 of `[a-zA-Z0-9._-]`, but neither `.` nor `..`.
    """
    _check("topic", name)


def is_topic(name: str) -> bool:
    """Return whether `check_topic` accepts `name`."""
    try:
        check_topic(name)
    except InvalidName:
        return False
    return True


def check_node(name: str) -> None:
    """Raise `InvalidName` unless `name` is a legal node id (the rule of topic names)."""
    _check("node", name)


def check_rack(name: str) -> None:
    """Raise `InvalidName` unless a node can be in the rack `name`: printable, up to 255 characters; empty for none."""
    if len(name) > RACK_LENGTH_MAX:
        reason = f"it has {len(name)} characters, and {RACK_LENGTH_MAX} is the longest"
    elif not name.isprintable():
        reason = "it has characters that cannot be printed"
    else:
        return
    raise InvalidName(name, f"invalid rack name {name[:300]!r}: {reason}; choose another name")
