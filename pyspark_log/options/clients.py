"""The options of the Python clients: a `Producer`, and a `Consumer` and a `Worker`, which are members of a group."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pyspark_log.options.given import STORAGE_OPTIONS, gather, warned
from pyspark_log.options.option import CONSUMER, PRODUCER, Given, Kind, Options, opt
from pyspark_log.options.sink import SinkOptions, retry_policy
from pyspark_log.options.source import SourceOptions
from pyspark_log.options.value import COUNT, GROUP, MEMBER, TEXT, Value, boolean, choice, integer, seconds
from pyspark_log_coordinator.assignors import connect
from pyspark_log_coordinator.assignors.consumer import ASSIGNORS
from pyspark_log_coordinator.group import config as group_config
from pyspark_log_coordinator.group.config import MemberSettings
from pyspark_log_coordinator.model.settings import INT_MAX
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.errors import InvalidOption

if TYPE_CHECKING:
    from typing_extensions import Self


def _read_strategies(text: str) -> tuple[str, ...]:
    names = tuple(each.strip().lower() for each in text.split(","))
    for name in names:
        if name not in ASSIGNORS:
            raise ValueError(f"there is no assignor {name!r}")
    if len(set(names)) < len(names):
        raise ValueError("it names an assignor twice")
    return names


_STRATEGIES = Value(f"one or more of {', '.join(ASSIGNORS)}, separated by commas", _read_strategies)
_RESETS = {"earliest": "earliest", "smallest": "earliest", "beginning": "earliest"}
_RESETS |= {"latest": "latest", "largest": "latest", "end": "latest", "none": "none", "error": "none"}


class ClientOptions(Options):
    """The options of a client, with `_` or `.` in their names."""

    @classmethod
    def parse(cls, config: Mapping[str, object] | None, keywords: Mapping[str, object]) -> Self:
        """Return the options; warn once of those without effect. Raise `InvalidOption`."""
        [kind] = cls.kinds
        return cls(warned(gather(config or {}, kind, keywords)))


class ProducerOptions(ClientOptions, kinds=PRODUCER):
    """The options of a Producer. Sizes in bytes, times without a unit in the name in seconds."""

    acks = replace(SinkOptions.acks, also="request.required.acks")
    linger = opt("linger.ms", seconds(0), "5", also="queue.buffering.max.ms")
    batch_size = opt("batch.size", COUNT, str(4 * 1024 * 1024))
    buffer_memory = opt("buffer.memory", integer(1), str(32 * 1024 * 1024))
    max_block = opt("max.block.ms", seconds(0), "60000")
    compression = replace(SinkOptions.compression, also="compression.codec")
    idempotent = opt("enable.idempotence", boolean, "true")
    delivery_timeout_ms = replace(SinkOptions.delivery_timeout_ms, also="message.timeout.ms")
    retries = replace(SinkOptions.retries, also="message.send.max.retries")
    retry_backoff_ms = replace(SinkOptions.retry_backoff_ms, also="")
    request_timeout = replace(SinkOptions.request_timeout_ms, value=seconds(1), also="")
    max_message_bytes = replace(SinkOptions.max_message_bytes, name="max.request.size", also="message.max.bytes")
    auto_create_topics = replace(SinkOptions.auto_create_topics, also="allow.auto.create.topics")
    num_partitions = SinkOptions.num_partitions
    replication_factor = SinkOptions.replication_factor
    broker_session_timeout_ms = SinkOptions.broker_session_timeout_ms
    storage_options = STORAGE_OPTIONS
    retry: RetryPolicy

    def made_of(self, given: Given) -> dict[str, Any]:
        return {"retry": retry_policy(self)}


class GroupOptions(Options):
    """The options of a member of a group. Times without a unit in the name are in seconds."""

    group_id = opt("group.id", GROUP, unset="")
    group_instance_id = opt("group.instance.id", MEMBER, unset="")
    client_id = opt("client.id", TEXT, "consumer")
    session_timeout_ms = opt("session.timeout.ms", COUNT, str(group_config.SESSION_TIMEOUT_MS))
    heartbeat_interval_ms = opt("heartbeat.interval.ms", COUNT)
    max_poll_interval_ms = opt("max.poll.interval.ms", COUNT, str(group_config.MAX_POLL_INTERVAL_MS))
    strategies = opt("partition.assignment.strategy", _STRATEGIES, "range,cooperative-sticky")
    enable_auto_commit = opt("enable.auto.commit", boolean, "false")
    _auto_commit_seconds = opt("auto.commit.interval.ms", seconds(0), "5000")
    api_timeout_ms = opt("default.api.timeout.ms", integer(0, INT_MAX), "60000")
    member: MemberSettings
    auto_commit_interval: float | None
    """None: commits are the program's own."""

    def made_of(self, given: Given) -> dict[str, Any]:
        interval = given.get(GroupOptions._auto_commit_seconds) if self.enable_auto_commit else None
        return {"member": _member_settings(self), "auto_commit_interval": interval}


class ConsumerOptions(ClientOptions, kinds=CONSUMER):
    """The options of a Consumer. Sizes in bytes, times in seconds."""

    reset = opt("auto.offset.reset", choice(_RESETS), "latest")
    max_poll_records = opt("max.poll.records", COUNT, "500")
    partition_fetch_bytes = opt("max.partition.fetch.bytes", COUNT, str(1024 * 1024), also="fetch.message.max.bytes")
    fetch_bytes = opt("fetch.max.bytes", COUNT, str(50 * 1024 * 1024))
    longest_pause = opt("fetch.max.wait.ms", seconds(1), also="fetch.wait.max.ms")
    rack = replace(SourceOptions.client_rack, also="")
    _of_a_member = GroupOptions
    group: GroupOptions | None
    """None without `group.id`."""
    storage_options = STORAGE_OPTIONS

    def made_of(self, given: Given) -> dict[str, Any]:
        for option in (GroupOptions.group_instance_id, GroupOptions.enable_auto_commit):
            given.require(option, GroupOptions.group_id)
        return {"group": GroupOptions(given) if given.has(GroupOptions.group_id) else None}


class WorkerOptions(ClientOptions, kinds={Kind.WORKER}):
    """The options of a Worker. Times in ms."""

    scheduled_rebalance_max_delay_ms = opt(
        "scheduled.rebalance.max.delay.ms", integer(0, INT_MAX), str(connect.SCHEDULED_REBALANCE_MAX_DELAY_MS)
    )
    group_instance_id = GroupOptions.group_instance_id
    client_id = replace(GroupOptions.client_id, default="worker")
    session_timeout_ms = GroupOptions.session_timeout_ms
    heartbeat_interval_ms = GroupOptions.heartbeat_interval_ms
    max_poll_interval_ms = GroupOptions.max_poll_interval_ms
    storage_options = STORAGE_OPTIONS
    member: MemberSettings

    def made_of(self, given: Given) -> dict[str, Any]:
        return {"member": _member_settings(self)}


def _member_settings(options: GroupOptions | WorkerOptions) -> MemberSettings:
    """Raise `InvalidOption` unless a living member sends a heartbeat before its group removes it."""
    session_ms, heartbeat_ms = options.session_timeout_ms, options.heartbeat_interval_ms
    shortest_ms = group_config.HEARTBEAT_INTERVAL_MS if heartbeat_ms is None else heartbeat_ms
    if shortest_ms >= session_ms:
        message = f"heartbeat.interval.ms={shortest_ms} must be less than session.timeout.ms={session_ms}"
        raise InvalidOption("heartbeat.interval.ms", f"{message}; a third of it or less is advised")
    return MemberSettings(
        instance_id=options.group_instance_id,
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        max_poll_interval_ms=options.max_poll_interval_ms,
        client_id=options.client_id,
        host=socket.gethostname(),
    )
