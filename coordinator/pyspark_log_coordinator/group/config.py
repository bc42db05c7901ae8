"""The configuration of a group, under the names and with the defaults of Kafka's brokers.

There is no broker here, so each group stores its own. What a member chooses for itself (`session.timeout.ms`,
`max.poll.interval.ms`) comes with its JoinGroup.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pyspark_log_coordinator.model.settings import INT_MAX, StoredSetting
from pyspark_log_storage.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SESSION_TIMEOUT_MS = 45_000
"""A member expires when nothing was heard of it for this long."""
MAX_POLL_INTERVAL_MS = 300_000
"""A member has this long to rejoin. Kafka sends it as the member's rebalance time-out."""


class _Field(NamedTuple):
    name: str
    """Kafka's name."""
    lowest: int
    meaning: str


_FIELDS = {
    "initial_rebalance_delay_ms": _Field(
        "group.initial.rebalance.delay.ms",
        0,
        "How long the first rebalance of an empty group waits for more members, in ms; each that joins extends the"
        " wait.",
    ),
    "min_session_timeout_ms": _Field(
        "group.min.session.timeout.ms", 1, "Smallest `session.timeout.ms` with which a member may join, in ms."
    ),
    "max_session_timeout_ms": _Field(
        "group.max.session.timeout.ms", 1, "Largest `session.timeout.ms` with which a member may join, in ms."
    ),
    "offset_metadata_max_bytes": _Field(
        "offset.metadata.max.bytes", 0, "Maximum size in bytes of the text that a member commits beside an offset."
    ),
}


class GroupConfig(
    msgspec.Struct,
    frozen=True,
    rename={field: each.name for field, each in _FIELDS.items()}.get,
    forbid_unknown_fields=True,
):
    """The settings of a group; `_FIELDS` says what each means."""

    initial_rebalance_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    offset_metadata_max_bytes: int = 4_096


def all_settings() -> tuple[StoredSetting, ...]:
    """Return all settings of a group."""
    default = show(GroupConfig())
    return tuple(
        StoredSetting(name, f"a whole number, {lowest} to {INT_MAX}", str(default[name]), meaning)
        for name, lowest, meaning in _FIELDS.values()
    )


def show(config: GroupConfig) -> dict[str, int]:
    """Return the configuration by Kafka's names."""
    return {each.name: getattr(config, field) for field, each in _FIELDS.items()}


def defaults(names: Iterable[str]) -> dict[str, str]:
    """Return the default values of these settings, for `alter`. Raise `InvalidOption` for an unknown name."""
    known = show(GroupConfig())
    for name in names:
        if name not in known:
            raise _unknown(name)
    return {name: str(known[name]) for name in names}


def alter(config: GroupConfig, settings: Mapping[str, str]) -> GroupConfig:
    """Return `config` with `settings`, by Kafka's names, changed. Raise `InvalidOption` for any that is invalid."""
    fields = {each.name: field for field, each in _FIELDS.items()}
    values: dict[str, int] = {}
    for name, text in settings.items():
        if name not in fields:
            raise _unknown(name)
        lowest = _FIELDS[fields[name]].lowest
        if not (text.isdecimal() and lowest <= int(text) <= INT_MAX):
            raise InvalidOption(
                name, f"group configuration {name}={text!r} must be a whole number from {lowest} to {INT_MAX}"
            )
        values[fields[name]] = int(text)
    changed = msgspec.structs.replace(config, **values)
    if changed.min_session_timeout_ms > changed.max_session_timeout_ms:
        raise InvalidOption(
            "group.min.session.timeout.ms",
            f"group.min.session.timeout.ms={changed.min_session_timeout_ms} exceeds "
            f"group.max.session.timeout.ms={changed.max_session_timeout_ms}; change one of them",
        )
    return changed


def check(config: GroupConfig) -> None:
    """Raise `ValueError` for a stored number that no user can have set."""
    for field, (name, lowest, _) in _FIELDS.items():
        value = getattr(config, field)
        if not lowest <= value <= INT_MAX:
            raise ValueError(f"the group's {name} is {value}")


def _unknown(name: str) -> InvalidOption:
    known = [each.name for each in _FIELDS.values()]
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(known)}"
    return InvalidOption(name, f"unknown group configuration {name!r}; {hint}")
