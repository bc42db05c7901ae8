"""The options of a read, parsed once at the edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pyspark_log.options import position
from pyspark_log.options.option import (
    ASYNC_PROGRESS,
    PATH,
    SOURCE,
    STORAGE_OPTIONS,
    AlwaysSet,
    Given,
    Ignored,
    Kind,
    Option,
    Options,
    table,
)
from pyspark_log.options.position import CommittedOffsets, Earliest, Latest, Position, check_range
from pyspark_log.options.subscription import (
    ASSIGN,
    COMPACTIONS,
    SUBSCRIBE,
    SUBSCRIBE_PATTERN,
    TOPIC_IDS,
    Subscription,
)
from pyspark_log.options.value import BYTES, DURATION_MS, GROUP, MEMBER, RACK, boolean, choice, integer, seconds
from pyspark_log_coordinator.group.config import HEARTBEAT_INTERVAL_MS
from pyspark_log_coordinator.model.settings import INT_MAX
from pyspark_log_storage.errors import InvalidOption

BATCH_READ = frozenset({Kind.SOURCE_BATCH})
STREAM_READ = frozenset({Kind.SOURCE_STREAM})

_ONE_OF = "Give exactly one of subscribe, subscribePattern and assign"
_ONE_NEEDED = "one of the three is required"
_NO_END = "a stream has no end; remove it, or use spark.read"
_NO_TRIGGER = "a batch read has no triggers"
_NO_GROUP = "a batch read is no member of a group"


class GroupMembership(Options):
    """How a streaming query is a member of its group. Times in ms."""

    instance_id = AlwaysSet(
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
    session_timeout_ms = AlwaysSet(
        name="session.timeout.ms",
        kinds=STREAM_READ,
        value=integer(1, INT_MAX),
        default=str(1_800_000),
        meaning=(
            "With group.protocol: how long a query may send no heartbeat, in milliseconds, before the others get"
            " its partitions. The group's `group.max.session.timeout.ms` is the upper bound."
        ),
        differs="The default is the longest that Kafka allows, so that there is time to restart a query.",
        not_here=_NO_GROUP,
    )
    heartbeat_interval_ms = Option(
        name="heartbeat.interval.ms",
        kinds=STREAM_READ,
        value=integer(1, INT_MAX),
        unset="3000; in an object store 15000, or a third of session.timeout.ms if that is less",
        meaning=(
            "With group.protocol: how often the query sends a heartbeat, and how soon it notices a rebalance, in"
            " milliseconds. A rebalance waits five times as long for a query that does not answer. In an object"
            " store each heartbeat is four requests."
        ),
        not_here=_NO_GROUP,
    )
    keeps_partitions = AlwaysSet(
        name="group.keep.partitions",
        kinds=STREAM_READ,
        value=boolean(),
        default="false",
        meaning=(
            "With group.protocol: whether the query gives none of its partitions to queries that come later. A"
            " query with state needs it: the state stays in its checkpoint when a partition moves."
        ),
        differs="Not in Kafka.",
        not_here=_NO_GROUP,
    )


class SourceOptions(Options):
    """The options of a read."""

    path = PATH
    _subscribe = Option(
        name="subscribe",
        kinds=SOURCE,
        value=SUBSCRIBE,
        unset=_ONE_NEEDED,
        meaning=f"Topics to read. {_ONE_OF}.",
    )
    _subscribe_pattern = Option(
        name="subscribePattern",
        kinds=SOURCE,
        value=SUBSCRIBE_PATTERN,
        unset=_ONE_NEEDED,
        meaning=f"Pattern of the names of topics to read, including topics created while the query runs. {_ONE_OF}.",
        differs=(
            "The syntax is that of Python's `re`, because the source runs in Python; most Java patterns mean the same."
            " The pattern must match the whole name, as in Kafka's consumers; the Kafka connector accepts a partial"
            " match."
        ),
    )
    _assign = Option(
        name="assign",
        kinds=SOURCE,
        value=ASSIGN,
        unset=_ONE_NEEDED,
        meaning=f"Partitions to read. {_ONE_OF}.",
        differs="A partition that does not exist is an error; the Kafka connector silently ignores it.",
    )
    subscription: Subscription
    _starting_offsets_batch = AlwaysSet(
        name="startingOffsets",
        kinds=BATCH_READ,
        value=position.BATCH_START,
        default="earliest",
        meaning="Where the read starts.",
    )
    _starting_offsets_stream = AlwaysSet(
        name="startingOffsets",
        kinds=STREAM_READ,
        value=position.STREAM_START,
        default="latest",
        meaning=(
            "Where a new query starts; group means the committed offsets of `group.id`, and latest for a partition"
            " without one. A restarted query resumes from its checkpoint; new partitions start at earliest."
        ),
    )
    _starting_timestamp = Option(
        name="startingTimestamp",
        kinds=SOURCE,
        value=position.GLOBAL_TIMESTAMP,
        meaning="A new query starts at the first row of each partition with this timestamp or a later one.",
    )
    _starting_offsets_by_timestamp = Option(
        name="startingOffsetsByTimestamp",
        kinds=SOURCE,
        value=position.TIMESTAMPS,
        meaning="As startingTimestamp, with a timestamp for each partition.",
    )
    starting: Position
    starting_no_match = AlwaysSet(
        name="startingOffsetsByTimestampStrategy",
        kinds=SOURCE,
        value=choice({strategy.value: strategy for strategy in position.NoMatch}),
        default="error",
        meaning="What to do if a partition has no row with the starting timestamp or later: fail, or start at latest.",
    )
    _ending_offsets = AlwaysSet(
        name="endingOffsets",
        kinds=BATCH_READ,
        value=position.BATCH_END,
        default="latest",
        meaning="Where the read ends, exclusive.",
        not_here=_NO_END,
    )
    _ending_timestamp = Option(
        name="endingTimestamp",
        kinds=BATCH_READ,
        value=position.GLOBAL_TIMESTAMP,
        meaning=(
            "The read ends before the first row of each partition with this timestamp or a later one; without such a"
            " row, at latest."
        ),
        differs="A streaming read refuses it and the other two ending options; Spark's Kafka source ignores it there.",
        not_here=_NO_END,
    )
    _ending_offsets_by_timestamp = Option(
        name="endingOffsetsByTimestamp",
        kinds=BATCH_READ,
        value=position.TIMESTAMPS,
        meaning="As endingTimestamp, with a timestamp for each partition.",
        not_here=_NO_END,
    )
    ending: Position
    """Latest in a streaming read, which has no end."""
    group_id = AlwaysSet(
        name="group.id",
        kinds=STREAM_READ,
        value=GROUP,
        or_else=str,
        meaning=(
            "Group to which the query commits its offsets after each micro-batch, and whose rewinds it follows. The"
            " query itself resumes from its checkpoint."
        ),
        differs="Spark's Kafka source never commits offsets.",
        not_here="a batch read commits no offsets",
    )
    _group_protocol = Option(
        name="group.protocol",
        kinds=STREAM_READ,
        value=choice({"cooperative": "cooperative"}),
        unset="the query reads all partitions by itself",
        meaning=(
            "cooperative: the query is a member of the group `group.id`, and shares the topics' partitions with the"
            " group's other queries. See [Queries that share a topic](../guides/shared-topics.md)."
        ),
        differs=(
            "Spark's Kafka source cannot share partitions. Kafka's classic and consumer protocols are not values here."
        ),
        not_here=_NO_GROUP,
    )

    _of_a_member = GroupMembership
    membership: GroupMembership | None
    """None: the query reads all partitions by itself."""
    longest_pause = Option(
        name="fetch.max.wait.ms",
        kinds=STREAM_READ,
        value=seconds(1),
        unset="2500 for each topic",
        meaning=(
            "In an object store: longest pause between two checks for new rows, in milliseconds, of a query whose"
            " trigger asks more often. A pause is an eighth of the time since the last new rows. Elsewhere each trigger"
            " checks."
        ),
        differs="There is no broker that responds when rows arrive: this limits how late a row is seen after a pause.",
        not_here="a batch read does not wait for rows",
    )
    fail_on_data_loss = AlwaysSet(
        name="failOnDataLoss",
        kinds=SOURCE,
        value=boolean(),
        default="true",
        meaning=(
            "Whether to fail if rows to be read no longer exist. If false, the query logs a warning and continues with"
            " the nearest rows that exist."
        ),
    )
    max_offsets_per_trigger = Option(
        name="maxOffsetsPerTrigger",
        kinds=STREAM_READ,
        value=integer(1),
        meaning=(
            "Maximum number of rows in a micro-batch, divided in proportion to the rows waiting in each partition, with"
            " at least one row for each."
        ),
        differs="0 and negative numbers are refused, because such a query would never read a row.",
        not_here=_NO_TRIGGER,
        ignored_elsewhere=True,
    )
    max_offsets_per_trigger_per_partition = Option(
        name="maxOffsetsPerTriggerPerPartition",
        kinds=STREAM_READ,
        value=integer(1),
        meaning="Maximum number of rows of each partition in a micro-batch.",
        differs="Not in Kafka. Spark's DStreams had spark.streaming.kafka.maxRatePerPartition, in rows per second.",
        not_here=_NO_TRIGGER,
        ignored_elsewhere=True,
    )
    max_bytes_per_trigger = Option(
        name="maxBytesPerTrigger",
        kinds=STREAM_READ,
        value=BYTES,
        meaning=(
            "Approximate maximum size of a micro-batch in stored, that is compressed, bytes. It is divided as"
            " maxOffsetsPerTrigger is, with at least one row for each partition; if both are given, the lower one"
            " applies."
        ),
        differs=(
            "Not in Kafka. The name is Delta's, and the limit is as soft: no row is read to find its size, so the rows"
            " of a chunk or a segment count as equally large."
        ),
        not_here=_NO_TRIGGER,
        ignored_elsewhere=True,
    )
    min_offsets_per_trigger = Option(
        name="minOffsetsPerTrigger",
        kinds=STREAM_READ,
        value=integer(0),
        meaning="Minimum number of rows in a micro-batch; it starts earlier if maxTriggerDelay has passed.",
        not_here=_NO_TRIGGER,
        ignored_elsewhere=True,
    )
    max_trigger_delay_ms = AlwaysSet(
        name="maxTriggerDelay",
        kinds=STREAM_READ,
        value=DURATION_MS,
        default="15m",
        meaning="Maximum time for which minOffsetsPerTrigger delays a micro-batch.",
        not_here=_NO_TRIGGER,
        ignored_elsewhere=True,
    )
    min_partitions = Option(
        name="minPartitions",
        kinds=SOURCE,
        value=integer(1, INT_MAX),
        meaning="Approximate minimum number of Spark tasks that read a batch. Large ranges of offsets are split.",
    )
    max_records_per_partition = Option(
        name="maxRecordsPerPartition",
        kinds=SOURCE,
        value=integer(1),
        meaning="Maximum number of rows that one Spark task reads of a batch. Larger ranges of offsets are split.",
    )
    max_records_on_driver = AlwaysSet(
        name="maxRecordsOnDriver",
        kinds=STREAM_READ,
        value=integer(0),
        default="10000",
        meaning=(
            "The driver itself reads a micro-batch of at most so many rows, and of at most 1 MiB as stored, and Spark"
            " gets it as one task that starts no Python worker. With 0, and with minPartitions above 1, tasks read all"
            " rows. See [small"
            " micro-batches](spark-settings.md#small-micro-batches)."
        ),
        differs="Not in Kafka, whose connector needs no Python.",
        not_here=_NO_TRIGGER,
        ignored_elsewhere=True,
    )
    include_headers = AlwaysSet(
        name="includeHeaders",
        kinds=SOURCE,
        value=boolean(),
        default="false",
        meaning="Whether to add the column `headers`.",
    )
    version_as_of = Option(
        name="versionAsOf",
        kinds=BATCH_READ,
        value=integer(1),
        unset="the newest",
        meaning="Read one topic as of this version. A version is an entry of the topic's journal; each write adds one.",
        differs="Not in Kafka. A version is a consistent cut across all partitions of a topic; the name is Delta's.",
        not_here="a stream follows new writes; remove it, or use spark.read",
    )
    topic_ids = AlwaysSet(
        name="topicIds",
        kinds=BATCH_READ,
        value=TOPIC_IDS,
        unset="any",
        or_else=dict,
        meaning=(
            "Fail if a topic has another id than this: it was deleted and created again. `read`, `replay` and"
            " `foreach_batch` set it."
        ),
        differs="Not in Kafka.",
        not_here="a stream has the ids in its checkpoint; remove it",
    )
    compactions = AlwaysSet(
        name="compactions",
        kinds=BATCH_READ,
        value=COMPACTIONS,
        unset="any",
        or_else=dict,
        meaning=(
            "Fail if rows that are to be read were compacted after the partitions of these topics had been so often, 0"
            " times if that is left out. `latest`, `read`, `replay` and `foreach_batch` set it."
        ),
        differs="Not in Kafka.",
        not_here="a stream has the counts in its checkpoint; remove it",
    )
    client_rack = AlwaysSet(
        name="client.rack",
        kinds=SOURCE,
        value=RACK,
        or_else=str,
        meaning="Rack of the Spark executors. Tasks prefer to read from a node in this rack.",
        prefixed=("client.rack",),
    )
    native_s3 = AlwaysSet(
        name="nativeS3",
        kinds=SOURCE,
        value=boolean(),
        default="false",
        meaning=(
            "For `read`, `replay` and `foreach_batch`: whether Spark reads by itself the Parquet segments that are in"
            " S3, as it does those on disks. It needs Hadoop's s3a, with credentials of its own. See [In"
            " S3](../guides/fast-reads.md#in-s3)."
        ),
        differs="Not in Kafka.",
    )
    storage_options = STORAGE_OPTIONS
    async_progress = ASYNC_PROGRESS

    def __init__(self, given: Given) -> None:
        """Raise `InvalidOption`."""
        super().__init__(given)
        starting, ending = self._starts_and_ends(given.kind)
        self._set(
            subscription=self._read_subscription(given),
            starting=given.find(_first(given, starting)) or Earliest(),
            ending=given.find(_first(given, ending)) or Latest(),
            membership=self._read_membership(given),
        )
        self._check_limits()
        if isinstance(self.starting, CommittedOffsets) and not self.group_id:
            raise InvalidOption(
                "group.id", "startingOffsets=group needs the group; set the option group.id, or start elsewhere"
            )
        check_range(self.starting, self.ending)

    @classmethod
    def shadowed(cls, given: Given) -> list[Ignored]:
        """Return the starts and ends before which another one that is given takes precedence."""
        return [
            Ignored(option.name, f"{_first(given, each).name} takes precedence")
            for each in cls._starts_and_ends(given.kind)
            for option in each
            if given.has(option) and option is not _first(given, each)
        ]

    @classmethod
    def _starts_and_ends(cls, kind: Kind) -> tuple[Sequence[Option[Position]], Sequence[Option[Position]]]:
        """Return the options of either. The first that is given takes precedence, as in Spark's Kafka connector."""
        offsets = cls._starting_offsets_batch if kind is Kind.SOURCE_BATCH else cls._starting_offsets_stream
        if kind is Kind.READ:  # what is for a stream takes everything that is for a batch read
            default = "earliest for a batch read, latest for a streaming read"
            offsets = msgspec.structs.replace(offsets, default=None, unset=default)
        return (
            (cls._starting_timestamp, cls._starting_offsets_by_timestamp, offsets),
            (cls._ending_timestamp, cls._ending_offsets_by_timestamp, cls._ending_offsets),
        )

    @classmethod
    def _read_subscription(cls, given: Given) -> Subscription:
        chosen = [option for option in (cls._subscribe, cls._subscribe_pattern, cls._assign) if given.has(option)]
        if len(chosen) == 1:
            return given.get(chosen[0])
        found = " and ".join(option.name for option in chosen) or "none of them"
        raise InvalidOption(
            chosen[-1].name if chosen else "subscribe",
            f"set exactly one of the options subscribe, subscribePattern and assign; found {found}",
        )

    @classmethod
    def _read_membership(cls, given: Given) -> GroupMembership | None:
        if given.find(cls._group_protocol) is None:
            for option in table(GroupMembership):
                if given.has(option):
                    raise InvalidOption(
                        option.name,
                        f"option {option.name} is for queries that share their topics; set group.protocol=cooperative"
                        " too, or remove it",
                    )
            return None
        if not given.has(cls.group_id):
            raise InvalidOption("group.protocol", "group.protocol=cooperative needs the group; set the option group.id")
        if given.has(cls._assign):
            raise InvalidOption(
                "assign",
                "option assign chooses partitions, and with group.protocol=cooperative the group does; use subscribe"
                " or subscribePattern",
            )
        if not given.has(GroupMembership.instance_id):
            raise InvalidOption(
                "group.instance.id",
                "group.protocol=cooperative needs the option group.instance.id: a name of this query that it keeps"
                " when it is started again, and that no other query of the group has",
            )
        found = GroupMembership(given)
        session_ms, heartbeat_ms = found.session_timeout_ms, found.heartbeat_interval_ms
        shortest_ms = HEARTBEAT_INTERVAL_MS if heartbeat_ms is None else heartbeat_ms
        if shortest_ms >= session_ms:
            raise InvalidOption(
                "heartbeat.interval.ms",
                f"heartbeat.interval.ms={shortest_ms} must be less than session.timeout.ms={session_ms}; a third of it"
                " or less is advised",
            )
        return found

    def _check_limits(self) -> None:
        low, high = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if low is not None and high is not None and low > high:
            raise InvalidOption(
                "minOffsetsPerTrigger",
                f"option minOffsetsPerTrigger is {low}, which is more than maxOffsetsPerTrigger ({high}); decrease it,"
                " or increase maxOffsetsPerTrigger",
            )


def _first(given: Given, by_precedence: Sequence[Option[Position]]) -> Option[Position]:
    return next((option for option in by_precedence if given.has(option)), by_precedence[-1])


_TABLE_PROPERTIES = frozenset({"owner", "provider", "comment", "collation", "external", "is_managed_location"})
"""Those of each table in Spark's catalog: `TableCatalog`'s reserved ones."""


def is_table_without_options(options: Mapping[str, str]) -> bool:
    """Return whether Spark asks for the schema of a new table of its catalog: `CREATE TABLE events USING pyspark_log`.

    Spark passes the OPTIONS of a table neither to a read nor to a write, only those that a statement gives: `FROM
    events WITH (path='...', subscribe='...')`. So a table has none, and no location. When it is created without
    columns, Spark asks for the schema with the table's properties as options.
    """
    return "owner" in options and _TABLE_PROPERTIES.issuperset(options)
