"""The options of a Python `Consumer` and of a `Worker`: both are members of a group."""

from __future__ import annotations

import socket
from collections.abc import Mapping

import msgspec

from pyspark_log.options.given import CLIENT_STORAGE_OPTIONS, gather_client
from pyspark_log.options.option import AlwaysSet, Given, Kind, Option, Options, table
from pyspark_log.options.source import SourceOptions
from pyspark_log.options.value import GROUP, MEMBER, TEXT, Value, boolean, choice, integer, seconds
from pyspark_log_coordinator.assignors import connect
from pyspark_log_coordinator.assignors.consumer import ASSIGNORS
from pyspark_log_coordinator.group import config as group_config
from pyspark_log_coordinator.group.config import HEARTBEAT_INTERVAL_MS, MemberSettings
from pyspark_log_coordinator.model.settings import INT_MAX
from pyspark_log_storage.errors import InvalidOption


def _read_strategies(text: str) -> tuple[str, ...]:
    names = tuple(each.strip().lower() for each in text.split(","))
    for name in names:
        if name not in ASSIGNORS:
            raise ValueError(f"there is no assignor {name!r}")
    if len(set(names)) < len(names):
        raise ValueError("it names an assignor twice")
    return names


_STRATEGIES = Value(f"one or more of {', '.join(ASSIGNORS)}, separated by commas", _read_strategies)


class GroupOptions(Options):
    """The options of a member of a group. Times without a unit in the name are in seconds."""

    group_id = AlwaysSet(
        name="group.id",
        value=GROUP,
        meaning=(
            "The consumer group: `subscribe` shares the topics' partitions among its members, and `commit` stores"
            " offsets."
        ),
    )
    group_instance_id = AlwaysSet(
        name="group.instance.id",
        value=MEMBER,
        or_else=str,
        meaning=(
            "Makes the consumer a static member: it does not leave when it is closed, and if it is started again within"
            " `session.timeout.ms` it has its partitions without a rebalance. Each process of the group needs its own."
        ),
    )
    client_id = AlwaysSet(
        name="client.id",
        value=TEXT,
        default="consumer",
        meaning="A name of this program, shown with the members of its group.",
    )
    session_timeout_ms = AlwaysSet(
        name="session.timeout.ms",
        value=integer(1, INT_MAX),
        default=str(group_config.SESSION_TIMEOUT_MS),
        meaning=(
            "The group removes a member that has sent no heartbeat for this long, in milliseconds. The group's"
            " `group.min.session.timeout.ms` and `group.max.session.timeout.ms` are its bounds."
        ),
    )
    heartbeat_interval_ms = Option(
        name="heartbeat.interval.ms",
        value=integer(1, INT_MAX),
        unset="3000; in an object store 15000, or a third of session.timeout.ms if that is less",
        meaning=(
            "How often a member sends a heartbeat and checks its group, in milliseconds. It must be less than"
            " `session.timeout.ms`; a third of that or less is advised. In an object store each heartbeat is four"
            " requests."
        ),
        differs="A member sends heartbeats a little more often, and notices a rebalance within the same time.",
    )
    max_poll_interval_ms = AlwaysSet(
        name="max.poll.interval.ms",
        value=integer(1, INT_MAX),
        default=str(group_config.MAX_POLL_INTERVAL_MS),
        meaning=(
            "Longest time between two calls of `poll`, in milliseconds. A member that takes longer leaves the group (a"
            " static one only stops its heartbeats), and so does one that takes longer to rejoin in a rebalance."
        ),
    )
    strategies = AlwaysSet(
        name="partition.assignment.strategy",
        value=_STRATEGIES,
        default="range,cooperative-sticky",
        meaning=(
            "How the group shares partitions, the preferred assignor first; all members need one in common. With"
            " cooperative-sticky alone a member keeps reading the partitions that it keeps."
        ),
        differs="Assignors are given by name, as in librdkafka. Custom classes are not supported.",
    )
    _enable_auto_commit = AlwaysSet(
        name="enable.auto.commit",
        value=boolean(),
        default="false",
        meaning="Whether `poll` commits, from time to time, the rows that earlier calls have returned.",
        differs=(
            "false by default: it loses rows that were returned and not processed yet when the program dies, and"
            " repeats those that were processed since the last commit. Call `commit` after rows are processed."
        ),
    )
    _auto_commit_seconds = AlwaysSet(
        name="auto.commit.interval.ms",
        value=seconds(0),
        default="5000",
        meaning="How often `enable.auto.commit` commits, in milliseconds.",
    )
    api_timeout_ms = AlwaysSet(
        name="default.api.timeout.ms",
        value=integer(0, INT_MAX),
        default="60000",
        meaning="How long `commit` tries again while a store does not answer, in milliseconds.",
        differs=(
            "It is for `commit` alone: `poll` waits for its own `timeout_ms`, and other calls raise an error at once."
        ),
    )
    member: MemberSettings
    auto_commit_interval: float | None
    """None: commits are the program's own."""

    def __init__(self, given: Given) -> None:
        """Raise `InvalidOption`."""
        super().__init__(given)
        auto_commit = given.get(GroupOptions._enable_auto_commit)
        self._set(
            member=_member_settings(self),
            auto_commit_interval=given.get(GroupOptions._auto_commit_seconds) if auto_commit else None,
        )

    @classmethod
    def check_none(cls, given: Given) -> None:
        """Raise `InvalidOption` if an option needs a group; `given` has no group.id."""
        auto_commit = given.get(cls._enable_auto_commit)
        for option, is_given in (
            (cls.group_instance_id, given.has(cls.group_instance_id)),
            (cls._enable_auto_commit, auto_commit),
        ):
            if is_given:
                raise InvalidOption(option.name, f"option {option.name} needs a group; give group.id too")


class ConsumerOptions(Options):
    """The options of a Consumer. Sizes in bytes, times in seconds."""

    reset = AlwaysSet(
        name="auto.offset.reset",
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
            "Where to read a partition that is assigned without an offset, and for which the group has committed none,"
            " or whose offset is no longer in the log. none: raise `DataLoss`, or `InvalidInput` if no offset was"
            " given."
        ),
    )
    max_poll_records = AlwaysSet(
        name="max.poll.records",
        value=integer(1, INT_MAX),
        default="500",
        meaning="Maximum number of rows that `poll` returns.",
    )
    partition_fetch_bytes = AlwaysSet(
        name="max.partition.fetch.bytes",
        value=integer(1, INT_MAX),
        default=str(1024 * 1024),
        meaning=(
            "Size up to which small chunks of a partition are read together, in bytes. A larger chunk is read whole."
        ),
        differs="It counts rows in memory. A chunk has about 8 MiB at most, unless its rows are larger.",
        prefixed=("fetch.message.max.bytes",),
    )
    fetch_bytes = AlwaysSet(
        name="fetch.max.bytes",
        value=integer(1, INT_MAX),
        default=str(50 * 1024 * 1024),
        meaning="Size of the rows, in bytes, with which `poll_batches` returns and reads no further batch.",
    )
    longest_pause = Option(
        name="fetch.max.wait.ms",
        value=seconds(1),
        unset="100; in an object store 2500 for each topic, and 6000 more in a group",
        meaning=(
            "Longest pause between two checks for new rows, in milliseconds. The first pauses are 0.5 ms; a pause is an"
            " eighth of the time since the last new rows. In an object store each check of a topic is a request, see"
            " [idle clients](../guides/object-store-costs.md#idle-clients)."
        ),
        differs="There is no broker that responds when rows arrive: this limits how late a row is seen after a pause.",
        prefixed=("fetch.wait.max.ms",),
    )
    rack = msgspec.structs.replace(
        SourceOptions.client_rack,
        meaning="Rack of this machine. The consumer prefers to read from a node in this rack.",
    )
    _of_a_member = GroupOptions
    group: GroupOptions | None
    """None without `group.id`."""
    storage_options = CLIENT_STORAGE_OPTIONS

    def __init__(self, given: Given) -> None:
        """Raise `InvalidOption`."""
        super().__init__(given)
        if given.has(GroupOptions.group_id):
            self._set(group=GroupOptions(given))
        else:
            GroupOptions.check_none(given)
            self._set(group=None)


class WorkerOptions(Options):
    """The options of a Worker. Times in ms."""

    scheduled_rebalance_max_delay_ms = AlwaysSet(
        name="scheduled.rebalance.max.delay.ms",
        value=integer(0, INT_MAX),
        default=str(connect.SCHEDULED_REBALANCE_MAX_DELAY_MS),
        meaning="How long tasks whose worker is gone wait for it to return, in milliseconds, before others get them.",
    )
    group_instance_id = msgspec.structs.replace(
        GroupOptions.group_instance_id,
        meaning=(
            "Makes the worker a static member: it does not leave when it is closed, and if it is started again within"
            " `session.timeout.ms` it has its tasks without a rebalance. Each process of the group needs its own."
        ),
    )
    client_id = msgspec.structs.replace(GroupOptions.client_id, default="worker")
    session_timeout_ms = GroupOptions.session_timeout_ms
    heartbeat_interval_ms = GroupOptions.heartbeat_interval_ms
    max_poll_interval_ms = GroupOptions.max_poll_interval_ms
    storage_options = CLIENT_STORAGE_OPTIONS
    member: MemberSettings

    def __init__(self, given: Given) -> None:
        """Raise `InvalidOption`."""
        super().__init__(given)
        self._set(member=_member_settings(self))


def _member_settings(options: GroupOptions | WorkerOptions) -> MemberSettings:
    session_ms, heartbeat_ms = options.session_timeout_ms, options.heartbeat_interval_ms
    shortest_ms = HEARTBEAT_INTERVAL_MS if heartbeat_ms is None else heartbeat_ms
    if shortest_ms >= session_ms:
        raise InvalidOption(
            "heartbeat.interval.ms",
            f"heartbeat.interval.ms={shortest_ms} must be less than session.timeout.ms={session_ms}: the group would "
            "remove a living member; a third of it or less is advised",
        )
    return MemberSettings(
        instance_id=options.group_instance_id,
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        max_poll_interval_ms=options.max_poll_interval_ms,
        client_id=options.client_id,
        host=socket.gethostname(),
    )


def parse_consumer(config: Mapping[str, object] | None, keywords: Mapping[str, object]) -> ConsumerOptions:
    """Return the options. Raise `InvalidOption`."""
    return ConsumerOptions(gather_client(config, keywords, table(ConsumerOptions), Kind.CONSUMER))


def parse_worker(config: Mapping[str, object] | None, keywords: Mapping[str, object]) -> WorkerOptions:
    """Return the options. Raise `InvalidOption`."""
    return WorkerOptions(gather_client(config, keywords, table(WorkerOptions), Kind.WORKER))
