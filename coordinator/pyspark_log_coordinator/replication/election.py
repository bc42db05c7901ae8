"""Election: the rules that choose the leader of a partition.

A clean election chooses the live member of the ISR with the highest LEO, then by preference order. The leader epoch
rises by one and begins at the new leader's LEO; rows above it are cut, as in Kafka, and the entry records them
(`row_loss`). If no member of the ISR is live, the partition has no leader: writes are refused, and reads below the HW
continue. With unclean.leader.election.enable, the live replica with the highest LEO is elected instead.

With replication.mode=quorum a majority of the replicas must be live, and the one with the highest LEO leads.

The caller finds out which replicas are live: they answer, have the expected marker, and have the newest file that the
state says they hold (a disk that was restored from a backup has the marker, too).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import Holder, NodeId, Partition
from pyspark_log_coordinator.model.settings import LEADER_IMBALANCE_PER_BROKER_PERCENTAGE
from pyspark_log_coordinator.model.topic_state import Topic, TopicCommand, with_partition
from pyspark_log_coordinator.replication import high_watermark, replicas, row_loss, suspicion
from pyspark_log_coordinator.replication.row_loss import RowsLost
from pyspark_log_coordinator.replication.suspicion import Suspicions
from pyspark_log_storage.stored_fields import Count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


class ElectLeaders(TopicCommand, frozen=True):
    """Elect leaders for leaderless partitions and for those with an unreachable leader. `partitions` None means all."""

    live: tuple[Holder, ...]
    """The nodes that the caller found live."""
    unreachable: Suspicions = msgspec.field(default_factory=dict)
    """The suspicions that have stood for a full period on the caller's clock. Those since cancelled do not count."""
    partitions: tuple[int, ...] | None = None
    unclean: bool = False
    """Whether to elect an out-of-sync replica even without `unclean.leader.election.enable`."""


class ElectPreferred(TopicCommand, frozen=True):
    """Elect the preferred leaders that are live and have every row, so that nothing is cut."""

    live: tuple[Holder, ...]
    partitions: tuple[int, ...] | None = None


class LeaderElected(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """A node leads the partition, or none does. The rows of the new leader epoch begin at `start`."""

    partition: Count
    leader: NodeId | None
    leader_epoch: Count
    start: Count
    isr: tuple[NodeId, ...]


Elected = RowsLost | LeaderElected
"""The events of an election, in this order."""


def decide(topic: Topic, command: ElectLeaders) -> list[Elected]:
    """Return the elections, none for leaders that are live or whose suspicions were cancelled."""
    live = _live_nodes(topic, command.live)
    unreachable = suspicion.standing(topic, command.unreachable) - live
    unclean = command.unclean or topic.config.unclean_leader_election_enable
    events: list[Elected] = []
    for number in _selected(topic, command.partitions):
        leader = topic.partitions[number].leader
        if leader is None or leader in unreachable or leader in topic.fenced:
            elected = elect(topic, number, live, unreachable)
            has_leader = any(isinstance(each, LeaderElected) and each.leader is not None for each in elected)
            if unclean and not has_leader:
                elected = _elect_unclean(topic, number, live, unreachable) or elected
            events += elected
    return events


def decide_preferred(topic: Topic, command: ElectPreferred) -> list[LeaderElected]:
    """Return the elections of preferred leaders that do not lead."""
    live = _live_nodes(topic, command.live)
    events = []
    for number in _selected(topic, command.partitions):
        partition = topic.partitions[number]
        preferred = partition.replicas[0]
        if (
            partition.leader not in (None, preferred)
            and preferred in live
            and preferred in fully_caught_up(topic, partition)
        ):
            events.append(leader_elected(partition, number, preferred, partition.isr))
    return events


def elect(topic: Topic, number: int, live: Collection[NodeId], unreachable: Collection[NodeId]) -> list[Elected]:
    """Return the clean election of a leader among `live`, in the place of one that is unreachable or fenced.

    The nodes in `unreachable`, none of which is live, leave the ISR. Return nothing if the partition has no leader and
    cannot get one.
    """
    partition = topic.partitions[number]
    able = _able(topic, partition, live)
    best = max(_eligible(topic, partition, able), key=partition.log_end_offsets.__getitem__, default=None)
    if best is None:
        if partition.leader is None:
            return []
        # The ISR stays: only its members have all acknowledged rows, and may lead when they come back.
        return [LeaderElected(number, None, partition.leader_epoch + 1, partition.log_end, partition.isr)]
    kept = (node for node in partition.isr if node not in unreachable and node not in topic.fenced)
    isr = replicas.in_preference_order(partition.replicas, {*kept, best})
    return _elected(topic, number, best, isr)


def awaited(
    topic: Topic, partition: Partition, live: Collection[NodeId], unreachable: Collection[NodeId]
) -> tuple[NodeId, ...]:
    """Return the replicas that rule out an unclean election, because they may come back with all committed rows."""
    known = {*live, *unreachable, *topic.fenced}
    return tuple(node for node in replicas.voters(partition, topic.config) if node not in known)


def _elect_unclean(
    topic: Topic, number: int, live: Collection[NodeId], unreachable: Collection[NodeId]
) -> list[Elected]:
    """Return the election of the live replica that has most rows; none while replicas are awaited."""
    partition = topic.partitions[number]
    if awaited(topic, partition, live, unreachable):
        return []
    ends = partition.log_end_offsets
    best = max(_able(topic, partition, live), key=ends.__getitem__, default=None)
    return [] if best is None else _elected(topic, number, best, (best,))


def _elected(topic: Topic, number: int, leader: NodeId, isr: tuple[NodeId, ...]) -> list[Elected]:
    partition = topic.partitions[number]
    lost = row_loss.cut_from(topic, number, partition.log_end_offsets[leader])
    return [*lost, leader_elected(partition, number, leader, isr)]


def leader_elected(partition: Partition, number: int, leader: NodeId, isr: tuple[NodeId, ...]) -> LeaderElected:
    """Return the election of a leader, from whose LEO on the event before cuts all rows."""
    return LeaderElected(number, leader, partition.leader_epoch + 1, partition.log_end_offsets[leader], isr)


def fully_caught_up(topic: Topic, partition: Partition) -> tuple[NodeId, ...]:
    """Return the members of the ISR that have every row and are not fenced: any of them may lead without loss."""
    return tuple(
        node
        for node in partition.isr
        if partition.log_end_offsets[node] == partition.log_end and node not in topic.fenced
    )


def evolve(topic: Topic, event: LeaderElected) -> Topic:
    """Return the topic with the new leader. The event before has cut the rows above its LEO."""
    partition = topic.partitions[event.partition]
    if event.start != partition.log_end:
        raise ValueError(f"a leader is elected at offset {event.start}, but the log ends at {partition.log_end}")
    starts = partition.epoch_starts
    if event.leader is not None:
        # An epoch without rows is not recorded (Kafka's LeaderEpochFileCache.assign).
        kept = tuple(each for each in starts if each[1] < event.start)
        starts = (*kept, (event.leader_epoch, event.start))
    partition = msgspec.structs.replace(
        partition, leader=event.leader, leader_epoch=event.leader_epoch, epoch_starts=starts, isr=event.isr
    )
    return with_partition(topic, event.partition, replicas.advance(partition, topic.config))


def _able(topic: Topic, partition: Partition, live: Collection[NodeId]) -> list[NodeId]:
    return [node for node in partition.replicas if node in live and node not in topic.fenced]


def _eligible(topic: Topic, partition: Partition, able: list[NodeId]) -> list[NodeId]:
    """Return those of the live replicas that have all committed rows."""
    if replicas.by_majority(topic.config):
        if len(able) < high_watermark.majority(len(partition.replicas)):
            return []
        # A wiped node is live, but no longer part of the majority that had the rows.
        return [node for node in able if partition.log_end_offsets[node] >= partition.high_watermark]
    return [node for node in able if node in partition.isr]


def _live_nodes(topic: Topic, live: Iterable[Holder]) -> set[NodeId]:
    return {holder.node for holder in replicas.of_current_incarnations(topic, live)}


def _selected(topic: Topic, partitions: tuple[int, ...] | None) -> list[int]:
    every = range(len(topic.partitions))
    return [number for number in (every if partitions is None else partitions) if number in every]


def imbalanced(
    topics: Mapping[str, Sequence[Partition]], percentage: float = LEADER_IMBALANCE_PER_BROKER_PERCENTAGE.default
) -> dict[str, tuple[int, ...]]:
    """Return the partitions, by topic, that their preferred leaders should lead again.

    After a failure the nodes that survived lead more than their share. If other nodes lead more than `percentage` of
    the partitions that prefer a node, it should lead all of these. Source: Kafka's auto.leader.rebalance.enable,
    KafkaController's checkAndTriggerAutoLeaderRebalance.

    `topics` has all partitions of each topic. Those that are leaderless or being reassigned do not count.
    """
    preferring: dict[NodeId, int] = defaultdict(int)
    led_by_others: dict[NodeId, list[tuple[str, int]]] = defaultdict(list)
    for name, partitions in topics.items():
        for number, partition in enumerate(partitions):
            if partition.leader is None or partition.adding or partition.removing:
                continue
            preferred = partition.replicas[0]
            preferring[preferred] += 1
            if partition.leader != preferred:
                led_by_others[preferred].append((name, number))
    found: dict[str, list[int]] = defaultdict(list)
    for node, some in led_by_others.items():
        if 100 * len(some) > percentage * preferring[node]:
            for name, number in some:
                found[name].append(number)
    return {name: tuple(sorted(numbers)) for name, numbers in found.items()}
