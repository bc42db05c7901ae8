"""The configuration of a topic, under Kafka's names and with Kafka's defaults."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from pyspark_log_coordinator.model import broker_settings
from pyspark_log_coordinator.model.settings import StoredSetting
from pyspark_log_storage.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_MESSAGE_BYTES = 1_048_588
REPLICA_LAG_TIME_MAX_MS = 30_000
UNLIMITED = -1
_SIMILAR = 0.6
"""The `difflib` ratio from which on a setting is suggested for an unknown name."""
_MISSPELT = 0.8
"""The same for a name that could also be a setting of Kafka's brokers."""
_DAY_MS = 86_400_000


class _Field(NamedTuple):
    name: str
    """Kafka's name."""
    allowed: int | tuple[str, ...] | None
    """The smallest number, or the words; None for the name of a column."""
    meaning: str


_FIELDS = {
    "compression_type": _Field(
        "compression.type", ("none", "lz4", "zstd"), "Compression of the rows, unless the writer chooses another."
    ),
    "min_insync_replicas": _Field(
        "min.insync.replicas",
        1,
        "Number of replicas that must be in sync for a write with acks=all; all replicas if the topic has fewer.",
    ),
    "max_message_bytes": _Field(
        "max.message.bytes", 1, "Maximum size in bytes of the key, value and headers of one row together."
    ),
    "segment_bytes": _Field(
        "segment.bytes",
        1,
        "Maximum size in bytes of a merged segment. A partition with this many unrolled bytes, or 32 MB, is rolled.",
    ),
    "segment_format": _Field(
        "segment.format",
        ("log", "parquet"),
        "Format of the segments that will not be merged again; parquet: other engines can read these files, too.",
    ),
    "parquet_max_lag_ms": _Field(
        "parquet.max.lag.ms",
        UNLIMITED,
        "With segment.format=parquet: maintain and node run write a partition's newest rows to a Parquet file when the "
        "oldest of them was written this many ms ago; writers do so after an hour, or later. -1 means never.",
    ),
    "segment_ms": _Field(
        "segment.ms", 1, "A partition is rolled when its oldest unrolled row was written this many ms ago."
    ),
    "flush_messages": _Field(
        "flush.messages", 1, "A partition with this many unrolled rows is rolled, which moves the recovery point."
    ),
    "flush_ms": _Field("flush.ms", 0, "The same as segment.ms; the smaller of the two applies."),
    "retention_ms": _Field(
        "retention.ms",
        UNLIMITED,
        "A segment is deleted when its newest row is older than this many ms; -1 means never.",
    ),
    "retention_bytes": _Field(
        "retention.bytes",
        UNLIMITED,
        "The oldest segments are deleted while a partition has more bytes than this; -1 means no limit.",
    ),
    "file_delete_delay_ms": _Field(
        "file.delete.delay.ms",
        0,
        "Time in ms for which the bytes of a replaced or expired file are kept for readers that still use it.",
    ),
    "orphan_retention_ms": _Field(
        "orphan.retention.ms",
        0,
        "Time in ms for which a file that no journal entry names is kept: its writer may be slow.",
    ),
    "unclean_leader_election_enable": _Field(
        "unclean.leader.election.enable",
        ("true", "false"),
        "Whether an out-of-sync replica may lead when no other can; the rows that it lacks are lost.",
    ),
    "replication_mode": _Field(
        "replication.mode",
        ("isr", "quorum"),
        "isr: a row is committed when all in-sync replicas hold it; quorum: when a majority of the replicas does.",
    ),
    "replica_lag_time_max_ms": _Field(
        "replica.lag.time.max.ms",
        1,
        "A reachable follower that has not been caught up for this many ms leaves the ISR.",
    ),
    "key_column": _Field(
        "key.column",
        None,
        "Column of a typed topic whose values choose the partitions, as keys do. Once set, it is never changed.",
    ),
}


class TopicConfig(
    msgspec.Struct,
    frozen=True,
    rename={field: each.name for field, each in _FIELDS.items()}.get,
    forbid_unknown_fields=True,
):
    """The settings of a topic; `_FIELDS` says what each means. Sizes in bytes, times in milliseconds."""

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
    segment_format: Literal["log", "parquet"] = "log"
    parquet_max_lag_ms: int = 300_000
    key_column: str = ""


def all_settings() -> tuple[StoredSetting, ...]:
    """Return all settings of a topic."""
    default = words(TopicConfig())
    return tuple(
        StoredSetting(name, _takes(allowed), default[name] or "none", meaning)
        for name, allowed, meaning in _FIELDS.values()
    )


def _takes(allowed: int | tuple[str, ...] | None) -> str:
    if allowed is None:
        return "the name of a column"
    return f"a whole number, {allowed} or more" if isinstance(allowed, int) else _listed(allowed, "or")


def parse(settings: Mapping[str, str]) -> TopicConfig:
    """Return the configuration in `settings`, by Kafka's names. Raise `InvalidOption` for any that is invalid."""
    return alter(TopicConfig(), settings)


def alter(config: TopicConfig, settings: Mapping[str, str]) -> TopicConfig:
    """Return `config` with `settings` changed. Raise `InvalidOption` for any that is invalid."""
    return msgspec.convert({**msgspec.to_builtins(config), **_read(settings)}, TopicConfig)


def check_min_insync(topic: str, config: TopicConfig, replicas: int) -> None:
    """Raise `InvalidOption` if min.insync.replicas is larger than the topic's number of `replicas`."""
    if config.min_insync_replicas > replicas:
        raise InvalidOption(
            "min.insync.replicas",
            f"topic {topic!r} cannot require {config.min_insync_replicas} in-sync replicas: "
            f"it has {replicas}; choose fewer, or a higher replication factor",
        )


def with_key_column(topic: str, config: TopicConfig, schemas: Sequence[bytes]) -> TopicConfig:
    """Return the configuration with its key.column spelt as in the newest of the topic's schemas.

    Raise `InvalidOption` if the topic is not typed, or has no such column whose values can be keys.
    """
    from pyspark_log_storage.columns import (  # Arrow is slow to import, and most topics have no such key
        column_types,
        schema,
    )

    name = config.key_column
    (newest,) = schema.decode_all(schemas[-1:], f"topic {topic!r}")
    if not schema.is_typed(newest):
        raise InvalidOption(
            "key.column",
            f"key.column={name} is for typed topics, and topic {topic!r} holds records of key and value; remove it",
        )
    columns = schema.columns_of(newest)
    found = next((field for field in columns if field.name.lower() == name.lower()), None)
    if found is None:
        raise InvalidOption(
            "key.column",
            f"topic {topic!r}: key.column is {name!r}, and the columns are {column_types.ddl(columns):.500}; choose "
            "one of these",
        )
    if found.type not in column_types.KEY_TYPES:
        raise InvalidOption(
            "key.column",
            f"topic {topic!r}: key.column {name!r} has type {column_types.type_name(found.type)}; choose a column of "
            "text, binary or whole numbers, or write the partition of each row in a column 'partition'",
        )
    return msgspec.structs.replace(config, key_column=found.name)


def check(config: TopicConfig) -> None:
    """Raise `ValueError` for a stored number that no user can have set."""
    for field, (name, allowed, _) in _FIELDS.items():
        value = getattr(config, field)
        if isinstance(allowed, int) and not allowed <= value < 2**63:
            raise ValueError(f"the topic's {name} is {value}")


def show(config: TopicConfig) -> dict[str, Any]:
    """Return the configuration by Kafka's names."""
    return {each.name: getattr(config, field) for field, each in _FIELDS.items()}


def words(config: TopicConfig) -> dict[str, str]:
    """Return the configuration by Kafka's names, each value as a user sets it."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in show(config).items()}


def defaults(names: Iterable[str]) -> dict[str, str]:
    """Return the default values of these settings. Raise `InvalidOption` for an unknown name."""
    known = words(TopicConfig())
    for name in names:
        if name not in known:
            raise _unknown(name)
    return {name: known[name] for name in names}


def _read(settings: Mapping[str, str]) -> dict[str, Any]:
    allowed = {each.name: each.allowed for each in _FIELDS.values()}
    values: dict[str, Any] = {}
    for name, text in settings.items():
        if name == "cleanup.policy":
            if text != "delete":
                raise InvalidOption(name, f"cleanup.policy={text} is not supported; leave it at 'delete'")
        elif name not in allowed:
            raise _unknown(name)
        else:
            values[name] = _value(name, text, allowed[name])
    return values


def _value(name: str, text: str, allowed: int | tuple[str, ...] | None) -> int | str | bool:
    if allowed is None:
        return text
    if isinstance(allowed, int):
        return _whole_number(name, text, allowed)
    if text not in allowed:
        raise InvalidOption(name, f"{name}={text!r} is unknown; choose {_listed(allowed, 'or')}")
    return text == "true" if "true" in allowed else text


def _listed(names: Sequence[str], word: str) -> str:
    *others, last = names
    return f"{', '.join(others)} {word} {last}"


def _unknown(name: str) -> InvalidOption:
    known = [each.name for each in _FIELDS.values()]
    advice = broker_settings.advice(name)
    close = difflib.get_close_matches(name, known, 1, cutoff=_SIMILAR if advice is None else _MISSPELT)
    if advice is not None and (name in broker_settings.SETTINGS or not close):
        hint = f": {advice}"
    else:
        hint = f"; did you mean {close[0]!r}?" if close else f"; choose one of {', '.join(known)}"
    return InvalidOption(name, f"unknown topic configuration {name!r}{hint}")


def _whole_number(name: str, text: str, lowest: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = lowest - 1
    if not lowest <= number < 2**63:
        raise InvalidOption(name, f"topic configuration {name}={text!r} must be a whole number of {lowest} or more")
    return number
