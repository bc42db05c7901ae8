"""The configuration of a topic, under Kafka's names and with Kafka's defaults."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pyspark_log_coordinator.model import broker_settings
from pyspark_log_storage.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_MESSAGE_BYTES = 1_048_588
REPLICA_LAG_TIME_MAX_MS = 30_000
UNLIMITED = -1
_SIMILAR = 0.6
"""How much a name must be like a setting, as `difflib` counts it, to be what was meant."""
_MISSPELT = 0.8
"""The same for a name that may be a setting of Kafka's brokers."""
_DAY_MS = 86_400_000

_NAMES = {
    "compression_type": "compression.type",
    "min_insync_replicas": "min.insync.replicas",
    "max_message_bytes": "max.message.bytes",
    "segment_bytes": "segment.bytes",
    "segment_ms": "segment.ms",
    "flush_messages": "flush.messages",
    "flush_ms": "flush.ms",
    "retention_ms": "retention.ms",
    "retention_bytes": "retention.bytes",
    "file_delete_delay_ms": "file.delete.delay.ms",
    "orphan_retention_ms": "orphan.retention.ms",
    "unclean_leader_election_enable": "unclean.leader.election.enable",
    "replication_mode": "replication.mode",
    "replica_lag_time_max_ms": "replica.lag.time.max.ms",
}
_LOWEST = {
    "min_insync_replicas": 1,
    "max_message_bytes": 1,
    "segment_bytes": 1,
    "segment_ms": 1,
    "flush_messages": 1,
    "flush_ms": 0,
    "retention_ms": UNLIMITED,
    "retention_bytes": UNLIMITED,
    "file_delete_delay_ms": 0,
    "orphan_retention_ms": 0,
    "replica_lag_time_max_ms": 1,
}
"""The smallest value of each number."""
_WORDS = {
    "compression.type": ("none", "lz4", "zstd"),
    "unclean.leader.election.enable": ("true", "false"),
    "replication.mode": ("isr", "quorum"),
}


_MEANINGS = {
    "compression_type": "How the rows are compressed, unless the writer says otherwise.",
    "min_insync_replicas": (
        "How many replicas must be in sync for a write with acks=all; all of them where the topic has fewer."
    ),
    "max_message_bytes": "The most bytes of the key, value and headers of one row together.",
    "segment_bytes": (
        "A segment is not merged beyond so many bytes. A partition with as many unrolled, or with 32 MB, is rolled."
    ),
    "segment_ms": "A partition is rolled when its oldest unrolled row was written so many ms ago.",
    "flush_messages": "A partition with so many unrolled rows is rolled: that moves the recovery point.",
    "flush_ms": "As segment.ms; the shorter of the two counts.",
    "retention_ms": "Segments go whose newest row is older than so many ms; -1 keeps all.",
    "retention_bytes": "The oldest segments go while a partition has more bytes than this; -1 keeps all.",
    "file_delete_delay_ms": (
        "How long, in ms, the bytes of a replaced or expired file stay, for readers that are under way."
    ),
    "orphan_retention_ms": "How long, in ms, a file that nothing names stays: a writer may be slow.",
    "unclean_leader_election_enable": (
        "Whether a replica that is not in sync may lead when no other can: the rows that it lacks are lost then."
    ),
    "replication_mode": (
        "isr: a row is committed when all in-sync replicas hold it; quorum: when a majority of the replicas does."
    ),
    "replica_lag_time_max_ms": ("A follower that answers and has not been caught up for so many ms leaves the ISR."),
}
"""Of each setting, in a sentence."""


class TopicConfig(msgspec.Struct, frozen=True, rename=_NAMES.get, forbid_unknown_fields=True):
    """How a topic is kept; `_MEANINGS` says what each field means. Sizes in bytes, times in milliseconds."""

    compression_type: Literal["none", "lz4", "zstd"] = "lz4"
    """Kafka's default is the producer's, which here is lz4 too."""
    min_insync_replicas: int = 1
    max_message_bytes: int = MAX_MESSAGE_BYTES
    segment_bytes: int = 1024**3
    segment_ms: int = 7 * _DAY_MS
    flush_messages: int = 2**63 - 1
    flush_ms: int = 2**63 - 1
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = UNLIMITED
    file_delete_delay_ms: int = 60_000
    orphan_retention_ms: int = _DAY_MS
    unclean_leader_election_enable: bool = False
    replication_mode: Literal["isr", "quorum"] = "isr"
    replica_lag_time_max_ms: int = REPLICA_LAG_TIME_MAX_MS


class Setting(msgspec.Struct, frozen=True):
    """A setting, for people: its name in Kafka's way, what it takes, its default and what it means."""

    name: str
    takes: str
    default: str
    meaning: str


def all_settings() -> tuple[Setting, ...]:
    """Return all settings of a topic."""
    default = words(TopicConfig())
    found = []
    for field, name in _NAMES.items():
        takes = _listed(_WORDS[name], "or") if name in _WORDS else f"a whole number, {_LOWEST[field]} or more"
        found.append(Setting(name, takes, default[name], _MEANINGS[field]))
    return tuple(found)


def parse(settings: Mapping[str, str]) -> TopicConfig:
    """Return the configuration in `settings`, by Kafka's names. Raises `InvalidOption`."""
    return msgspec.convert(_read(settings), TopicConfig)


def alter(config: TopicConfig, settings: Mapping[str, str]) -> TopicConfig:
    """Return `config` with the settings changed. Raises `InvalidOption`."""
    return msgspec.convert({**msgspec.to_builtins(config), **_read(settings)}, TopicConfig)


def check_min_insync(topic: str, config: TopicConfig, replicas: int) -> None:
    """Raise `InvalidOption` where a topic asks for more in-sync replicas than it has `replicas`."""
    if config.min_insync_replicas > replicas:
        raise InvalidOption(
            "min.insync.replicas",
            f"topic {topic!r} cannot ask for {config.min_insync_replicas} in-sync replicas: "
            f"it has {replicas}; choose fewer, or a higher replication factor",
        )


def check(config: TopicConfig) -> None:
    """Raise `ValueError` for a number that no user can have set."""
    for field, lowest in _LOWEST.items():
        value = getattr(config, field)
        if not lowest <= value < 2**63:
            raise ValueError(f"the topic's {_NAMES[field]} is {value}")


def show(config: TopicConfig) -> dict[str, Any]:
    """Return the configuration by Kafka's names."""
    return {kafka: getattr(config, field) for field, kafka in _NAMES.items()}


def words(config: TopicConfig) -> dict[str, str]:
    """Return the configuration by Kafka's names, each value as it would be set."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in show(config).items()}


def defaults(names: Iterable[str]) -> dict[str, str]:
    """Return the settings that give these their defaults. Raises `InvalidOption` for one that there is not."""
    known = words(TopicConfig())
    for name in names:
        if name not in known:
            raise _unknown(name)
    return {name: known[name] for name in names}


def _read(settings: Mapping[str, str]) -> dict[str, Any]:
    known = list(_NAMES.values())
    values: dict[str, Any] = {}
    for name, text in settings.items():
        if name == "cleanup.policy":
            if text != "delete":
                raise InvalidOption(name, f"cleanup.policy={text} is not supported; leave it at 'delete'")
            continue
        if name not in known:
            raise _unknown(name)
        values[name] = text
    for field, lowest in _LOWEST.items():
        name = _NAMES[field]
        if name in values:
            values[name] = _whole_number(name, values[name], lowest)
    for name, allowed in _WORDS.items():
        if name in values and values[name] not in allowed:
            raise InvalidOption(name, f"{name}={values[name]!r} is unknown; there are {_listed(allowed, 'and')}")
    unclean = _NAMES["unclean_leader_election_enable"]
    if unclean in values:
        values[unclean] = values[unclean] == "true"
    return values


def _listed(names: Sequence[str], word: str) -> str:
    *others, last = names
    return f"{', '.join(others)} {word} {last}"


def _unknown(name: str) -> InvalidOption:
    known = list(_NAMES.values())
    told = broker_settings.advice(name)
    close = difflib.get_close_matches(name, known, 1, cutoff=_SIMILAR if told is None else _MISSPELT)
    if told is not None and (name in broker_settings.SETTINGS or not close):
        return InvalidOption(name, f"unknown topic configuration {name!r}: {told}")
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
    return InvalidOption(name, f"unknown topic configuration {name!r}; {hint}")


def _whole_number(name: str, text: str, lowest: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = lowest - 1
    if not lowest <= number < 2**63:
        raise InvalidOption(name, f"topic configuration {name}={text!r} must be a whole number of {lowest} or more")
    return number
