"""The ISR: the replicas that keep up with the leader, and how one that does not is found out.

A replica is out of sync when its LEO is not the leader's and it has not been caught up for `replica.lag.time.max.ms`.
Caught up means: it reached the leader's LEO now, or at its previous fetch the LEO of that time. So a stuck follower
(no fetch) and a slow one (fetches, and never gets there) are both found, and a follower that is always one fetch behind
a busy leader is neither. Source: Kafka's Replica.updateFetchState, ReplicaState.isCaughtUp, Partition.maybeShrinkIsr.

What an observer knows of a follower's pace is its own and in no journal: its clock is its process's monotonic one, and
a fetch is what it sees in the journal, a LEO that has moved. Between two looks it sees nothing. A follower that was
caught up at one look and is behind at the next may have fallen behind a moment ago, so its time begins at the second
look: it never leaves before its time is over. Any process may observe, and all go by the topic's configuration. That a
member is back in is decided where its LEO moves (`replicas`); that it misses a batch with acks=all, where the batch is
sequenced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model import topic_state
from pyspark_log_coordinator.model.partition import NodeId, Partition
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication import replicas, suspicion
from pyspark_log_coordinator.replication.suspicion import Suspicion
from pyspark_log_storage.ranges import Count

if TYPE_CHECKING:
    from collections.abc import Mapping

PUBLISH_CHECK_MS = 2_500
"""How often it is asked whether changes that wait should be published."""
PUBLISH_QUIET_MS = 5_000
PUBLISH_LATEST_MS = 60_000


class Lagging(msgspec.Struct, frozen=True, array_like=True):
    """Members of a partition's ISR that have fallen behind, and where the leader was when that was seen."""

    partition: int
    nodes: tuple[NodeId, ...]
    leader_epoch: int
    leader_end: int
    """The leader's LEO. A member that has reached it since has caught up, whatever the leader has got since."""


class ShrinkIsr(msgspec.Struct, frozen=True):
    """Take members that have fallen behind out of the ISRs, of any number of partitions in one entry."""

    lagging: tuple[Lagging, ...]
    gone: tuple[Suspicion, ...] = ()
    """The suspicions that have stood for a full period on the caller's clock; one that was cancelled does not count.

    These nodes leave every ISR in which they miss rows: who misses nothing holds up nobody.
    """


class IsrShrunk(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """Members that fell behind, or missed an acks=all batch, left the ISR of a partition."""

    partition: Count
    isr: tuple[NodeId, ...]


class FollowerLag(msgspec.Struct, frozen=True):
    """What an observer knows of one follower. Times in ms, by the observer's monotonic clock."""

    log_end: int
    """The follower's LEO when it was last seen to fetch."""
    leader_ends: tuple[tuple[int, int], ...]
    """The leader's LEOs since then, and when each was first seen: (ms, LEO), oldest first."""
    caught_up_ms: int
    """No later than this it was last caught up."""
    leader_epoch: int


FollowerId = tuple[int, NodeId]
"""A partition's number, and a replica of it."""


def observe(known: FollowerLag | None, partition: Partition, node: NodeId, now: int) -> FollowerLag:
    """Return what is known of a follower after looking at the partition's state at `now` (ms).

    An observer that looks for the first time, or at a new leader, or at a follower that has lost rows, takes it to be
    caught up.
    """
    log_end, leader_end = partition.log_end_offsets[node], partition.leader_end
    ends: tuple[tuple[int, int], ...] = ((now, leader_end),)
    caught_up = now
    if known is not None and known.leader_epoch == partition.leader_epoch and log_end >= known.log_end:
        seen = known.leader_ends if known.leader_ends[-1][1] == leader_end else (*known.leader_ends, *ends)
        caught_up = known.caught_up_ms
        if log_end >= seen[0][1]:
            # It had all that the leader had, until the leader was first seen to have more; now, if it never was.
            caught_up = next((at for at, end in seen if end > log_end), now)
        if log_end == known.log_end:
            ends = seen
    return FollowerLag(log_end, ends, caught_up, partition.leader_epoch)


def observe_all(lags: Mapping[FollowerId, FollowerLag], topic: Topic, now: int) -> dict[FollowerId, FollowerLag]:
    """Return what an observer knows of all followers in an ISR after looking at the topic's state at `now` (ms)."""
    return {
        (number, node): observe(lags.get((number, node)), partition, node, now)
        for number, partition in enumerate(topic.partitions)
        if partition.leader is not None
        for node in partition.isr
        if node != partition.leader
    }


def lagging(lags: Mapping[FollowerId, FollowerLag], topic: Topic, now: int) -> tuple[Lagging, ...]:
    """Return who is out of sync at `now` (ms), by partition."""
    late: dict[int, list[NodeId]] = {}
    for (number, node), behind_ms in _behind(lags, topic, now).items():
        if behind_ms > topic.config.replica_lag_time_max_ms:
            late.setdefault(number, []).append(node)
    return tuple(
        Lagging(number, tuple(nodes), topic.partitions[number].leader_epoch, topic.partitions[number].leader_end)
        for number, nodes in late.items()
    )


def next_due_ms(lags: Mapping[FollowerId, FollowerLag], topic: Topic, now: int) -> int | None:
    """Return in how many ms the next follower is out of sync if it does not catch up; None if none is behind."""
    lag_max_ms = topic.config.replica_lag_time_max_ms
    waiting = [each for each in _behind(lags, topic, now).values() if each <= lag_max_ms]
    return lag_max_ms - max(waiting) + 1 if waiting else None


def _behind(lags: Mapping[FollowerId, FollowerLag], topic: Topic, now: int) -> dict[FollowerId, int]:
    """Return for how long (ms) at least those have been behind that are, in the order of partitions and ISRs.

    What was known of a follower under another leader does not count: a new leader gives everybody its time again.
    """
    return {
        (number, node): now - lag.caught_up_ms
        for number, partition in enumerate(topic.partitions)
        for node in partition.isr
        if (lag := lags.get((number, node))) is not None
        and lag.leader_epoch == partition.leader_epoch
        and partition.log_end_offsets[node] < partition.leader_end
    }


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
        changed = self.changed_ms if _who(found) == _who(self.waiting) else now
        return msgspec.structs.replace(self, waiting=found, changed_ms=changed)

    def is_due(self, now: int) -> bool:
        """Return whether what waits is to be published. Asked every `PUBLISH_CHECK_MS`."""
        if not self.waiting:
            return False
        is_overdue = self.published_ms is None or now - self.published_ms > PUBLISH_LATEST_MS
        return is_overdue or now - self.changed_ms > PUBLISH_QUIET_MS


def decide(topic: Topic, command: ShrinkIsr) -> list[IsrShrunk]:
    """Return how the ISRs shrink.

    Nothing for those who have caught up since, or were seen in another epoch, or have been reached again.
    """
    # A partition may be named twice, and whom one event took out the next must not bring back.
    out: list[set[NodeId]] = [set() for _ in topic.partitions]
    for each in command.lagging:
        if 0 <= each.partition < len(out):
            out[each.partition].update(_still_behind(topic.partitions[each.partition], each))
    gone = {each.node for each in command.gone if suspicion.stands(topic, each)}
    events = []
    for number, partition in enumerate(topic.partitions):
        if partition.leader is not None:
            leaving = out[number] | gone
            kept = tuple(node for node in partition.isr if node not in leaving or _is_level(partition, node))
            if kept != partition.isr:
                events.append(IsrShrunk(number, kept))
    return events


def evolve(topic: Topic, event: IsrShrunk) -> Topic:
    """Return the topic with the smaller ISR; the HW follows those who are left."""
    partition = msgspec.structs.replace(topic.partitions[event.partition], isr=event.isr)
    return topic_state.with_partition(topic, event.partition, replicas.advance(partition, topic.config))


def _still_behind(partition: Partition, seen: Lagging) -> set[NodeId]:
    """Return those of the members that lagged who have not caught up since."""
    if partition.leader_epoch != seen.leader_epoch:
        return set()
    return {node for node in seen.nodes if partition.log_end_offsets.get(node, seen.leader_end) < seen.leader_end}


def _who(found: tuple[Lagging, ...]) -> list[tuple[int, tuple[NodeId, ...], int]]:
    return [(each.partition, each.nodes, each.leader_epoch) for each in found]


def _is_level(partition: Partition, node: NodeId) -> bool:
    return node == partition.leader or partition.log_end_offsets[node] >= partition.leader_end
