"""The options of a Python `Consumer`, parsed once at the edge."""

from __future__ import annotations

import socket
from collections.abc import Mapping

import msgspec

from pyspark_log.options import consumer_table as table
from pyspark_log.options.client_config import gather
from pyspark_log.options.given import Given
from pyspark_log.options.option import Kind
from pyspark_log_coordinator.membership.member_settings import HEARTBEAT_INTERVAL_MS, MemberSettings
from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.stores.storage_options import NO_OPTIONS, StorageOptions


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
    given = gather(config, keywords, table.OPTIONS, Kind.CONSUMER)
    longest_ms = given.find(table.FETCH_MAX_WAIT_MS)
    return ConsumerOptions(
        reset=given.get(table.AUTO_OFFSET_RESET),
        max_poll_records=given.get(table.MAX_POLL_RECORDS),
        partition_fetch_bytes=given.get(table.MAX_PARTITION_FETCH_BYTES),
        fetch_bytes=given.get(table.FETCH_MAX_BYTES),
        longest_pause=None if longest_ms is None else longest_ms / 1000,
        rack=given.find(table.CLIENT_RACK) or "",
        group=_group(given),
        storage_options=given.find(table.STORAGE_OPTIONS) or StorageOptions.of_environment(),
    )


def _group(given: Given) -> GroupOptions | None:
    group_id = given.find(table.GROUP_ID)
    auto_commit = given.get(table.ENABLE_AUTO_COMMIT)
    if group_id is None:
        for option, is_given in (
            (table.GROUP_INSTANCE_ID, given.has(table.GROUP_INSTANCE_ID)),
            (table.ENABLE_AUTO_COMMIT, auto_commit),
        ):
            if is_given:
                raise InvalidOption(option.name, f"option {option.name} needs a group; give group.id too")
        return None
    return GroupOptions(
        group_id=group_id,
        member=member_settings(given, given.get(table.CLIENT_ID)),
        heartbeat_interval_ms=given.find(table.HEARTBEAT_INTERVAL_MS),
        strategies=given.get(table.PARTITION_ASSIGNMENT_STRATEGY),
        api_timeout_ms=given.get(table.DEFAULT_API_TIMEOUT_MS),
        auto_commit_interval=given.get(table.AUTO_COMMIT_INTERVAL_MS) / 1000 if auto_commit else None,
    )


def member_settings(given: Given, client_id: str) -> MemberSettings:
    """Return the settings of a member of a group. Raise `InvalidOption`."""
    session_ms, heartbeat_ms = given.get(table.SESSION_TIMEOUT_MS), given.find(table.HEARTBEAT_INTERVAL_MS)
    shortest_ms = HEARTBEAT_INTERVAL_MS if heartbeat_ms is None else heartbeat_ms
    if shortest_ms >= session_ms:
        raise InvalidOption(
            table.HEARTBEAT_INTERVAL_MS.name,
            f"heartbeat.interval.ms={shortest_ms} must be less than session.timeout.ms={session_ms}: the group would "
            "remove a living member; a third of it or less is advised",
        )
    return MemberSettings(
        instance_id=given.find(table.GROUP_INSTANCE_ID) or "",
        session_timeout_ms=session_ms,
        max_poll_interval_ms=given.get(table.MAX_POLL_INTERVAL_MS),
        client_id=client_id,
        host=socket.gethostname(),
    )
