"""The options of a Python `Consumer`: their table, and the parser, which is called once at the edge."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

import msgspec

from pyspark_log.options import source_table
from pyspark_log.options.client_config import gather
from pyspark_log.options.given import Given
from pyspark_log.options.option import CONSUMER, Kind, Option
from pyspark_log.options.value import GROUP, JSON_OPTIONS, MEMBER, TEXT, Value, boolean, choice, integer
from pyspark_log_coordinator.assignors.consumer import ASSIGNORS
from pyspark_log_coordinator.group import config as group_config
from pyspark_log_coordinator.membership.member_settings import HEARTBEAT_INTERVAL_MS as DEFAULT_HEARTBEAT_MS
from pyspark_log_coordinator.membership.member_settings import MemberSettings
from pyspark_log_coordinator.model.settings import INT_MAX
from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.stores.storage_options import NO_OPTIONS, StorageOptions


def _read_strategies(text: str) -> tuple[str, ...]:
    names = tuple(each.strip().lower() for each in text.split(","))
    for name in names:
        if name not in ASSIGNORS:
            raise ValueError(f"there is no assignor {name!r}")
    if len(set(names)) < len(names):
        raise ValueError("it names an assignor twice")
    return names


_STRATEGIES = Value(f"one or more of {', '.join(ASSIGNORS)}, separated by commas", _read_strategies)

AUTO_OFFSET_RESET = Option(
    name="auto.offset.reset",
    kinds=CONSUMER,
    value=choice(
        {
            "earliest": "earliest",
            "smallest": "earliest",
            "beginning": "earliest",
            "latest": "latest",
            "largest": "latest",
            "end": "latest",
            "none": "none",
            "error": "none",
        }
    ),
    default="latest",
    meaning=(
        "Where to read a partition that is assigned without an offset, and for which the group has committed none, or"
        " whose offset is no longer in the log."
        " none: raise `DataLoss`, or `InvalidInput` if no offset was given."
    ),
    prefixed=("auto.offset.reset",),
)
MAX_POLL_RECORDS = Option(
    name="max.poll.records",
    kinds=CONSUMER,
    value=integer(1, INT_MAX),
    default="500",
    meaning="Maximum number of rows that `poll` returns.",
    prefixed=("max.poll.records",),
)
MAX_PARTITION_FETCH_BYTES = Option(
    name="max.partition.fetch.bytes",
    kinds=CONSUMER,
    value=integer(1, INT_MAX),
    default=str(1024 * 1024),
    meaning="Size up to which small chunks of a partition are read together, in bytes. A larger chunk is read whole.",
    differs="It counts rows in memory. A chunk has about 8 MiB at most, unless its rows are larger.",
    prefixed=("max.partition.fetch.bytes",),
)
FETCH_MAX_BYTES = Option(
    name="fetch.max.bytes",
    kinds=CONSUMER,
    value=integer(1, INT_MAX),
    default=str(50 * 1024 * 1024),
    meaning="Size of the rows, in bytes, with which `poll_batches` returns and reads no further batch.",
    prefixed=("fetch.max.bytes",),
)
FETCH_MAX_WAIT_MS = Option(
    name="fetch.max.wait.ms",
    kinds=CONSUMER,
    value=integer(1, INT_MAX),
    unset="100; in an object store 2500 for each topic, and 6000 more in a group",
    meaning=(
        "Longest pause between two checks for new rows, in milliseconds. The first pauses are 1 ms; a pause is an"
        " eighth of the time since the last new rows. In an object store each check of a topic is a request, see"
        " [idle clients](../guides/object-store-costs.md#idle-clients)."
    ),
    differs="There is no broker that responds when rows arrive: this limits how late a row is seen after a pause.",
    prefixed=("fetch.max.wait.ms", "fetch.wait.max.ms"),
)
CLIENT_RACK = msgspec.structs.replace(
    source_table.CLIENT_RACK,
    kinds=CONSUMER,
    meaning="Rack of this machine. The consumer prefers to read from a node in this rack.",
)

GROUP_ID = Option(
    name="group.id",
    kinds=CONSUMER,
    value=GROUP,
    meaning=(
        "The consumer group: `subscribe` shares the topics' partitions among its members, and `commit` stores offsets."
    ),
    prefixed=("group.id",),
)
GROUP_INSTANCE_ID = Option(
    name="group.instance.id",
    kinds=CONSUMER,
    value=MEMBER,
    meaning=(
        "Makes the consumer a static member: it does not leave when it is closed, and if it is started again within"
        " `session.timeout.ms` it has its partitions without a rebalance. Each process of the group needs its own."
    ),
    prefixed=("group.instance.id",),
)
CLIENT_ID = Option(
    name="client.id",
    kinds=CONSUMER,
    value=TEXT,
    default="consumer",
    meaning="A name of this program, shown with the members of its group.",
    prefixed=("client.id",),
)
SESSION_TIMEOUT_MS = Option(
    name="session.timeout.ms",
    kinds=CONSUMER,
    value=integer(1, INT_MAX),
    default=str(group_config.SESSION_TIMEOUT_MS),
    meaning=(
        "The group removes a member that has sent no heartbeat for this long, in milliseconds. The group's"
        " `group.min.session.timeout.ms` and `group.max.session.timeout.ms` are its bounds."
    ),
    prefixed=("session.timeout.ms",),
)
HEARTBEAT_INTERVAL_MS = Option(
    name="heartbeat.interval.ms",
    kinds=CONSUMER,
    value=integer(1, INT_MAX),
    unset="3000; in an object store 15000, or a third of session.timeout.ms if that is less",
    meaning=(
        "How often a member sends a heartbeat and checks its group, in milliseconds. It must be less than"
        " `session.timeout.ms`; a third of that or less is advised. In an object store each heartbeat is four requests."
    ),
    differs="A member sends heartbeats a little more often, and notices a rebalance within the same time.",
    prefixed=("heartbeat.interval.ms",),
)
MAX_POLL_INTERVAL_MS = Option(
    name="max.poll.interval.ms",
    kinds=CONSUMER,
    value=integer(1, INT_MAX),
    default=str(group_config.MAX_POLL_INTERVAL_MS),
    meaning=(
        "Longest time between two calls of `poll`, in milliseconds. A member that takes longer leaves the group (a"
        " static one only stops its heartbeats), and so does one that takes longer to rejoin in a rebalance."
    ),
    prefixed=("max.poll.interval.ms",),
)
PARTITION_ASSIGNMENT_STRATEGY = Option(
    name="partition.assignment.strategy",
    kinds=CONSUMER,
    value=_STRATEGIES,
    default="range,cooperative-sticky",
    meaning=(
        "How the group shares partitions, the preferred assignor first; all members need one in common. With"
        " cooperative-sticky alone a member keeps reading the partitions that it keeps."
    ),
    differs="Assignors are given by name, as in librdkafka. Custom classes are not supported.",
    prefixed=("partition.assignment.strategy",),
)
ENABLE_AUTO_COMMIT = Option(
    name="enable.auto.commit",
    kinds=CONSUMER,
    value=boolean(),
    default="false",
    meaning="Whether `poll` commits, from time to time, the rows that earlier calls have returned.",
    differs=(
        "false by default: it loses rows that were returned and not processed yet when the program dies, and repeats"
        " those that were processed since the last commit. Call `commit` after rows are processed."
    ),
    prefixed=("enable.auto.commit",),
)
AUTO_COMMIT_INTERVAL_MS = Option(
    name="auto.commit.interval.ms",
    kinds=CONSUMER,
    value=integer(0, INT_MAX),
    default="5000",
    meaning="How often `enable.auto.commit` commits, in milliseconds.",
    prefixed=("auto.commit.interval.ms",),
)
DEFAULT_API_TIMEOUT_MS = Option(
    name="default.api.timeout.ms",
    kinds=CONSUMER,
    value=integer(0, INT_MAX),
    default="60000",
    meaning="How long `commit` tries again while a store does not answer, in milliseconds.",
    differs="It is for `commit` alone: `poll` waits for its own `timeout_ms`, and other calls raise an error at once.",
    prefixed=("default.api.timeout.ms",),
)

STORAGE_OPTIONS = Option(
    name="storage_options",
    kinds=CONSUMER,
    value=JSON_OPTIONS,
    unset="those in PYSPARK_LOG_STORAGE_OPTIONS",
    meaning=(
        "Credentials and settings of object stores, as a dict or JSON, with s3fs's names. See"
        " [object stores](../guides/object-stores.md)."
    ),
    prefixed=("storage.options",),
    secret=True,
)

OPTIONS: tuple[Option[Any], ...] = tuple(each for each in tuple(globals().values()) if isinstance(each, Option))
"""In the order of docs/reference/options.md."""


class GroupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a member of a group. Times in seconds."""

    group_id: str
    member: MemberSettings
    heartbeat_interval_ms: int | None
    """None: the default, which depends on the store."""
    strategies: tuple[str, ...]
    api_timeout_ms: int
    auto_commit_interval: float | None
    """None: commits are the program's own."""


class ConsumerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed options. Sizes in bytes, times in seconds."""

    reset: str
    """earliest, latest, or none."""
    max_poll_records: int
    partition_fetch_bytes: int
    fetch_bytes: int
    longest_pause: float | None
    """None: the default, which depends on the store."""
    rack: str
    group: GroupOptions | None
    """None without `group.id`."""
    storage_options: StorageOptions = NO_OPTIONS


def parse_consumer(config: Mapping[str, object] | None, keywords: Mapping[str, object]) -> ConsumerOptions:
    """Return the options. Raise `InvalidOption`."""
    given = gather(config, keywords, OPTIONS, Kind.CONSUMER)
    longest_ms = given.find(FETCH_MAX_WAIT_MS)
    return ConsumerOptions(
        reset=given.get(AUTO_OFFSET_RESET),
        max_poll_records=given.get(MAX_POLL_RECORDS),
        partition_fetch_bytes=given.get(MAX_PARTITION_FETCH_BYTES),
        fetch_bytes=given.get(FETCH_MAX_BYTES),
        longest_pause=None if longest_ms is None else longest_ms / 1000,
        rack=given.find(CLIENT_RACK) or "",
        group=_group(given),
        storage_options=given.find(STORAGE_OPTIONS) or StorageOptions.of_environment(),
    )


def _group(given: Given) -> GroupOptions | None:
    group_id = given.find(GROUP_ID)
    auto_commit = given.get(ENABLE_AUTO_COMMIT)
    if group_id is None:
        for option, is_given in (
            (GROUP_INSTANCE_ID, given.has(GROUP_INSTANCE_ID)),
            (ENABLE_AUTO_COMMIT, auto_commit),
        ):
            if is_given:
                raise InvalidOption(option.name, f"option {option.name} needs a group; give group.id too")
        return None
    return GroupOptions(
        group_id=group_id,
        member=member_settings(given, given.get(CLIENT_ID)),
        heartbeat_interval_ms=given.find(HEARTBEAT_INTERVAL_MS),
        strategies=given.get(PARTITION_ASSIGNMENT_STRATEGY),
        api_timeout_ms=given.get(DEFAULT_API_TIMEOUT_MS),
        auto_commit_interval=given.get(AUTO_COMMIT_INTERVAL_MS) / 1000 if auto_commit else None,
    )


def member_settings(given: Given, client_id: str) -> MemberSettings:
    """Return the settings of a member of a group. Raise `InvalidOption`."""
    session_ms, heartbeat_ms = given.get(SESSION_TIMEOUT_MS), given.find(HEARTBEAT_INTERVAL_MS)
    shortest_ms = DEFAULT_HEARTBEAT_MS if heartbeat_ms is None else heartbeat_ms
    if shortest_ms >= session_ms:
        raise InvalidOption(
            HEARTBEAT_INTERVAL_MS.name,
            f"heartbeat.interval.ms={shortest_ms} must be less than session.timeout.ms={session_ms}: the group would "
            "remove a living member; a third of it or less is advised",
        )
    return MemberSettings(
        instance_id=given.find(GROUP_INSTANCE_ID) or "",
        session_timeout_ms=session_ms,
        max_poll_interval_ms=given.get(MAX_POLL_INTERVAL_MS),
        client_id=client_id,
        host=socket.gethostname(),
    )
