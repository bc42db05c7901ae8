"""The options of a read, parsed once at the edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pyspark_log.options import source_table as table
from pyspark_log.options.given import Given, Ignored, gather, names, warn
from pyspark_log.options.option import Kind, Option
from pyspark_log.options.position import CommittedOffsets, Earliest, NoMatch, Position, check_range
from pyspark_log.options.subscription import Subscription
from pyspark_log.options.table import ASYNC_PROGRESS, PATH, STORAGE_OPTIONS
from pyspark_log_coordinator.membership.member_settings import HEARTBEAT_INTERVAL_MS
from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.stores.storage_options import NO_OPTIONS, StorageOptions

SUBSCRIPTIONS = (table.SUBSCRIBE, table.SUBSCRIBE_PATTERN, table.ASSIGN)

# The first that is given takes precedence, as in Spark's Kafka connector; the last has the default.
STARTINGS_BATCH = (
    table.STARTING_TIMESTAMP,
    table.STARTING_OFFSETS_BY_TIMESTAMP,
    table.STARTING_OFFSETS_BATCH,
)
STARTINGS_STREAM = (
    table.STARTING_TIMESTAMP,
    table.STARTING_OFFSETS_BY_TIMESTAMP,
    table.STARTING_OFFSETS_STREAM,
)
STARTINGS_READ = (
    table.STARTING_TIMESTAMP,
    table.STARTING_OFFSETS_BY_TIMESTAMP,
    Option(
        name=table.STARTING_OFFSETS_STREAM.name,
        kinds=table.STARTING_OFFSETS_STREAM.kinds,
        value=table.STARTING_OFFSETS_STREAM.value,  # it accepts everything that a batch read accepts
        unset="earliest for a batch read, latest for a streaming read",
        meaning=table.STARTING_OFFSETS_STREAM.meaning,
    ),
)
ENDINGS = (table.ENDING_TIMESTAMP, table.ENDING_OFFSETS_BY_TIMESTAMP, table.ENDING_OFFSETS)


class GroupMembership(msgspec.Struct, frozen=True, kw_only=True):
    """How a streaming query is a member of its group. Times in ms."""

    instance_id: str
    session_timeout_ms: int
    heartbeat_interval_ms: int | None
    """None: the default, which depends on the store."""
    keeps_partitions: bool


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed options of a read. `ending` is Latest in a streaming read, which has no end."""

    path: str
    subscription: Subscription
    starting: Position
    starting_no_match: NoMatch
    ending: Position
    fail_on_data_loss: bool
    max_offsets_per_trigger: int | None
    max_offsets_per_trigger_per_partition: int | None
    max_bytes_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    longest_pause: float | None = None
    """`fetch.max.wait.ms` in seconds; None: the default."""
    min_partitions: int | None
    max_records_per_partition: int | None
    include_headers: bool
    version_as_of: int | None
    """The journal entry to read at, in a batch read of one topic."""
    topic_ids: Mapping[str, str]
    """The ids that topics of a batch read must have."""
    group_id: str
    """The group to which a streaming read commits its offsets, or empty."""
    membership: GroupMembership | None
    """None: the query reads all partitions by itself."""
    client_rack: str
    """The rack of the readers, or empty if it is not set."""
    native_s3: bool
    """Whether Spark reads by itself what is in S3, in a pinned read."""
    storage_options: StorageOptions = NO_OPTIONS


def parse_source(options: Mapping[str, object], *, streaming: bool) -> SourceOptions:
    """Return the options of a read; warn once of options without effect. Raise `InvalidOption`."""
    given = gather(options, Kind.SOURCE_STREAM if streaming else Kind.SOURCE_BATCH)
    parsed = _parse(given)
    warn((*given.ignored, *_shadowed(given, _startings(given)), *_shadowed(given, ENDINGS)), given.kind)
    return parsed


def check_source(options: Mapping[str, str]) -> SourceOptions:
    """Return the options of a read. Raise `InvalidOption` for those that neither a batch read nor a stream accepts.

    It is called before Spark says which of the two it will be. `parse_source` refuses the rest, such as an end of a
    stream.
    """
    return _parse(gather(options, Kind.READ))


def of_batch_read(options: Mapping[str, str]) -> dict[str, str]:
    """Return those options of a stream that a batch read of the same rows has, too. Raise `InvalidOption`."""
    known = names(Kind.SOURCE_BATCH)
    return {name: text for name, text in gather(options, Kind.SOURCE_STREAM).texts.items() if name in known}


def _parse(given: Given) -> SourceOptions:
    startings = _startings(given)
    longest_ms = given.find(table.FETCH_MAX_WAIT_MS)
    parsed = SourceOptions(
        path=given.get(PATH),
        subscription=_subscription(given),
        starting=given.find(_first(given, startings)) or Earliest(),
        starting_no_match=given.get(table.NO_MATCH),
        ending=given.get(_first(given, ENDINGS)),
        fail_on_data_loss=given.get(table.FAIL_ON_DATA_LOSS),
        max_offsets_per_trigger=given.find(table.MAX_OFFSETS_PER_TRIGGER),
        max_offsets_per_trigger_per_partition=given.find(table.MAX_OFFSETS_PER_TRIGGER_PER_PARTITION),
        max_bytes_per_trigger=given.find(table.MAX_BYTES_PER_TRIGGER),
        min_offsets_per_trigger=given.find(table.MIN_OFFSETS_PER_TRIGGER),
        max_trigger_delay_ms=given.get(table.MAX_TRIGGER_DELAY),
        longest_pause=None if longest_ms is None else longest_ms / 1000,
        min_partitions=given.find(table.MIN_PARTITIONS),
        max_records_per_partition=given.find(table.MAX_RECORDS_PER_PARTITION),
        include_headers=given.get(table.INCLUDE_HEADERS),
        version_as_of=given.find(table.VERSION_AS_OF),
        topic_ids=given.find(table.TOPIC_IDS) or {},
        group_id=given.find(table.GROUP_ID) or "",
        membership=_membership(given),
        client_rack=given.find(table.CLIENT_RACK) or "",
        native_s3=given.get(table.NATIVE_S3),
        storage_options=given.find(STORAGE_OPTIONS) or StorageOptions.of_environment(),
    )
    given.get(ASYNC_PROGRESS)
    _check_limits(parsed)
    _check_group(parsed)
    check_range(parsed.starting, parsed.ending)
    return parsed


def _startings(given: Given) -> Sequence[Option[Position]]:
    match given.kind:
        case Kind.SOURCE_STREAM:
            return STARTINGS_STREAM
        case Kind.SOURCE_BATCH:
            return STARTINGS_BATCH
        case _:
            return STARTINGS_READ


def _subscription(given: Given) -> Subscription:
    chosen = [option for option in SUBSCRIPTIONS if given.has(option)]
    if len(chosen) == 1:
        return given.get(chosen[0])
    found = " and ".join(option.name for option in chosen) or "none of them"
    raise InvalidOption(
        chosen[-1].name if chosen else table.SUBSCRIBE.name,
        f"set exactly one of the options subscribe, subscribePattern and assign; found {found}",
    )


def _first(given: Given, by_precedence: Sequence[Option[Position]]) -> Option[Position]:
    return next((option for option in by_precedence if given.has(option)), by_precedence[-1])


def _shadowed(given: Given, by_precedence: Sequence[Option[Position]]) -> list[Ignored]:
    first = _first(given, by_precedence)
    return [
        Ignored(option.name, f"{first.name} takes precedence")
        for option in by_precedence
        if given.has(option) and option is not first
    ]


def _check_group(parsed: SourceOptions) -> None:
    if isinstance(parsed.starting, CommittedOffsets) and not parsed.group_id:
        raise InvalidOption(
            table.GROUP_ID.name, "startingOffsets=group needs the group; set the option group.id, or start elsewhere"
        )


MEMBERSHIP = (
    table.GROUP_INSTANCE_ID,
    table.SESSION_TIMEOUT_MS,
    table.HEARTBEAT_INTERVAL_MS,
    table.GROUP_KEEP_PARTITIONS,
)


def _membership(given: Given) -> GroupMembership | None:
    if given.find(table.GROUP_PROTOCOL) is None:
        for option in MEMBERSHIP:
            if given.has(option):
                raise InvalidOption(
                    option.name,
                    f"option {option.name} is for queries that share their topics; set group.protocol=cooperative too,"
                    " or remove it",
                )
        return None
    if not given.has(table.GROUP_ID):
        raise InvalidOption(
            table.GROUP_PROTOCOL.name, "group.protocol=cooperative needs the group; set the option group.id"
        )
    if given.has(table.ASSIGN):
        raise InvalidOption(
            table.ASSIGN.name,
            "option assign chooses partitions, and with group.protocol=cooperative the group does; use subscribe or"
            " subscribePattern",
        )
    instance_id = given.find(table.GROUP_INSTANCE_ID)
    if instance_id is None:
        raise InvalidOption(
            table.GROUP_INSTANCE_ID.name,
            "group.protocol=cooperative needs the option group.instance.id: a name of this query that it keeps when it"
            " is started again, and that no other query of the group has",
        )
    session_ms, heartbeat_ms = given.get(table.SESSION_TIMEOUT_MS), given.find(table.HEARTBEAT_INTERVAL_MS)
    shortest_ms = HEARTBEAT_INTERVAL_MS if heartbeat_ms is None else heartbeat_ms
    if shortest_ms >= session_ms:
        raise InvalidOption(
            table.HEARTBEAT_INTERVAL_MS.name,
            f"heartbeat.interval.ms={shortest_ms} must be less than session.timeout.ms={session_ms}; a third of it or"
            " less is advised",
        )
    return GroupMembership(
        instance_id=instance_id,
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        keeps_partitions=given.get(table.GROUP_KEEP_PARTITIONS),
    )


def _check_limits(parsed: SourceOptions) -> None:
    low, high = parsed.min_offsets_per_trigger, parsed.max_offsets_per_trigger
    if low is not None and high is not None and low > high:
        raise InvalidOption(
            table.MIN_OFFSETS_PER_TRIGGER.name,
            f"option minOffsetsPerTrigger is {low}, which is more than maxOffsetsPerTrigger ({high}); decrease it, or"
            " increase maxOffsetsPerTrigger",
        )


_TABLE_PROPERTIES = frozenset({"owner", "provider", "comment", "collation", "external", "is_managed_location"})
"""Those of each table in Spark's catalog: `TableCatalog`'s reserved ones."""


def is_table_without_options(options: Mapping[str, str]) -> bool:
    """Return whether Spark asks for the schema of a new table of its catalog: `CREATE TABLE events USING pyspark_log`.

    Spark passes the OPTIONS of a table neither to a read nor to a write, only those that a statement gives: `FROM
    events WITH (path='...', subscribe='...')`. So a table has none, and no location. When it is created without
    columns, Spark asks for the schema with the table's properties as options.
    """
    return "owner" in options and _TABLE_PROPERTIES.issuperset(options)
