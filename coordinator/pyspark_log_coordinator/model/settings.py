"""The settings of writers and controllers: Kafka's names, with the only copy of each default and description.

The Spark options, the command line and the components themselves take them from here. The settings of a topic, which
are stored with it, are in `topic_config`.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import msgspec

T = TypeVar("T")

INT_MAX = 2**31 - 1


class Setting(msgspec.Struct, Generic[T], frozen=True):
    """A setting of a process; `meaning` is what its help and docs say."""

    name: str
    default: T
    meaning: str
    lowest: int = 1
    highest: int = INT_MAX


class StoredSetting(NamedTuple):
    """A setting that is stored with a topic or a group, as the docs list it; `takes` says which values."""

    name: str
    takes: str
    default: str
    meaning: str


RETRIES = Setting(
    "retries",
    INT_MAX,
    "Maximum number of retries of a step that failed with a retriable error, within delivery.timeout.ms.",
    lowest=0,
)
RETRY_BACKOFF_MS = Setting(
    "retry.backoff.ms",
    100,
    "Wait before the first retry, in milliseconds. It grows with each retry, up to one second, with jitter.",
    lowest=0,
)
DELIVERY_TIMEOUT_MS = Setting(
    "delivery.timeout.ms",
    120_000,
    "How long each step of a write is retried, in milliseconds: opening the log, writing files, committing.",
)
REQUEST_TIMEOUT_MS = Setting(
    "request.timeout.ms",
    30_000,
    "How many milliseconds a node may take to write a file after the fastest node has "
    "finished. After that the write continues without it.",
)
NUM_PARTITIONS = Setting(
    "num.partitions", 1, "Number of partitions of a topic that the writer creates.", highest=100_000
)
DEFAULT_REPLICATION_FACTOR = Setting(
    "default.replication.factor",
    3,
    "Number of replicas of each partition of a topic that the writer creates.",
    highest=32_767,
)
BROKER_SESSION_TIMEOUT_MS = Setting(
    "broker.session.timeout.ms",
    9_000,
    "How long a node must be unreachable before another node leads its partitions, in milliseconds.",
)
AUTO_LEADER_REBALANCE_ENABLE = Setting(
    "auto.leader.rebalance.enable",
    True,
    "Move leadership back to preferred leaders that are in sync again.",
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = Setting(
    "leader.imbalance.check.interval.seconds",
    300.0,
    "How often to check the balance of leaders.",
)
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE = Setting(
    "leader.imbalance.per.broker.percentage",
    10.0,
    "Rebalance a node's leaders when other nodes lead more than this percentage of the partitions it prefers to lead.",
    lowest=0,
    highest=100,
)
