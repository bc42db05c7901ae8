"""The ISR: how a failure detector finds the members that no longer keep up with the leader.

A replica is out of sync if its LEO is behind the leader's and it has not been caught up for `replica.lag.time.max.ms`.
Caught up means that it has reached the leader's LEO, or at its previous fetch had reached the LEO of that time. So a
follower that is stuck (no fetch) or too slow is found, and one that is always one fetch behind a busy leader is not.
Source: Kafka's Replica.updateFetchState, ReplicaState.isCaughtUp, Partition.maybeShrinkIsr.

Each failure detector measures lag by the monotonic clock of its own process, and takes a LEO that has moved for a
fetch. A follower that was caught up at one look and is behind at the next may have fallen behind only a moment ago, so
its time begins at the second look. `replicas` decides when a member rejoins, and `sequencing` that one leaves because
it misses a batch with acks=all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model import topic_state
from pyspark_log_coordinator.model.partition import NodeId, Partition
from pyspark_log_coordinator.model.topic_state import Topic, TopicCommand
from pyspark_log_coordinator.replication import replicas, suspicion
from pyspark_log_coordinator.replication.suspicion import Suspicions
from pyspark_log_storage.stored_fields import Count

if TYPE_CHECKING:
    from collections.abc import Mapping


class Lagging(msgspec.Struct, frozen=True):
    """Members of a partition's ISR that were seen to have fallen behind."""

    nodes: tuple[NodeId, ...]
    leader_epoch: int
    leader_end: int
    """The leader's LEO at that time. A member that has reached it since has caught up."""


class ShrinkIsr(TopicCommand, frozen=True):
    """Take members that have fallen behind out of the ISRs of any number of partitions."""

    lagging: dict[int, Lagging]
    """By partition."""
    unreachable: Suspicions = msgspec.field(default_factory=dict)
    """The suspicions that have stood for a full period on the caller's clock. Those since cancelled do not count.

    These nodes leave every ISR in which they lack rows.
    """


class IsrShrunk(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """Members that fell behind or missed an acks=all batch left the ISR of a partition."""

    partition: Count
    isr: tuple[NodeId, ...]


class FollowerLag(msgspec.Struct, frozen=True):
    """What a failure detector knows of one follower. Times are in ms, by its monotonic clock."""

    log_end: int
    """The follower's LEO when it was last seen to fetch."""
    leader_ends: tuple[tuple[int, int], ...]
    """The leader's LEOs since then, as (ms when first seen, LEO), oldest first."""
    caught_up_ms: int
    """The latest time at which it is known to have been caught up."""
    leader_epoch: int


FollowerId = tuple[int, NodeId]
"""A partition's number and one of its replicas."""


def observe(known: FollowerLag | None, partition: Partition, node: NodeId, now: int) -> FollowerLag:
    """Return what is known of a follower after a look at the partition's state at `now` (ms).

    At the first look, at one under a new leader, and at one after it lost rows, a follower counts as caught up.
    """
    log_end, leader_end = partition.log_end_offsets[node], partition.leader_end
    ends: tuple[tuple[int, int], ...] = ((now, leader_end),)
    caught_up = now
    if known is not None and known.leader_epoch == partition.leader_epoch and log_end >= known.log_end:
        seen = known.leader_ends if known.leader_ends[-1][1] == leader_end else (*known.leader_ends, *ends)
        caught_up = known.caught_up_ms
        if log_end >= seen[0][1]:
            # It was caught up until the leader was first seen to have more.
            caught_up = next((at for at, end in seen if end > log_end), now)
        if log_end == known.log_end:
            ends = seen
    return FollowerLag(log_end, ends, caught_up, partition.leader_epoch)


def observe_all(lags: Mapping[FollowerId, FollowerLag], topic: Topic, now: int) -> dict[FollowerId, FollowerLag]:
    """Return what is known of all followers in an ISR after a look at the topic's state at `now` (ms)."""
    return {
        (number, node): observe(lags.get((number, node)), partition, node, now)
        for number, partition in enumerate(topic.partitions)
        if partition.leader is not None
        for node in partition.isr
        if node != partition.leader
    }


def lagging(lags: Mapping[FollowerId, FollowerLag], topic: Topic, now: int) -> dict[int, Lagging]:
    """Return the members that are out of sync at `now` (ms), by partition."""
    found: dict[int, list[NodeId]] = {}
    for (number, node), behind_ms in _behind(lags, topic, now).items():
        if behind_ms > topic.config.replica_lag_time_max_ms:
            found.setdefault(number, []).append(node)
    partitions = topic.partitions
    return {
        number: Lagging(tuple(nodes), partitions[number].leader_epoch, partitions[number].leader_end)
        for number, nodes in found.items()
    }


def next_due_ms(lags: Mapping[FollowerId, FollowerLag], topic: Topic, now: int) -> int | None:
    """Return the ms until the next follower is out of sync unless it catches up, or None if none is behind."""
    lag_max_ms = topic.config.replica_lag_time_max_ms
    waiting = [each for each in _behind(lags, topic, now).values() if each <= lag_max_ms]
    return lag_max_ms - max(waiting) + 1 if waiting else None


def _behind(lags: Mapping[FollowerId, FollowerLag], topic: Topic, now: int) -> dict[FollowerId, int]:
    """Return the ms for which followers have been behind at least, in the order of partitions and ISRs.

    Under a new leader the time begins again.
    """
    return {
        (number, node): now - lag.caught_up_ms
        for number, partition in enumerate(topic.partitions)
        for node in partition.isr
        if (lag := lags.get((number, node))) is not None
        and lag.leader_epoch == partition.leader_epoch
        and partition.log_end_offsets[node] < partition.leader_end
    }


def decide(topic: Topic, command: ShrinkIsr) -> list[IsrShrunk]:
    """Return the ISRs that shrink.

    Members stay if they have caught up or been reached since, or were seen in another leader epoch.
    """
    unreachable = suspicion.standing(topic, command.unreachable)
    events = []
    for number, partition in enumerate(topic.partitions):
        if partition.leader is not None:
            leaving = unreachable | _still_behind(partition, command.lagging.get(number))
            kept = tuple(node for node in partition.isr if node not in leaving or _is_level(partition, node))
            if kept != partition.isr:
                events.append(IsrShrunk(number, kept))
    return events


def decide_altered(topic: Topic) -> list[IsrShrunk]:
    """Return what follows in a topic whose settings have just changed; the same ISR lets only the HW advance.

    Members that lack committed rows leave: with replication.mode=quorum, which the topic had, they may stay. The HW may
    have waited for more replicas.
    """
    events = []
    for number, partition in enumerate(topic.partitions):
        isr = partition.isr
        if not replicas.by_majority(topic.config):
            isr = tuple(node for node in isr if partition.log_end_offsets[node] >= partition.high_watermark)
        settled = msgspec.structs.replace(partition, isr=isr)
        if isr != partition.isr or replicas.advance(settled, topic.config) != settled:
            events.append(IsrShrunk(number, isr))
    return events


def evolve(topic: Topic, event: IsrShrunk) -> Topic:
    """Return the topic with the smaller ISR, and the HW that follows from it."""
    partition = msgspec.structs.replace(topic.partitions[event.partition], isr=event.isr)
    return topic_state.with_partition(topic, event.partition, replicas.advance(partition, topic.config))


def _still_behind(partition: Partition, seen: Lagging | None) -> set[NodeId]:
    """Return the members that have not caught up since they were seen to lag."""
    if seen is None or partition.leader_epoch != seen.leader_epoch:
        return set()
    return {node for node in seen.nodes if partition.log_end_offsets.get(node, seen.leader_end) < seen.leader_end}


def _is_level(partition: Partition, node: NodeId) -> bool:
    return node == partition.leader or partition.log_end_offsets[node] >= partition.leader_end
