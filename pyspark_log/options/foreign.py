"""Options of Kafka's clients, of Spark's Kafka connector and of Spark: ignored, or refused with a reason.

A job should move here with only a new format and address, so options that only configure Kafka's clients are ignored
with a warning. Options whose omission would change rows or their order are refused. The same holds for programs with
Kafka's Python clients. A name that ends with `*` is a prefix. Sources: Kafka's `CommonClientConfigs`, `ConsumerConfig`
and `ProducerConfig`, Spark's `KafkaSourceProvider`, the keywords of kafka-python, librdkafka's list of settings.
"""

from __future__ import annotations

import msgspec

from pyspark_log.options.option import CLIENTS, EVERYWHERE, SINK, SOURCE, Kind
from pyspark_log_coordinator.model.topic_config import BROKER_SETTINGS, REPLICA_LAG_TIME_MAX_MS

KAFKA_PREFIX = "kafka."


class Foreign(msgspec.Struct, frozen=True, kw_only=True):
    """Names that are not options here, and why."""

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
        why="use the metrics in the progress of the Spark query",
    ),
    Foreign(
        names=_kafka(
            "fetch.* max.partition.fetch.bytes max.poll.* check.crcs isolation.level exclude.internal.topics"
            " allow.auto.create.topics"
        ),
        why="there is no Kafka consumer: tasks read the store, check every CRC, and see only committed rows",
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
        why="there is no Kafka producer: tasks write files, and one commit assigns their offsets",
    ),
    Foreign(
        names=("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
        why="they configure the consumer pool of Spark's Kafka connector",
    ),
    Foreign(
        names=("includeHeaders",),
        kinds=SINK,
        why="headers are written if the DataFrame has a column `headers`, as in Spark's Kafka sink",
        warns=False,
    ),
    Foreign(
        names=("checkpointLocation", "queryName", "outputMode", "asyncProgressTrackingCheckpointIntervalMs"),
        why="Spark's own options, which it also passes to data sources",
        warns=False,
    ),
)


def _brokers() -> tuple[Foreign, ...]:
    """Return the settings of Kafka's brokers, with and without prefix, grouped by advice."""
    names: dict[str, list[str]] = {}
    for name, why in BROKER_SETTINGS.items():
        names.setdefault(why, []).append(name)
    return tuple(Foreign(names=(*found, *_kafka(" ".join(found))), why=why) for why, found in names.items())


REFUSED = (
    *_brokers(),
    Foreign(
        names=_kafka("auto.offset.reset"),
        kinds=SOURCE,
        why="use startingOffsets; a restarted query resumes from its checkpoint",
    ),
    Foreign(
        names=_kafka("enable.auto.commit"),
        kinds=SOURCE,
        why="Spark's checkpoint stores the query's offsets; remove it",
    ),
    Foreign(
        names=_kafka("key.deserializer value.deserializer"),
        kinds=SOURCE,
        why="keys and values are read as binary; remove it, and decode them with DataFrame operations",
    ),
    Foreign(
        names=_kafka("key.serializer value.serializer"),
        kinds=SINK,
        why="keys and values are written unchanged; remove it, and encode them with DataFrame operations",
    ),
    Foreign(
        names=_kafka("interceptor.classes"),
        why="Java classes are not supported; remove it, and transform rows with DataFrame operations",
    ),
    Foreign(
        names=_kafka("partitioner.class partitioner.ignore.keys"),
        kinds=SINK,
        why="ignoring it would change the partitions of rows; remove it, and add a column `partition`",
    ),
    Foreign(
        names=("replica.lag.time.max.ms",),
        why=(
            "it is a setting of the topic; remove it, and set it with: pyspark-log topics alter TOPIC --config "
            f"replica.lag.time.max.ms={REPLICA_LAG_TIME_MAX_MS}"
        ),
    ),
    Foreign(
        names=("paths",),
        why="a cluster has one address; load one path, and select topics with subscribe",
    ),
    Foreign(
        names=("option.*", "provider", "location"),
        why=(
            "a Python data source does not get the options of a catalog table; create it without them, and give them"
            " with each statement: FROM events WITH (path='...', subscribe='...'). Or use a temporary view or"
            " spark.read"
        ),
    ),
)

_PRODUCER = frozenset({Kind.PRODUCER})
_CONSUMER = frozenset({Kind.CONSUMER})
_MEMBERS = frozenset({Kind.CONSUMER, Kind.WORKER})


def _words(names: str) -> tuple[str, ...]:
    return tuple(names.split())


CLIENTS_IGNORED = (
    Foreign(
        names=_words(
            "bootstrap.* metadata.* topic.metadata.* client.dns.lookup connections.max.idle.ms reconnect.*"
            " retry.backoff.max.ms receive.buffer.bytes send.buffer.bytes socket.* broker.address.* api.version*"
            " broker.version.fallback receive.message.max.bytes message.copy.max.bytes log.connection.close"
            " enable.incremental.fetch.sessions selector kafka.client proxy.url socks5.proxy sock.chunk.* throttle_cb"
        ),
        kinds=CLIENTS,
        why="there is no broker to connect to",
    ),
    Foreign(names=("client.id",), kinds=_PRODUCER, why="there is no broker that shows it"),
    Foreign(
        names=_words(
            "request.timeout.ms retry.backoff.ms fetch.error.backoff.ms fetch.queue.backoff.ms"
            " coordinator.query.interval.ms"
        ),
        kinds=_MEMBERS,
        why="there is no broker that answers requests",
    ),
    Foreign(
        names=_words(
            "security.* sasl.* ssl.* https.ca.* enable.ssl.certificate.verification"
            " enable.sasl.oauthbearer.unsecure.jwt oauth_cb"
        ),
        kinds=CLIENTS,
        why="the store's own credentials decide who may read and write",
    ),
    Foreign(
        names=_words(
            "metrics.* metric.* enable.metrics.push auto.include.jmx.reporter statistics.interval.ms stats_cb"
        ),
        kinds=CLIENTS,
        why="a client has no metrics; those of the cluster are served by pyspark-log metrics",
    ),
    Foreign(
        names=_words("max.in.flight max.in.flight.requests.per.connection queue.buffering.backpressure.threshold"),
        kinds=CLIENTS,
        why="the batches of a topic are written in order",
    ),
    Foreign(
        names=_words(
            "partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms sticky.partitioning.linger.ms"
        ),
        kinds=_PRODUCER,
        why="rows of a batch without a key are written to one partition",
    ),
    Foreign(
        names=_words("compression.level compression.gzip.level compression.lz4.level compression.zstd.level"),
        kinds=_PRODUCER,
        why="each codec has one level",
    ),
    Foreign(names=("isolation.level",), kinds=CLIENTS, why="only committed rows are seen"),
    Foreign(names=("check.crcs",), kinds=CLIENTS, why="every checksum is checked"),
    Foreign(names=("fetch.min.bytes",), kinds=_CONSUMER, why="rows are returned as soon as there are any"),
    Foreign(
        names=_words("queued.min.messages queued.max.messages.kbytes"),
        kinds=_CONSUMER,
        why="rows are read when they are polled, and not before",
    ),
    Foreign(names=("batch.num.messages",), kinds=_PRODUCER, why="batch.size bounds a batch, by its bytes"),
    Foreign(names=("client.rack",), kinds=_PRODUCER, why="the replicas of a partition say where its rows are written"),
    Foreign(names=("message.max.bytes",), kinds=_MEMBERS, why="rows of all sizes are read"),
    Foreign(
        names=_words("debug log_level log.queue log.thread.name logger error_cb"),
        kinds=CLIENTS,
        why="errors are raised, and warnings logged with Python's logging",
    ),
    Foreign(names=("exclude.internal.topics",), kinds=_CONSUMER, why="there are no internal topics"),
    Foreign(names=("allow.auto.create.topics",), kinds=_CONSUMER, why="a Consumer creates no topics"),
    Foreign(
        names=_words("group.protocol group.remote.assignor"),
        kinds=_CONSUMER,
        why="the members of a group agree by its journal, as in Kafka's classic protocol",
    ),
)
"""Of Kafka's Python clients."""

CLIENTS_REFUSED = (
    Foreign(
        names=_words("key.serializer value.serializer"),
        kinds=_PRODUCER,
        why="keys and values are bytes or text; remove it, and encode them before send",
    ),
    Foreign(
        names=_words("key.deserializer value.deserializer"),
        kinds=_CONSUMER,
        why="keys and values are returned as bytes; remove it, and decode them in the program",
    ),
    Foreign(
        names=_words("partitioner partitioner.class partitioner.ignore.keys"),
        kinds=_PRODUCER,
        why=(
            "ignoring it could change the partitions of rows, and a key chooses the one of Kafka's murmur2"
            " (murmur2_random of librdkafka); remove it, and give send a partition if you want another one"
        ),
    ),
    Foreign(
        names=_words("transactional.id transaction.timeout.ms transaction.two.phase.commit.enable"),
        kinds=_PRODUCER,
        why=(
            "there are no transactions; remove it: rows of a `with producer.batch()` are in a topic whole or not at all"
        ),
    ),
    Foreign(
        names=("interceptor.classes",),
        kinds=_PRODUCER | _CONSUMER,
        why="Java classes are not supported; remove it, and change rows in the program",
    ),
    Foreign(
        names=_words("queue.buffering.max.messages queue.buffering.max.kbytes"),
        kinds=_PRODUCER,
        why="rows that wait are bounded by their bytes; remove it, and set buffer.memory",
    ),
    Foreign(
        names=_words("on_delivery dr_cb dr_msg_cb delivery.report.only.error"),
        kinds=_PRODUCER,
        why="each row has its own; remove it, and give send an on_delivery",
    ),
    Foreign(
        names=("consumer.timeout.ms",),
        kinds=_CONSUMER,
        why="a loop over a Consumer ends when it is closed; remove it, and call poll with timeout_ms",
    ),
    Foreign(
        names=_words("default.offset.commit.callback on_commit"),
        kinds=_CONSUMER,
        why="each call has its own; remove it, and give commit_async a callback",
    ),
    Foreign(
        names=("enable.partition.eof",),
        kinds=_CONSUMER,
        why="no record says that a partition ends; remove it, and compare position with end_offsets",
    ),
    Foreign(
        names=("enable.auto.offset.store",),
        kinds=_CONSUMER,
        why="a Consumer stores no offsets before they are committed; remove it, and give commit the offsets",
    ),
)
"""Of Kafka's Python clients. A program that has them would do something else here without them."""
