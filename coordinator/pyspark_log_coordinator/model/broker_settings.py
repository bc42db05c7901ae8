"""Settings of Kafka's brokers and of its old producer, and what takes their place here.

They are in the configuration files of people who come from Kafka. Here nobody reads such a file: each topic has its
own configuration, so the advice names the setting of the topic. Sources: Kafka's `server.properties`, KIP-16, KIP-19.
"""

from __future__ import annotations

_OF_THE_TOPIC = {
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

SETTINGS = {
    "replica.lag.max.messages": (
        "Kafka removed it in 0.9 (KIP-16), because a burst of rows put healthy followers out of sync; use the topic's "
        "replica.lag.time.max.ms, for only time counts"
    ),
    "request.required.acks": "it was an option of Kafka's producer before 0.9; use acks, which a write takes",
    "log.dir": "the address of the cluster and of its nodes says where rows lie; use path, and pyspark-log nodes add",
    "log.dirs": "the address of the cluster and of its nodes says where rows lie; use path, and pyspark-log nodes add",
} | {name: f"it is a setting of Kafka's brokers; use the topic's {here}" for name, here in _OF_THE_TOPIC.items()}
"""By name, what to do instead."""

PREFIXES = {
    "log.": "it is a setting of Kafka's brokers, and there are none; leave it out",
    "replica.": "it is a setting of Kafka's brokers, and there are none; leave it out",
}
"""What to do about other settings of the brokers, by how their names begin."""


def advice(name: str) -> str | None:
    """Return what to do instead of a setting, None if it is none of Kafka's brokers or of its old producer."""
    if name in SETTINGS:
        return SETTINGS[name]
    return next((why for prefix, why in PREFIXES.items() if name.startswith(prefix)), None)
