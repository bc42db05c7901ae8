"""Settings of Kafka's clients, of its brokers and of Spark's Kafka connector that are no options here.

A job or a program should move with only a new format and address. So what Kafka knows is ignored, with one warning,
unless it says what rows are read or written, and how: that is refused. A query has the settings of Kafka's clients with
the prefix `kafka.`, a client without. Names are in lower case, with dots, and a `*` stands for any text. Sources:
Kafka's `CommonClientConfigs`, `ConsumerConfig` and `ProducerConfig`, Spark's `KafkaSourceProvider`, the keywords of
kafka-python, librdkafka's list of settings.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from pyspark_log.options.option import CLIENTS, CONSUMER, MEMBERS, PRODUCER, QUERIES, SINK, SOURCE, Kind, Kinds, Options
from pyspark_log_coordinator.model.topic_config import TopicConfig, broker_advice

KAFKA_PREFIX = "kafka."

REFUSED: tuple[tuple[Kinds, str, str], ...] = (
    (SOURCE, "auto.offset.reset", "use startingOffsets"),
    (SOURCE, "enable.auto.commit", "commit offsets to a group with group.id"),
    (SOURCE, "key.deserializer value.deserializer", "decode the binary columns key and value"),
    (SINK, "key.serializer value.serializer", "encode the columns key and value"),
    (SINK, "partitioner.class partitioner.ignore.keys", "add a column `partition`, or keep the partitions of Kafka's"),
    (QUERIES, "interceptor.classes", "transform rows with DataFrame operations"),
    (QUERIES, "paths", "load one path: a cluster has one address"),
    (QUERIES, "option.* provider location", "give options with each statement: FROM events WITH (path='...')"),
    (CONSUMER, "key.deserializer value.deserializer", "decode keys and values in the program"),
    (PRODUCER, "key.serializer value.serializer", "encode keys and values before send"),
    (PRODUCER, "partitioner partitioner.class partitioner.ignore.keys", "give send a partition, or keep murmur2's"),
    (PRODUCER, "transactional.id transaction.*", "use `send_batch`: there are no transactions"),
    (PRODUCER | CONSUMER, "interceptor.classes", "change rows in the program"),
    (PRODUCER, "queue.buffering.max.messages queue.buffering.max.kbytes", "set buffer.memory"),
    (PRODUCER, "on.delivery dr.cb dr.msg.cb delivery.report.only.error", "give send an on_delivery"),
    (CONSUMER, "consumer.timeout.ms", "call poll with timeout_ms"),
    (CONSUMER, "default.offset.commit.callback on.commit", "catch what commit raises"),
    (CONSUMER, "enable.partition.eof", "compare position with end_offsets"),
    (CONSUMER, "enable.auto.offset.store", "give commit the offsets"),
)
"""Who refuses which names, and what to do instead."""

IGNORED: dict[Kinds, str] = {
    QUERIES | CLIENTS: """
        auto.include.jmx.reporter bootstrap.resolve.timeout.ms bootstrap.servers check.crcs client.dns.lookup
        connections.max.idle.ms enable.metrics.push isolation.level max.in.flight.requests.per.connection metadata.max.*
        metadata.recovery.* metric.reporters metrics.* receive.buffer.bytes reconnect.* retry.backoff.max.ms sasl.*
        security.* send.buffer.bytes socket.connection.setup.timeout.* ssl.*""",
    QUERIES: """
        allow.auto.create.topics auto.commit.interval.ms batch.size buffer.memory client.id compression.*.level
        config.providers* default.api.timeout.ms enable.idempotence exclude.internal.topics fetch.* group.id
        group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms linger.ms max.block.ms
        max.partition.fetch.bytes max.poll.* partition.assignment.strategy partitioner.adaptive.partitioning.enable
        partitioner.availability.timeout.ms session.timeout.ms transaction.* transactional.id""",
    CLIENTS: """
        api.version* bootstrap.* broker.address.* broker.version.fallback debug enable.incremental.fetch.sessions
        enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification error.cb https.ca.* kafka.client
        log.connection.close log.level log.queue log.thread.name logger max.in.flight message.copy.max.bytes metadata.*
        metric.* oauth.cb proxy.url queue.buffering.backpressure.threshold receive.message.max.bytes selector
        sock.chunk.* socket.* socks5.proxy statistics.interval.ms stats.cb throttle.cb topic.metadata.*""",
    PRODUCER: """
        batch.num.messages client.id client.rack compression.*level partitioner.adaptive.partitioning.enable
        partitioner.availability.timeout.ms sticky.partitioning.linger.ms""",
    MEMBERS: """
        coordinator.query.interval.ms fetch.error.backoff.ms fetch.queue.backoff.ms message.max.bytes request.timeout.ms
        retry.backoff.ms""",
    CONSUMER: """
        allow.auto.create.topics exclude.internal.topics fetch.min.bytes group.protocol group.remote.assignor
        queued.max.messages.kbytes queued.min.messages""",
}
"""Settings of Kafka's clients, by who ignores them."""
ONLY_KAFKAS = {("kafka.compression.type", "gzip"), ("kafka.compression.type", "snappy")}
"""Values that are ignored, so that a job can move as it is. Under the option's own name they are refused."""
SILENT = {"checkpointlocation", "queryname", "outputmode", "asyncprogresstrackingcheckpointintervalms"}
SILENT |= {"includeheaders"}
"""Spark's own options, which it also passes to data sources, and one of Kafka's source: ignored in silence."""
_CONNECTORS = "groupidprefix kafkaconsumer.polltimeoutms fetchoffset.numretries fetchoffset.retryintervalms"
"""Those of Spark's Kafka connector that are ignored."""


def _matches(name: str, words: str) -> bool:
    return any(fnmatchcase(name, word) for word in words.split())


def refusal(key: str, kind: Kind) -> str | None:
    """Return what to do instead of an option that is refused, or None if it is not."""
    setting = key.removeprefix(KAFKA_PREFIX)
    return next((advice for kinds, words, advice in REFUSED if kind in kinds and _matches(setting, words)), None)


def is_ignored(key: str, kind: Kind) -> bool:
    """Return whether Spark or Kafka knows an option that has no effect here, also if it has one in another query."""
    setting = key.removeprefix(KAFKA_PREFIX) if kind in QUERIES else key
    if kind in QUERIES and setting == key:
        return key in SILENT or _matches(key, _CONNECTORS)
    return any(kind in kinds and _matches(setting, words) for kinds, words in IGNORED.items()) or (
        kind in QUERIES and any(key in Options.OF[each] or refusal(key, each) is not None for each in QUERIES)
    )


def advice_elsewhere(key: str) -> str | None:
    """Return what to do about a setting of topics or brokers, or None if it is neither."""
    setting = key.removeprefix(KAFKA_PREFIX)
    if setting in TopicConfig().words():
        return f"it is a setting of the topic; set it with: pyspark-log topics alter TOPIC --config {setting}=VALUE"
    return broker_advice(setting)


def similar(key: str, kind: Kind) -> list[str]:
    """Return names of Kafka's clients that may be meant by one that is unknown."""
    if not key.startswith(KAFKA_PREFIX) or kind not in QUERIES:
        return []
    ignored = [word for kinds, words in IGNORED.items() if kind in kinds for word in words.split() if "*" not in word]
    taken = [name for each in QUERIES for name in Options.OF[each] if name.startswith(KAFKA_PREFIX)]
    return [*(KAFKA_PREFIX + word for word in ignored), *taken]
