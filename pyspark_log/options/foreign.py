"""Options of Kafka's clients, of Spark's Kafka connector and of Spark: ignored, or refused with a reason.

A job moves here by changing its format and address, so what only steers Kafka's clients is ignored with a
warning. What would change rows or their order, were it ignored, is refused. A name that ends with `*` stands
for all names that begin so. Sources: Kafka's `CommonClientConfigs`, `ConsumerConfig` and `ProducerConfig`,
Spark's `KafkaSourceProvider`.
"""

from __future__ import annotations

import msgspec

from pyspark_log.options.option import EVERYWHERE, SINK, SOURCE, Kind
from pyspark_log_coordinator.model import broker_settings

KAFKA_PREFIX = "kafka."


class Foreign(msgspec.Struct, frozen=True, kw_only=True):
    """Some names that are no options here, and why."""

    names: tuple[str, ...]
    why: str
    kinds: frozenset[Kind] = EVERYWHERE
    warns: bool = True

    def covers(self, key: str) -> bool:
        """Return whether `key`, in lower case, is one of the names."""
        return any(
            key.startswith(name[:-1].lower()) if name.endswith("*") else key == name.lower() for name in self.names
        )


def _kafka(names: str) -> tuple[str, ...]:
    return tuple(KAFKA_PREFIX + name for name in names.split())


IGNORED = (
    Foreign(
        names=_kafka(
            "bootstrap.servers bootstrap.resolve.timeout.ms client.dns.lookup client.id"
            " connections.max.idle.ms default.api.timeout.ms metadata.max.age.ms metadata.max.idle.ms"
            " metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms receive.buffer.bytes"
            " reconnect.backoff.ms reconnect.backoff.max.ms"
            " retry.backoff.max.ms send.buffer.bytes"
            " socket.connection.setup.timeout.ms socket.connection.setup.timeout.max.ms"
        ),
        why="there is no broker to connect to",
    ),
    Foreign(
        names=_kafka("security.* sasl.* ssl.* config.providers*"),
        why="the store's own credentials decide who may read and write",
    ),
    Foreign(
        names=_kafka("metrics.* metric.reporters enable.metrics.push auto.include.jmx.reporter"),
        why="the query's progress in Spark has the figures",
    ),
    Foreign(
        names=_kafka(
            "fetch.* max.partition.fetch.bytes max.poll.* check.crcs isolation.level exclude.internal.topics"
            " allow.auto.create.topics"
        ),
        why="no Kafka consumer reads: tasks read the store, check every CRC, and see only what is committed",
    ),
    Foreign(
        names=(
            *_kafka(
                "group.id group.instance.id group.protocol group.remote.assignor session.timeout.ms"
                " heartbeat.interval.ms partition.assignment.strategy auto.commit.interval.ms"
            ),
            "groupIdPrefix",
        ),
        why="a query's progress is in its checkpoint, not in a consumer group",
    ),
    Foreign(
        names=_kafka(
            "batch.size linger.ms buffer.memory max.block.ms max.in.flight.requests.per.connection"
            " enable.idempotence transactional.id transaction.timeout.ms"
            " transaction.two.phase.commit.enable"
            " partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms"
            " compression.gzip.level compression.lz4.level compression.zstd.level"
        ),
        why="no Kafka producer writes: tasks write files, and one commit gives them their offsets, once",
    ),
    Foreign(
        names=("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
        why="they steer the pool of consumers in Spark's Kafka connector",
    ),
    Foreign(
        names=("includeHeaders",),
        kinds=SINK,
        why="headers are written where the frame has a column `headers`, as by Spark's Kafka sink",
        warns=False,
    ),
    Foreign(
        names=("checkpointLocation", "queryName", "outputMode", "asyncProgressTrackingCheckpointIntervalMs"),
        why="Spark's own options, which it passes along",
        warns=False,
    ),
)


def _brokers() -> tuple[Foreign, ...]:
    """Return the settings of Kafka's brokers, with and without prefix, those with the same advice together."""
    names: dict[str, list[str]] = {}
    for name, why in broker_settings.SETTINGS.items():
        names.setdefault(why, []).append(name)
    return tuple(Foreign(names=(*found, *_kafka(" ".join(found))), why=why) for why, found in names.items())


REFUSED = (
    *_brokers(),
    Foreign(
        names=_kafka("auto.offset.reset"),
        kinds=SOURCE,
        why="a query starts where startingOffsets says and goes on from its checkpoint; use startingOffsets",
    ),
    Foreign(
        names=_kafka("enable.auto.commit"),
        kinds=SOURCE,
        why="Spark's checkpoint keeps the query's offsets; leave it out",
    ),
    Foreign(
        names=_kafka("key.deserializer value.deserializer"),
        kinds=SOURCE,
        why="keys and values arrive as binary; leave it out, and decode them with DataFrame operations",
    ),
    Foreign(
        names=_kafka("key.serializer value.serializer"),
        kinds=SINK,
        why=("keys and values are written as they are; leave it out, and encode them with DataFrame operations"),
    ),
    Foreign(
        names=_kafka("interceptor.classes"),
        why="Java classes do not run here; leave it out, and change rows with DataFrame operations",
    ),
    Foreign(
        names=_kafka("partitioner.class partitioner.ignore.keys"),
        kinds=SINK,
        why=("rows would land in other partitions than before; leave it out, and choose with a column `partition`"),
    ),
    Foreign(
        names=("group.id",),
        kinds=SOURCE,
        why="there are no consumer groups yet; leave it out: the query's progress is in its checkpoint",
    ),
    Foreign(
        names=("replica.lag.time.max.ms",),
        why=(
            "it is a configuration of the topic, so that all processes agree on it; leave it out, and set it with: "
            "pyspark-log topics alter TOPIC --config replica.lag.time.max.ms=30000"
        ),
    ),
    Foreign(
        names=("paths",),
        why="there is one cluster root; load one path, and choose topics with subscribe",
    ),
    Foreign(
        names=("option.*", "provider", "location"),
        why=("the options of a catalog table do not reach a Python data source; use a temporary view or spark.read"),
    ),
)
