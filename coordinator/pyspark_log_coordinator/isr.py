"""The ISR: the replicas that keep up with the leader, and how one that does not is found out.

A replica is out of sync when its LEO is not the leader's and it has not been caught up for `replica.lag.time.max.ms`.
Caught up means: it reached the leader's LEO now, or at its previous fetch the LEO of that time. So a stuck follower
(no fetch) and a slow one (fetches, and never gets there) are both found, and a follower that is always one fetch behind
a busy leader is neither. Source: Kafka's Replica.updateFetchState, ReplicaState.isCaughtUp, Partition.maybeShrinkIsr.

What an observer knows of a follower's pace is its own and in no journal: its clock is its process's monotonic one, and
a fetch is what it sees in the journal, a LEO that has moved. Any process may be one. That a member is back in is
decided where its LEO moves (`replicas`); that it misses a batch with acks=all, where the batch is sequenced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator import replicas, topic_state
from pyspark_log_coordinator.partition import NodeId, Partition
from pyspark_log_coordinator.topic_state import Topic

if TYPE_CHECKING:
    from collections.abc import Mapping

REPLICA_LAG_TIME_MAX_MS = 30_000
"""Kafka's default of replica.lag.time.max.ms. Looked at every half of it."""
PUBLISH_CHECK_MS = 2_500
"""How often it is asked whether changes that wait should be published."""
PUBLISH_QUIET_MS = 5_000
PUBLISH_LATEST_MS = 60_000


class Lagging(msgspec.Struct, frozen=True, array_like=True):
    """Members of a partition's ISR that have fallen behind, and the leader epoch in which that was seen."""

    partition: int
    nodes: tuple[NodeId, ...]
    leader_epoch: int


class ShrinkIsr(msgspec.Struct, frozen=True):
    """Take members that have fallen behind out of the ISRs, of any number of partitions in one entry."""

    lagging: tuple[Lagging, ...]


class IsrShrunk(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """Members that fell behind, or missed an acks=all batch, left the ISR of a partition."""

    partition: int
    isr: tuple[NodeId, ...]


class FollowerLag(msgspec.Struct, frozen=True):
    """What an observer knows of one follower. Times in ms, by the observer's monotonic clock."""

    log_end: int
    """The follower's LEO when it was last seen to fetch."""
    leader_end: int
    """The leader's LEO at that time."""
    fetched_ms: int
    caught_up_ms: int
    """When it was last caught up."""
    leader_epoch: int


Follower = tuple[int, NodeId]
"""A partition's number, and a replica of it."""


def observe(known: FollowerLag | None, partition: Partition, node: NodeId, now: int) -> FollowerLag:
    """Return what is known of a follower after looking at the partition's state at `now` (ms).

    Who looks for the first time, or at a new leader, takes the follower to be caught up.
    """
    log_end, leader_end = partition.log_end_offsets[node], partition.leader_end
    if known is None or known.leader_epoch != partition.leader_epoch:
        return FollowerLag(log_end, leader_end, now, now, partition.leader_epoch)
    caught_up = known.caught_up_ms
    if log_end >= leader_end:
        caught_up = now
    elif log_end == known.log_end:
        return known
    elif log_end >= known.leader_end:
        caught_up = max(caught_up, known.fetched_ms)
    return FollowerLag(log_end, leader_end, now, caught_up, partition.leader_epoch)


def watch(lags: Mapping[Follower, FollowerLag], topic: Topic, now: int) -> dict[Follower, FollowerLag]:
    """Return what an observer knows of all followers in an ISR after looking at the topic's state at `now` (ms)."""
    return {
        (number, node): observe(lags.get((number, node)), partition, node, now)
        for number, partition in enumerate(topic.partitions)
        if partition.leader is not None
        for node in partition.isr
        if node != partition.leader
    }


def lagging(
    lags: Mapping[Follower, FollowerLag], topic: Topic, now: int, lag_max_ms: int = REPLICA_LAG_TIME_MAX_MS
) -> tuple[Lagging, ...]:
    """Return who is out of sync at `now` (ms), by partition."""
    found = []
    for number, partition in enumerate(topic.partitions):
        nodes = tuple(
            node
            for node in partition.isr
            if (lag := lags.get((number, node))) is not None
            and partition.log_end_offsets[node] < partition.leader_end
            and now - lag.caught_up_ms > lag_max_ms
        )
        if nodes:
            found.append(Lagging(number, nodes, partition.leader_epoch))
    return tuple(found)


class Publication(msgspec.Struct, frozen=True):
    """What an observer has found and not told the journal, and when it last told it something (ms, its own clock).

    Changes are published together: when they have come to rest, or none was published for long. So a follower that
    falls behind now and then costs an entry at once, and many that do so one after another do not cost one each.
    Source: Kafka's IsrChangePropagationConfig.
    """

    waiting: tuple[Lagging, ...] = ()
    changed_ms: int = 0
    published_ms: int | None = None
    """None: nothing so far."""

    def with_found(self, found: tuple[Lagging, ...], now: int) -> Publication:
        """Return what waits after the observer has looked at `now`; whoever has caught up since does not."""
        changed = self.changed_ms if found == self.waiting else now
        return msgspec.structs.replace(self, waiting=found, changed_ms=changed)

    def is_due(self, now: int) -> bool:
        """Return whether what waits is to be published. Asked every `PUBLISH_CHECK_MS`."""
        if not self.waiting:
            return False
        is_overdue = self.published_ms is None or now - self.published_ms > PUBLISH_LATEST_MS
        return is_overdue or now - self.changed_ms > PUBLISH_QUIET_MS


def decide(topic: Topic, command: ShrinkIsr) -> list[IsrShrunk]:
    """Return how the ISRs shrink, nothing for those who have caught up since, or that were seen in another epoch."""
    out: dict[int, set[NodeId]] = {}
    for each in command.lagging:
        if not 0 <= each.partition < len(topic.partitions):
            continue
        partition = topic.partitions[each.partition]
        if partition.leader is not None and partition.leader_epoch == each.leader_epoch:
            # A partition may be named twice, and whom one event took out the next must not bring back.
            out.setdefault(each.partition, set()).update(each.nodes)
    events = []
    for number, nodes in out.items():
        partition = topic.partitions[number]
        kept = tuple(node for node in partition.isr if node not in nodes or _is_level(partition, node))
        if kept != partition.isr:
            events.append(IsrShrunk(number, kept))
    return events


def evolve(topic: Topic, event: IsrShrunk) -> Topic:
    """Return the topic with the smaller ISR; the HW follows those who are left."""
    partition = msgspec.structs.replace(topic.partitions[event.partition], isr=event.isr)
    return topic_state.with_partition(topic, event.partition, replicas.settle(partition, topic.config))


def _is_level(partition: Partition, node: NodeId) -> bool:
    return node == partition.leader or partition.log_end_offsets[node] >= partition.leader_end
