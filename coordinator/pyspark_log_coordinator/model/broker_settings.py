"""Settings of Kafka's brokers and of its old producer, with advice for users who try them here.

There is no broker configuration file here: each topic has its own configuration. Sources: Kafka's `server.properties`,
KIP-16, KIP-19.
"""

from __future__ import annotations

_TOPIC_SETTINGS = {
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
    "message.max.bytes": "max.message.bytes",
}
_FOLDERS = "the addresses of the cluster and its nodes say where rows are stored; use path, and pyspark-log nodes add"

SETTINGS = {
    "replica.lag.max.messages": (
        "Kafka removed it in 0.9 (KIP-16), because a burst of rows put healthy followers out of sync; use the topic's "
        "replica.lag.time.max.ms"
    ),
    "request.required.acks": "it was an option of Kafka's producer before 0.9; use acks, which a write takes",
    "log.dir": _FOLDERS,
    "log.dirs": _FOLDERS,
} | {name: f"it is a setting of Kafka's brokers; use the topic's {here}" for name, here in _TOPIC_SETTINGS.items()}
"""What to use instead, by name."""

PREFIXES = ("log.", "replica.")
"""The beginnings of the names of other broker settings."""


def advice(name: str) -> str | None:
    """Return what to do about a setting of Kafka's brokers or its old producer, or None if it is neither."""
    if name.startswith(PREFIXES) and name not in SETTINGS:
        return "it is a setting of Kafka's brokers, and there are none; leave it out"
    return SETTINGS.get(name)
