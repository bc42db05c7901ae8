"""The options of a Python `Worker`: those of a member of a group, and how long lost tasks wait for their worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pyspark_log.options import consumer
from pyspark_log.options.client_config import gather
from pyspark_log.options.consumer import member_settings
from pyspark_log.options.option import WORKER, Kind, Option
from pyspark_log.options.value import integer
from pyspark_log_coordinator.assignors import connect
from pyspark_log_coordinator.membership.member_settings import MemberSettings
from pyspark_log_coordinator.model.settings import INT_MAX
from pyspark_log_storage.stores.storage_options import NO_OPTIONS, StorageOptions

SCHEDULED_REBALANCE_MAX_DELAY_MS = Option(
    name="scheduled.rebalance.max.delay.ms",
    kinds=WORKER,
    value=integer(0, INT_MAX),
    default=str(connect.SCHEDULED_REBALANCE_MAX_DELAY_MS),
    meaning="How long tasks whose worker is gone wait for it to return, in milliseconds, before others get them.",
)
GROUP_INSTANCE_ID = msgspec.structs.replace(
    consumer.GROUP_INSTANCE_ID,
    meaning=(
        "Makes the worker a static member: it does not leave when it is closed, and if it is started again within"
        " `session.timeout.ms` it has its tasks without a rebalance. Each process of the group needs its own."
    ),
)
CLIENT_ID = msgspec.structs.replace(consumer.CLIENT_ID, default="worker")

OPTIONS: tuple[Option[Any], ...] = (
    SCHEDULED_REBALANCE_MAX_DELAY_MS,
    GROUP_INSTANCE_ID,
    CLIENT_ID,
    consumer.SESSION_TIMEOUT_MS,
    consumer.HEARTBEAT_INTERVAL_MS,
    consumer.MAX_POLL_INTERVAL_MS,
    consumer.STORAGE_OPTIONS,
)


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed options. Times in ms."""

    member: MemberSettings
    heartbeat_interval_ms: int | None
    """None: the default, which depends on the store."""
    scheduled_rebalance_max_delay_ms: int
    storage_options: StorageOptions = NO_OPTIONS


def parse_worker(config: Mapping[str, object] | None, keywords: Mapping[str, object]) -> WorkerOptions:
    """Return the options. Raise `InvalidOption`."""
    given = gather(config, keywords, OPTIONS, Kind.WORKER)
    return WorkerOptions(
        member=member_settings(given, given.get(CLIENT_ID)),
        heartbeat_interval_ms=given.find(consumer.HEARTBEAT_INTERVAL_MS),
        scheduled_rebalance_max_delay_ms=given.get(SCHEDULED_REBALANCE_MAX_DELAY_MS),
        storage_options=given.find(consumer.STORAGE_OPTIONS) or StorageOptions.of_environment(),
    )
