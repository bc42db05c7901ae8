"""The configuration of a topic, under Kafka's names and with Kafka's defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from pyspark_log_coordinator.model.settings import LONG_MAX, Meaning, StoredConfig
from pyspark_log_storage.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from typing_extensions import Self

    from pyspark_log_storage.columns.compaction_columns import CompactionColumns

MAX_MESSAGE_BYTES = 1_048_588
REPLICA_LAG_TIME_MAX_MS = 30_000
UNLIMITED = -1
_DAY_MS = 86_400_000

_OF_TOPICS = {
    "log.cleaner.delete.retention.ms": "delete.retention.ms",
    "log.cleaner.max.compaction.lag.ms": "max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio",
    "log.cleaner.min.compaction.lag.ms": "min.compaction.lag.ms",
    "log.cleanup.policy": "cleanup.policy",
    "log.flush.interval.messages": "flush.messages",
    "log.flush.interval.ms": "flush.ms",
    "log.retention.bytes": "retention.bytes",
    "log.retention.hours": "retention.ms, in milliseconds",
    "log.retention.minutes": "retention.ms, in milliseconds",
    "log.retention.ms": "retention.ms",
    "log.roll.hours": "segment.ms, in milliseconds",
    "log.roll.ms": "segment.ms",
    "log.segment.bytes": "segment.bytes",
    "log.segment.delete.delay.ms": "file.delete.delay.ms",
    "log.message.timestamp.after.max.ms": "message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms",
    "message.max.bytes": "max.message.bytes",
}
_FOLDERS = "the addresses of the cluster and its nodes say where rows are stored; use path, and pyspark-log nodes add"

BROKER_SETTINGS = {
    "replica.lag.max.messages": (
        "Kafka removed it in 0.9 (KIP-16), because a burst of rows put healthy followers out of sync; use the topic's "
        "replica.lag.time.max.ms"
    ),
    "request.required.acks": "it was an option of Kafka's producer before 0.9; use acks, which a write takes",
    "log.dir": _FOLDERS,
    "log.dirs": _FOLDERS,
} | {name: f"it is a setting of Kafka's brokers; use the topic's {here}" for name, here in _OF_TOPICS.items()}
"""What to use instead of settings of Kafka's brokers and of its old producer, by name.

There is no broker configuration file here: each topic has its own configuration. Sources: Kafka's `server.properties`,
KIP-16, KIP-19.
"""

_PREFIXES = ("log.", "replica.")
"""The beginnings of the names of other broker settings."""


def broker_advice(name: str) -> str | None:
    """Return what to do about a setting of Kafka's brokers or its old producer, or None if it is neither."""
    if name.startswith(_PREFIXES) and name not in BROKER_SETTINGS:
        return "it is a setting of Kafka's brokers, and there are none; leave it out"
    return BROKER_SETTINGS.get(name)


class TopicConfig(StoredConfig, frozen=True):
    """The settings of a topic. Sizes in bytes, times in milliseconds."""

    OWNER = "topic"

    compression_type: Annotated[
        Literal["none", "lz4", "zstd"], Meaning("Compression of the rows, unless the writer chooses another.")
    ] = "lz4"
    """Kafka's default is the producer's, which here is lz4 too."""
    min_insync_replicas: Annotated[
        int,
        Meaning(
            "Number of replicas that must be in sync for a write with acks=all; all replicas if the topic has fewer.", 1
        ),
    ] = 1
    max_message_bytes: Annotated[
        int, Meaning("Maximum size in bytes of the key, value and headers of one row together.", 1)
    ] = MAX_MESSAGE_BYTES
    message_timestamp_after_max_ms: Annotated[
        int, Meaning("A row is refused if its timestamp is more than this many ms in the future.")
    ] = 3_600_000
    message_timestamp_before_max_ms: Annotated[
        int, Meaning("A row is refused if its timestamp is more than this many ms in the past.")
    ] = LONG_MAX
    segment_bytes: Annotated[
        int,
        Meaning(
            "Maximum size in bytes of a merged segment. A partition with this many unrolled bytes, or 32 MB, is "
            "rolled.",
            1,
        ),
    ] = 1024**3
    segment_format: Annotated[
        Literal["log", "parquet"],
        Meaning("Format of merged segments, and of large ones; parquet: other engines can read these files, too."),
    ] = "log"
    parquet_max_lag_ms: Annotated[
        int,
        Meaning(
            "With segment.format=parquet: maintain and node run write a partition's newest rows to a Parquet "
            "file when the oldest of them was written this many ms ago; writers do so after an hour, or later. "
            "-1 means never.",
            UNLIMITED,
        ),
    ] = 300_000
    segment_ms: Annotated[
        int, Meaning("A partition is rolled when its oldest unrolled row was written this many ms ago.", 1)
    ] = 7 * _DAY_MS
    flush_messages: Annotated[
        int, Meaning("A partition with this many unrolled rows is rolled, which moves the recovery point.", 1)
    ] = LONG_MAX
    flush_ms: Annotated[int, Meaning("The same as segment.ms; the smaller of the two applies.", 0)] = LONG_MAX
    retention_ms: Annotated[
        int, Meaning("A segment is deleted when its newest row is older than this many ms; -1 means never.", UNLIMITED)
    ] = 7 * _DAY_MS
    retention_bytes: Annotated[
        int,
        Meaning(
            "The oldest segments are deleted while a partition has more bytes than this; -1 means no limit.", UNLIMITED
        ),
    ] = UNLIMITED
    cleanup_policy: Annotated[
        Literal["delete", "compact", "compact,delete"],
        Meaning(
            "delete: old segments are deleted, by retention.ms and retention.bytes; compact: the newest row of each "
            "key is kept; compact,delete: both."
        ),
    ] = "delete"
    min_cleanable_dirty_ratio: Annotated[
        float,
        Meaning(
            "With cleanup.policy=compact: a partition is compacted when this share of its bytes was written since the "
            "last time.",
            0,
            1,
        ),
    ] = 0.5
    min_compaction_lag_ms: Annotated[
        int, Meaning("With cleanup.policy=compact: rows are not compacted until they are this many ms old.")
    ] = 0
    max_compaction_lag_ms: Annotated[
        int,
        Meaning(
            "With cleanup.policy=compact: a partition is compacted when its oldest row that is not was written this "
            "many ms ago, whatever its share.",
            1,
        ),
    ] = LONG_MAX
    delete_retention_ms: Annotated[
        int,
        Meaning(
            "With cleanup.policy=compact: how many ms a row without a value, which deletes its key, is kept after it "
            "was compacted, so that readers see it."
        ),
    ] = _DAY_MS
    file_delete_delay_ms: Annotated[
        int,
        Meaning(
            "Time in ms for which the bytes of a replaced or expired file are kept for readers that still use it.", 0
        ),
    ] = 60_000
    orphan_retention_ms: Annotated[
        int, Meaning("Time in ms for which a file that no journal entry names is kept: its writer may be slow.", 0)
    ] = _DAY_MS
    unclean_leader_election_enable: Annotated[
        bool, Meaning("Whether an out-of-sync replica may lead when no other can; the rows that it lacks are lost.")
    ] = False
    replication_mode: Annotated[
        Literal["isr", "quorum"],
        Meaning(
            "isr: a row is committed when all in-sync replicas hold it; quorum: when a majority of the replicas does."
        ),
    ] = "isr"
    replica_lag_time_max_ms: Annotated[
        int, Meaning("A reachable follower that has not been caught up for this many ms leaves the ISR.", 1)
    ] = REPLICA_LAG_TIME_MAX_MS
    key_column: Annotated[
        str,
        Meaning(
            "Column of a typed topic whose values choose the partitions, as keys do; several are separated by commas. "
            "Once set, it is never changed."
        ),
    ] = ""
    delete_when: Annotated[
        str,
        Meaning(
            "Column of a typed topic, of type BOOLEAN: with cleanup.policy=compact a row in which it is true deletes "
            "its key."
        ),
    ] = ""

    @property
    def compaction_columns(self) -> CompactionColumns:
        """The columns that compaction reads in the topic's rows."""
        from pyspark_log_storage.columns.compaction_columns import CompactionColumns, key_columns_of

        if not self.key_column:
            return CompactionColumns()
        return CompactionColumns(key_columns_of(self.key_column), "", self.delete_when)

    @property
    def is_compacted(self) -> bool:
        """Whether only the newest row of each key is kept."""
        return self.cleanup_policy != "delete"

    def alter(self, settings: Mapping[str, str]) -> Self:
        """Return this with `settings` changed. The order of two words of cleanup.policy has no meaning."""
        policy = settings.get("cleanup.policy")
        if policy is not None:
            settings = {**settings, "cleanup.policy": ",".join(sorted(word.strip() for word in policy.split(",")))}
        return super().alter(settings)

    @classmethod
    def _unknown(cls, name: str, advice: str | None = None) -> InvalidOption:
        advice = broker_advice(name) or advice
        if name in BROKER_SETTINGS:
            return InvalidOption(name, f"unknown topic configuration {name!r}: {advice}")
        return super()._unknown(name, advice)


def parse(settings: Mapping[str, str]) -> TopicConfig:
    """Return the configuration in `settings`, by Kafka's names. Raise `InvalidOption` for any that is invalid."""
    return TopicConfig().alter(settings)


def check_min_insync(topic: str, config: TopicConfig, replicas: int) -> None:
    """Raise `InvalidOption` if min.insync.replicas is larger than the topic's number of `replicas`."""
    if config.min_insync_replicas > replicas:
        raise InvalidOption(
            "min.insync.replicas",
            f"topic {topic!r} cannot require {config.min_insync_replicas} in-sync replicas: "
            f"it has {replicas}; choose fewer, or a higher replication factor",
        )


def with_columns(topic: str, config: TopicConfig, schemas: Sequence[bytes]) -> TopicConfig:
    """Return the configuration with the columns that it names spelt as in the newest of the topic's schemas.

    Raise `InvalidOption` if the topic is not typed, has no such columns, or if their values cannot be keys, or say
    whether a row deletes its key; and if the topic is typed, and compacted, but no column has the keys.
    """
    if not (config.key_column or config.delete_when or config.is_compacted):
        return config
    from pyspark_log_storage.columns import (  # Arrow is slow to import, and most topics have no such columns
        column_types,
        compaction_columns,
        schema,
    )

    (newest,) = schema.decode_all(schemas[-1:], f"topic {topic!r}")
    columns = schema.columns_of(newest) if schema.is_typed(newest) else None

    def column_named(setting: str, name: str) -> pa.Field:
        if columns is None:
            raise InvalidOption(
                setting,
                f"{setting}={name} is for typed topics, and topic {topic!r} holds records of key and value; remove it",
            )
        for field in columns:
            if field.name.lower() == name.lower():
                return field
        raise InvalidOption(
            setting,
            f"topic {topic!r}: {setting} is {name!r}, and the columns are {column_types.ddl(columns):.500}; choose "
            "one of these",
        )

    if config.key_column:
        keys = [column_named("key.column", name) for name in compaction_columns.key_columns_of(config.key_column)]
        for key in keys:
            if key.type not in column_types.KEY_TYPES:
                raise InvalidOption(
                    "key.column",
                    f"topic {topic!r}: key.column {key.name!r} has type {column_types.type_name(key.type)}; choose a "
                    "column of text, binary or whole numbers, or write the partition of each row in a column "
                    "'partition'",
                )
            if keys.count(key) > 1:
                raise InvalidOption("key.column", f"topic {topic!r}: key.column names {key.name!r} twice; name it once")
        config = msgspec.structs.replace(config, key_column=",".join(key.name for key in keys))
    elif config.is_compacted and columns is not None:
        raise InvalidOption(
            "cleanup.policy",
            f"topic {topic!r} has columns, and cleanup.policy={config.cleanup_policy} keeps the newest row of each "
            "key; say which column has the keys with key.column",
        )
    if config.delete_when:
        when = column_named("delete.when", config.delete_when)
        if column_types.type_name(when.type) != "boolean":
            raise InvalidOption(
                "delete.when",
                f"topic {topic!r}: delete.when {when.name!r} has type {column_types.type_name(when.type)}; choose a "
                "column of type BOOLEAN",
            )
        config = msgspec.structs.replace(config, delete_when=when.name)
    return config
