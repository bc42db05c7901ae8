"""The configuration of a topic, under Kafka's names and with Kafka's defaults."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pyspark_log_storage.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_MESSAGE_BYTES = 1_048_588
UNLIMITED = -1
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
}
"""The smallest value of each number."""
_WORDS = {
    "compression.type": ("none", "lz4", "zstd"),
    "unclean.leader.election.enable": ("true", "false"),
    "replication.mode": ("isr", "quorum"),
}


class TopicConfig(msgspec.Struct, frozen=True, rename=_NAMES.get, forbid_unknown_fields=True):
    """How a topic is kept. Sizes in bytes, times in milliseconds."""

    compression_type: Literal["none", "lz4", "zstd"] = "lz4"
    """Of the chunks; Kafka's default is the producer's, which here is lz4 too."""
    min_insync_replicas: int = 1
    max_message_bytes: int = MAX_MESSAGE_BYTES
    """The largest key, value and headers of one row together."""
    segment_bytes: int = 1024**3
    """A segment is not merged beyond this size, and a partition with as much unrolled is rolled."""
    segment_ms: int = 7 * _DAY_MS
    """A partition is rolled when its oldest unrolled row is of a batch as old as this."""
    flush_messages: int = 2**63 - 1
    """A partition with as many unrolled rows is rolled: that moves the recovery point, as a flush in Kafka."""
    flush_ms: int = 2**63 - 1
    """As segment.ms; the shorter of the two counts."""
    retention_ms: int = 7 * _DAY_MS
    """Segments whose newest row is older than this go; -1 keeps all."""
    retention_bytes: int = UNLIMITED
    """The oldest segments go while a partition has more than this; -1 keeps all."""
    file_delete_delay_ms: int = 60_000
    """How long the bytes of a replaced or expired file stay, for readers that are under way."""
    orphan_retention_ms: int = _DAY_MS
    """How long a file that nothing names stays: a writer may be slow."""
    unclean_leader_election_enable: bool = False
    """Whether a replica that is not in sync may lead when no other can: what it misses is lost then."""
    replication_mode: Literal["isr", "quorum"] = "isr"
    """`isr`: a row is committed when all in-sync replicas hold it; `quorum`: when a majority of the replicas does."""


def parse(settings: Mapping[str, str]) -> TopicConfig:
    """Return the configuration in `settings`, by Kafka's names. Raises `InvalidOption`."""
    return msgspec.convert(_read(settings), TopicConfig)


def alter(config: TopicConfig, settings: Mapping[str, str]) -> TopicConfig:
    """Return `config` with the settings changed. Raises `InvalidOption`."""
    return msgspec.convert({**msgspec.to_builtins(config), **_read(settings)}, TopicConfig)


def show(config: TopicConfig) -> dict[str, Any]:
    """Return the configuration by Kafka's names."""
    return {kafka: getattr(config, field) for field, kafka in _NAMES.items()}


def _read(settings: Mapping[str, str]) -> dict[str, Any]:
    known = list(_NAMES.values())
    values: dict[str, Any] = {}
    for name, text in settings.items():
        if name == "cleanup.policy":
            if text != "delete":
                raise InvalidOption(name, f"cleanup.policy={text} is not supported; leave it at 'delete'")
            continue
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
            raise InvalidOption(name, f"unknown topic configuration {name!r}; {hint}")
        values[name] = text
    for field, lowest in _LOWEST.items():
        name = _NAMES[field]
        if name in values:
            values[name] = _whole_number(name, values[name], lowest)
    for name, words in _WORDS.items():
        if name in values and values[name] not in words:
            *others, last = words
            raise InvalidOption(name, f"{name}={values[name]!r} is unknown; there are {', '.join(others)} and {last}")
    unclean = _NAMES["unclean_leader_election_enable"]
    if unclean in values:
        values[unclean] = values[unclean] == "true"
    return values


def _whole_number(name: str, text: str, lowest: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = lowest - 1
    if not lowest <= number < 2**63:
        raise InvalidOption(name, f"topic configuration {name}={text!r} must be a whole number of {lowest} or more")
    return number
