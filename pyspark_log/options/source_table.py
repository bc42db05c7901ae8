"""The options of a read."""

from __future__ import annotations

from typing import Any

from pyspark_log.options import position, subscription
from pyspark_log.options.option import SOURCE, Kind, Option
from pyspark_log.options.value import BYTES, DURATION_MS, GROUP, MEMBER, RACK, boolean, choice, integer
from pyspark_log_coordinator.model.settings import INT_MAX

BATCH_READ = frozenset({Kind.SOURCE_BATCH})
STREAM_READ = frozenset({Kind.SOURCE_STREAM})

_ONE_OF = "Give exactly one of subscribe, subscribePattern and assign"
_ONE_NEEDED = "one of the three is required"
_NO_END = "a stream has no end; remove it, or use spark.read"
_NO_TRIGGER = "a batch read has no triggers"
_NO_GROUP = "a batch read is no member of a group"

SUBSCRIBE = Option(
    name="subscribe",
    kinds=SOURCE,
    value=subscription.SUBSCRIBE,
    unset=_ONE_NEEDED,
    meaning=f"Topics to read. {_ONE_OF}.",
)
SUBSCRIBE_PATTERN = Option(
    name="subscribePattern",
    kinds=SOURCE,
    value=subscription.SUBSCRIBE_PATTERN,
    unset=_ONE_NEEDED,
    meaning=f"Pattern of the names of topics to read, including topics created while the query runs. {_ONE_OF}.",
    differs=(
        "The syntax is that of Python's `re`, because the source runs in Python; most Java patterns mean the same. The"
        " pattern must match the whole name, as in Kafka's consumers; the Kafka connector accepts a partial match."
    ),
)
ASSIGN = Option(
    name="assign",
    kinds=SOURCE,
    value=subscription.ASSIGN,
    unset=_ONE_NEEDED,
    meaning=f"Partitions to read. {_ONE_OF}.",
    differs="A partition that does not exist is an error; the Kafka connector silently ignores it.",
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
        "Where a new query starts; group means the committed offsets of `group.id`, and latest for a partition without"
        " one. A restarted query resumes from its checkpoint; new partitions start at earliest."
    ),
)
STARTING_TIMESTAMP = Option(
    name="startingTimestamp",
    kinds=SOURCE,
    value=position.GLOBAL_TIMESTAMP,
    meaning="A new query starts at the first row of each partition with this timestamp or a later one.",
)
STARTING_OFFSETS_BY_TIMESTAMP = Option(
    name="startingOffsetsByTimestamp",
    kinds=SOURCE,
    value=position.TIMESTAMPS,
    meaning="As startingTimestamp, with a timestamp for each partition.",
)
NO_MATCH = Option(
    name="startingOffsetsByTimestampStrategy",
    kinds=SOURCE,
    value=choice({strategy.value: strategy for strategy in position.NoMatch}),
    default="error",
    meaning="What to do if a partition has no row with the starting timestamp or later: fail, or start at latest.",
)
ENDING_OFFSETS = Option(
    name="endingOffsets",
    kinds=BATCH_READ,
    value=position.BATCH_END,
    default="latest",
    meaning="Where the read ends, exclusive.",
    not_here=_NO_END,
)
ENDING_TIMESTAMP = Option(
    name="endingTimestamp",
    kinds=BATCH_READ,
    value=position.GLOBAL_TIMESTAMP,
    meaning=(
        "The read ends before the first row of each partition with this timestamp or a later one; without such a row,"
        " at latest."
    ),
    differs="A streaming read refuses it and the other two ending options; Spark's Kafka source ignores it there.",
    not_here=_NO_END,
)
ENDING_OFFSETS_BY_TIMESTAMP = Option(
    name="endingOffsetsByTimestamp",
    kinds=BATCH_READ,
    value=position.TIMESTAMPS,
    meaning="As endingTimestamp, with a timestamp for each partition.",
    not_here=_NO_END,
)
GROUP_ID = Option(
    name="group.id",
    kinds=STREAM_READ,
    value=GROUP,
    meaning=(
        "Group to which the query commits its offsets after each micro-batch, and whose rewinds it follows. The query"
        " itself resumes from its checkpoint."
    ),
    differs="Spark's Kafka source never commits offsets.",
    not_here="a batch read commits no offsets",
)
GROUP_PROTOCOL = Option(
    name="group.protocol",
    kinds=STREAM_READ,
    value=choice({"cooperative": "cooperative"}),
    unset="the query reads all partitions by itself",
    meaning=(
        "cooperative: the query is a member of the group `group.id`, and shares the topics' partitions with the group's"
        " other queries. See [Queries that share a topic](../guides/shared-topics.md)."
    ),
    differs="Spark's Kafka source cannot share partitions. Kafka's classic and consumer protocols are not values here.",
    not_here=_NO_GROUP,
)
GROUP_INSTANCE_ID = Option(
    name="group.instance.id",
    kinds=STREAM_READ,
    value=MEMBER,
    unset="required with group.protocol",
    meaning=(
        "The query's lasting name in its group: a query that is restarted under it, with its checkpoint, keeps"
        " its partitions. Each query of the group needs its own."
    ),
    not_here=_NO_GROUP,
)
SESSION_TIMEOUT_MS = Option(
    name="session.timeout.ms",
    kinds=STREAM_READ,
    value=integer(1, INT_MAX),
    default=str(1_800_000),
    meaning=(
        "With group.protocol: how long a query may send no heartbeat, in milliseconds, before the others get its"
        " partitions. The group's `group.max.session.timeout.ms` is the upper bound."
    ),
    differs="The default is the longest that Kafka allows, so that there is time to restart a query.",
    not_here=_NO_GROUP,
)
HEARTBEAT_INTERVAL_MS = Option(
    name="heartbeat.interval.ms",
    kinds=STREAM_READ,
    value=integer(1, INT_MAX),
    unset="3000; in an object store 15000, or a third of session.timeout.ms if that is less",
    meaning=(
        "With group.protocol: how often the query sends a heartbeat, and how soon it notices a rebalance, in"
        " milliseconds. A rebalance waits five times as long for a query that does not answer. In an object store each"
        " heartbeat is four requests."
    ),
    not_here=_NO_GROUP,
)
GROUP_KEEP_PARTITIONS = Option(
    name="group.keep.partitions",
    kinds=STREAM_READ,
    value=boolean(),
    default="false",
    meaning=(
        "With group.protocol: whether the query gives none of its partitions to queries that come later. A query with"
        " state needs it: the state stays in its checkpoint when a partition moves."
    ),
    differs="Not in Kafka.",
    not_here=_NO_GROUP,
)
FETCH_MAX_WAIT_MS = Option(
    name="fetch.max.wait.ms",
    kinds=STREAM_READ,
    value=integer(1, INT_MAX),
    unset="2500 for each topic",
    meaning=(
        "In an object store: longest pause between two checks for new rows, in milliseconds, of a query whose trigger"
        " asks more often. A pause is an eighth of the time since the last new rows. Elsewhere each trigger checks."
    ),
    differs="There is no broker that responds when rows arrive: this limits how late a row is seen after a pause.",
    not_here="a batch read does not wait for rows",
)
FAIL_ON_DATA_LOSS = Option(
    name="failOnDataLoss",
    kinds=SOURCE,
    value=boolean(),
    default="true",
    meaning=(
        "Whether to fail if rows to be read no longer exist. If false, the query logs a warning and continues with the"
        " nearest rows that exist."
    ),
)
MAX_OFFSETS_PER_TRIGGER = Option(
    name="maxOffsetsPerTrigger",
    kinds=STREAM_READ,
    value=integer(1),
    meaning=(
        "Maximum number of rows in a micro-batch, divided in proportion to the rows waiting in each partition, with at"
        " least one row for each."
    ),
    differs="0 and negative numbers are refused, because such a query would never read a row.",
    not_here=_NO_TRIGGER,
    ignored_elsewhere=True,
)
MAX_OFFSETS_PER_TRIGGER_PER_PARTITION = Option(
    name="maxOffsetsPerTriggerPerPartition",
    kinds=STREAM_READ,
    value=integer(1),
    meaning="Maximum number of rows of each partition in a micro-batch.",
    differs="Not in Kafka. Spark's DStreams had spark.streaming.kafka.maxRatePerPartition, in rows per second.",
    not_here=_NO_TRIGGER,
    ignored_elsewhere=True,
)
MAX_BYTES_PER_TRIGGER = Option(
    name="maxBytesPerTrigger",
    kinds=STREAM_READ,
    value=BYTES,
    meaning=(
        "Approximate maximum size of a micro-batch in stored, that is compressed, bytes. It is divided as"
        " maxOffsetsPerTrigger is, with at least one row for each partition; if both are given, the lower one applies."
    ),
    differs=(
        "Not in Kafka. The name is Delta's, and the limit is as soft: no row is read to find its size, so the rows of"
        " a chunk or a segment count as equally large."
    ),
    not_here=_NO_TRIGGER,
    ignored_elsewhere=True,
)
MIN_OFFSETS_PER_TRIGGER = Option(
    name="minOffsetsPerTrigger",
    kinds=STREAM_READ,
    value=integer(0),
    meaning="Minimum number of rows in a micro-batch; it starts earlier if maxTriggerDelay has passed.",
    not_here=_NO_TRIGGER,
    ignored_elsewhere=True,
)
MAX_TRIGGER_DELAY = Option(
    name="maxTriggerDelay",
    kinds=STREAM_READ,
    value=DURATION_MS,
    default="15m",
    meaning="Maximum time for which minOffsetsPerTrigger delays a micro-batch.",
    not_here=_NO_TRIGGER,
    ignored_elsewhere=True,
)
MIN_PARTITIONS = Option(
    name="minPartitions",
    kinds=SOURCE,
    value=integer(1, INT_MAX),
    meaning="Approximate minimum number of Spark tasks that read a batch. Large ranges of offsets are split.",
)
MAX_RECORDS_PER_PARTITION = Option(
    name="maxRecordsPerPartition",
    kinds=SOURCE,
    value=integer(1),
    meaning="Maximum number of rows that one Spark task reads of a batch. Larger ranges of offsets are split.",
)
INCLUDE_HEADERS = Option(
    name="includeHeaders",
    kinds=SOURCE,
    value=boolean(),
    default="false",
    meaning="Whether to add the column `headers`.",
)
VERSION_AS_OF = Option(
    name="versionAsOf",
    kinds=BATCH_READ,
    value=integer(1),
    unset="the newest",
    meaning="Read one topic as of this version. A version is an entry of the topic's journal; each write adds one.",
    differs="Not in Kafka. A version is a consistent cut across all partitions of a topic; the name is Delta's.",
    not_here="a stream follows new writes; remove it, or use spark.read",
)
TOPIC_IDS = Option(
    name="topicIds",
    kinds=BATCH_READ,
    value=subscription.TOPIC_IDS,
    unset="any",
    meaning=(
        "Fail if a topic has another id than this: it was deleted and created again. `read`, `replay` and"
        " `foreach_batch` set it."
    ),
    differs="Not in Kafka.",
    not_here="a stream has the ids in its checkpoint; remove it",
)
CLIENT_RACK = Option(
    name="client.rack",
    kinds=SOURCE,
    value=RACK,
    meaning="Rack of the Spark executors. Tasks prefer to read from a node in this rack.",
    prefixed=("client.rack",),
)
NATIVE_S3 = Option(
    name="nativeS3",
    kinds=SOURCE,
    value=boolean(),
    default="false",
    meaning=(
        "For `read`, `replay` and `foreach_batch`: whether Spark reads by itself the Parquet segments that are in S3,"
        " as it does those on disks. It needs Hadoop's s3a, with credentials of its own. See"
        " [In S3](../guides/tables.md#in-s3)."
    ),
    differs="Not in Kafka.",
)

OPTIONS: tuple[Option[Any], ...] = tuple(each for each in tuple(globals().values()) if isinstance(each, Option))
"""In the order of docs/reference/options.md."""
