"""The table of all options: the parser, the error messages and docs/options.md come from these rows."""

from __future__ import annotations

from typing import Any, Literal, get_args

from pyspark_log.options import position, subscription
from pyspark_log.options.option import EVERYWHERE, REQUIRED, SINK, SOURCE, Kind, Option
from pyspark_log.options.value import (
    DURATION_MS,
    INT_MAX,
    TEXT,
    TOPIC,
    URL,
    boolean,
    choice,
    integer,
)
from pyspark_log_storage.compression import Compression

Acks = Literal["all", "1", "0"]


BATCH_READ = frozenset({Kind.SOURCE_BATCH})
STREAM_READ = frozenset({Kind.SOURCE_STREAM})
BATCH_WRITE = frozenset({Kind.SINK_BATCH})

_ACKS: dict[str, Acks] = {"all": "all", "-1": "all", "1": "1", "0": "0"}

_KAFKAS_CODECS = frozenset({"gzip", "snappy"})

_ONE_OF = "Exactly one of subscribe, subscribePattern and assign is given"
_ONE_NEEDED = "one of the three is needed"
_NO_END = "a streaming read has no end; leave it out, or read with spark.read"
_NO_TRIGGER = "a batch read has no triggers"

PATH = Option(
    name="path",
    kinds=EVERYWHERE,
    value=URL,
    unset=REQUIRED,
    meaning=(
        "The cluster root, or journal nodes of the cluster, one or several of them;"
        " `.load(path)`, `.start(path)` and `.save(path)` set it too."
    ),
    differs=(
        "It takes the place of `kafka.bootstrap.servers`: there is no broker, the address is a place in a store."
        " Commas separate addresses, so a folder whose path has a comma cannot be used."
    ),
)
ASYNC_PROGRESS = Option(
    name="asyncProgressTrackingEnabled",
    kinds=EVERYWHERE,
    value=boolean("Spark would then store offsets after the rows were written, so exactly-once would not hold"),
    default="false",
    meaning="Spark's asynchronous progress tracking, which cannot be used here.",
    differs="Refused: offsets become durable late, so a restart could write rows again.",
)

SUBSCRIBE = Option(
    name="subscribe",
    kinds=SOURCE,
    value=subscription.SUBSCRIBE,
    unset=_ONE_NEEDED,
    meaning=f"The topics to read. {_ONE_OF}.",
)
SUBSCRIBE_PATTERN = Option(
    name="subscribePattern",
    kinds=SOURCE,
    value=subscription.SUBSCRIBE_PATTERN,
    unset=_ONE_NEEDED,
    meaning=f"The topics to read, also those made while the query runs. {_ONE_OF}.",
    differs=(
        "The syntax is that of Python's `re`, not Java's: the source runs in Python. Most patterns are the same in"
        " both. It must match the whole name, as in Kafka's consumers; the Kafka connector takes a part of it, too."
    ),
)
ASSIGN = Option(
    name="assign",
    kinds=SOURCE,
    value=subscription.ASSIGN,
    unset=_ONE_NEEDED,
    meaning=f"The partitions to read. {_ONE_OF}.",
    differs="A partition that its topic does not have is an error; the Kafka connector leaves it out in silence.",
)

STARTING_TIMESTAMP = Option(
    name="startingTimestamp",
    kinds=SOURCE,
    value=position.GLOBAL_TIMESTAMP,
    meaning="A new query starts in every partition at the first row of this time or later.",
)
STARTING_OFFSETS_BY_TIMESTAMP = Option(
    name="startingOffsetsByTimestamp",
    kinds=SOURCE,
    value=position.TIMESTAMPS,
    meaning="A new query starts in each partition at the first row of its time or later.",
)
STARTING_OFFSETS_BATCH = Option(
    name="startingOffsets",
    kinds=BATCH_READ,
    value=position.BATCH_START,
    default="earliest",
    meaning="Where the read starts.",
)
STARTING_OFFSETS_STREAM = Option(
    name="startingOffsets",
    kinds=STREAM_READ,
    value=position.STREAM_START,
    default="latest",
    meaning=(
        "Where a new query starts; a restarted one goes on from its checkpoint, and new partitions start at earliest."
    ),
)
NO_MATCH = Option(
    name="startingOffsetsByTimestampStrategy",
    kinds=SOURCE,
    value=choice({strategy.value: strategy for strategy in position.NoMatch}),
    default="error",
    meaning=(
        "What to do where a partition has no row as new as the time to start from: fail, or start at its latest offset."
    ),
)
ENDING_TIMESTAMP = Option(
    name="endingTimestamp",
    kinds=BATCH_READ,
    value=position.GLOBAL_TIMESTAMP,
    meaning=("The read ends in every partition before the first row of this time or later, or at its latest offset."),
    differs=(
        "Refused in a streaming read, as the other two endings are; Spark's Kafka source ignores it there in silence."
    ),
    not_here=_NO_END,
)
ENDING_OFFSETS_BY_TIMESTAMP = Option(
    name="endingOffsetsByTimestamp",
    kinds=BATCH_READ,
    value=position.TIMESTAMPS,
    meaning=("The read ends in each partition before the first row of its time or later, or at its latest offset."),
    not_here=_NO_END,
)
ENDING_OFFSETS = Option(
    name="endingOffsets",
    kinds=BATCH_READ,
    value=position.BATCH_END,
    default="latest",
    meaning="Where the read ends; the offset itself is not read.",
    not_here=_NO_END,
)

FAIL_ON_DATA_LOSS = Option(
    name="failOnDataLoss",
    kinds=SOURCE,
    value=boolean(),
    default="true",
    meaning=(
        "Whether a query fails when rows that it must read are gone, or logs a warning and goes on with the nearest"
        " that are there."
    ),
)
MAX_OFFSETS_PER_TRIGGER = Option(
    name="maxOffsetsPerTrigger",
    kinds=STREAM_READ,
    value=integer(1),
    meaning="The most rows of a micro-batch, shared out by what each partition has waiting; one of each at least.",
    differs="0 and negative numbers are refused, because such a query would never read a row.",
    not_here=_NO_TRIGGER,
    ignored_elsewhere=True,
)
MIN_OFFSETS_PER_TRIGGER = Option(
    name="minOffsetsPerTrigger",
    kinds=STREAM_READ,
    value=integer(0),
    meaning="A micro-batch waits for this many rows, but not longer than maxTriggerDelay.",
    not_here=_NO_TRIGGER,
    ignored_elsewhere=True,
)
MAX_TRIGGER_DELAY = Option(
    name="maxTriggerDelay",
    kinds=STREAM_READ,
    value=DURATION_MS,
    default="15m",
    meaning="The longest time for which minOffsetsPerTrigger holds rows back.",
    not_here=_NO_TRIGGER,
    ignored_elsewhere=True,
)
MIN_PARTITIONS = Option(
    name="minPartitions",
    kinds=SOURCE,
    value=integer(1, INT_MAX),
    meaning="About this many Spark tasks or more read a batch: large ranges are split.",
)
MAX_RECORDS_PER_PARTITION = Option(
    name="maxRecordsPerPartition",
    kinds=SOURCE,
    value=integer(1),
    meaning="The most rows that one Spark task reads of a batch: larger ranges are split.",
)
INCLUDE_HEADERS = Option(
    name="includeHeaders",
    kinds=SOURCE,
    value=boolean(),
    default="false",
    meaning="Whether rows have the column `headers`.",
)
VERSION_AS_OF = Option(
    name="versionAsOf",
    kinds=frozenset({Kind.SOURCE_BATCH}),
    value=integer(1),
    unset="the newest",
    meaning="The read ends where the one topic ended at this version: an entry of its journal, one for each write.",
    differs="Not in Kafka. A version is a consistent cut across all partitions of a topic; the name is Delta's.",
    not_here="a stream goes on where others write; leave it out, or read with spark.read",
)
CLIENT_RACK = Option(
    name="client.rack",
    kinds=SOURCE,
    value=TEXT,
    meaning="The rack where the tasks run: rows are read from a node of that rack, where one has them.",
    prefixed=("client.rack",),
)

WRITE_TOPIC = Option(
    name="topic",
    kinds=SINK,
    value=TOPIC,
    unset="the column `topic`",
    meaning="The topic of all rows; it goes before a column `topic`.",
)
ACKS = Option(
    name="acks",
    kinds=SINK,
    value=choice(_ACKS),
    default="all",
    meaning=(
        "A batch counts when all in-sync replicas have it on disk (all, -1), when the leader has (1), or"
        " before that (0)."
    ),
    differs=("0 waits for the leader's store too, but not for its disk: a batch has no offsets before it is stored."),
    prefixed=("acks",),
)
COMPRESSION_TYPE = Option(
    name="compression.type",
    kinds=SINK,
    value=choice(
        {codec: codec for codec in get_args(Compression)},
        dict.fromkeys(_KAFKAS_CODECS, "chunks are Arrow data, and Arrow has no such codec"),
    ),
    unset="the topic's, which is lz4 unless set",
    meaning="How the rows are compressed.",
    differs=(
        "There is no gzip and no snappy, because chunks are Arrow data: as `kafka.compression.type` they are ignored"
        " with the warning. What is not set is the topic's choice, not none."
    ),
    prefixed=("compression.type",),
    only_kafkas=_KAFKAS_CODECS,
)
TXN_APP_ID = Option(
    name="txnAppId",
    kinds=SINK,
    value=TEXT,
    unset="a stream's query id; none for a batch write",
    meaning=(
        "The name under which the writer's batches are written once each; it outlives the checkpoint. A batch write"
        " has a txnVersion with it."
    ),
    differs=(
        "Kafka's sink repeats rows after a failure; here each (writer, batch) is in the log once. The name is Delta's."
    ),
)
TXN_VERSION = Option(
    name="txnVersion",
    kinds=BATCH_WRITE,
    value=integer(0),
    meaning="The number of this batch of txnAppId: the last one again is skipped, a lower one is an error.",
    differs=(
        "With it a batch write, also in `foreachBatch`, can be repeated safely. A lower number is an"
        " error, where Delta skips."
    ),
    not_here="the number of the micro-batch is used; leave it out",
)
TXN_TAKE_OVER = Option(
    name="txnTakeOver",
    kinds=SINK,
    value=boolean(),
    default="false",
    meaning="Whether this query takes over a txnAppId that another query has written under.",
    differs=(
        "A known txnAppId from another query, such as one with a new checkpoint, is an error without it,"
        " never silent loss."
    ),
)
RETRIES = Option(
    name="retries",
    kinds=SINK,
    value=integer(0, INT_MAX),
    default=str(INT_MAX),
    meaning="How often a step that failed for a passing reason is tried again, within delivery.timeout.ms.",
    prefixed=("retries",),
)
RETRY_BACKOFF_MS = Option(
    name="retry.backoff.ms",
    kinds=SINK,
    value=integer(0, INT_MAX),
    default="100",
    meaning="The first wait before a retry, in milliseconds; it grows with each, up to a second, and varies.",
    prefixed=("retry.backoff.ms",),
)
DELIVERY_TIMEOUT_MS = Option(
    name="delivery.timeout.ms",
    kinds=SINK,
    value=integer(1, INT_MAX),
    default="120000",
    meaning="How long each step of a write is retried, in milliseconds: opening the log, writing files, the commit.",
    prefixed=("delivery.timeout.ms",),
)
MAX_MESSAGE_BYTES = Option(
    name="max.message.bytes",
    kinds=SINK,
    value=integer(1, INT_MAX),
    default="1048588",
    meaning="The most bytes of one row; the topic's own max.message.bytes bounds it too.",
    differs="It bounds a row, not a batch of rows; `kafka.max.request.size` means it too.",
    prefixed=("max.request.size",),
)
AUTO_CREATE_TOPICS = Option(
    name="auto.create.topics.enable",
    kinds=SINK,
    value=boolean(),
    default="true",
    meaning="Whether a topic that does not exist is made, or is an error.",
    differs="In Kafka this is a setting of the brokers, and there are none.",
)
NUM_PARTITIONS = Option(
    name="num.partitions",
    kinds=SINK,
    value=integer(1, 100_000),
    default="1",
    meaning="The number of partitions of a topic that the writer makes.",
    differs="In Kafka this is a setting of the brokers, and there are none.",
)
DEFAULT_REPLICATION_FACTOR = Option(
    name="default.replication.factor",
    kinds=SINK,
    value=integer(1, 32_767),
    unset="3, or as many as there are nodes in service",
    meaning="On how many nodes each partition of a topic lies that the writer makes.",
    differs="In Kafka this is a setting of the brokers, and 1.",
)
REQUEST_TIMEOUT_MS = Option(
    name="request.timeout.ms",
    kinds=SINK,
    value=integer(1, INT_MAX),
    default="30000",
    meaning="How much longer than the quickest node another may take to write a file, until it is left out, in ms.",
    prefixed=("request.timeout.ms",),
)
BROKER_SESSION_TIMEOUT_MS = Option(
    name="broker.session.timeout.ms",
    kinds=SINK,
    value=integer(1, INT_MAX),
    default="9000",
    meaning="How long a node must be out of reach of a write that waits for it, until another leads instead, in ms.",
    differs="In Kafka this is a setting of the controllers. With acks=all nobody waits for it.",
)

TABLE: tuple[Option[Any], ...] = (
    PATH,
    SUBSCRIBE,
    SUBSCRIBE_PATTERN,
    ASSIGN,
    STARTING_OFFSETS_BATCH,
    STARTING_OFFSETS_STREAM,
    STARTING_TIMESTAMP,
    STARTING_OFFSETS_BY_TIMESTAMP,
    NO_MATCH,
    ENDING_OFFSETS,
    ENDING_TIMESTAMP,
    ENDING_OFFSETS_BY_TIMESTAMP,
    FAIL_ON_DATA_LOSS,
    MAX_OFFSETS_PER_TRIGGER,
    MIN_OFFSETS_PER_TRIGGER,
    MAX_TRIGGER_DELAY,
    MIN_PARTITIONS,
    MAX_RECORDS_PER_PARTITION,
    INCLUDE_HEADERS,
    VERSION_AS_OF,
    CLIENT_RACK,
    WRITE_TOPIC,
    ACKS,
    COMPRESSION_TYPE,
    TXN_APP_ID,
    TXN_VERSION,
    TXN_TAKE_OVER,
    RETRIES,
    RETRY_BACKOFF_MS,
    DELIVERY_TIMEOUT_MS,
    MAX_MESSAGE_BYTES,
    AUTO_CREATE_TOPICS,
    NUM_PARTITIONS,
    DEFAULT_REPLICATION_FACTOR,
    REQUEST_TIMEOUT_MS,
    BROKER_SESSION_TIMEOUT_MS,
    ASYNC_PROGRESS,
)
