"""Election: who leads a partition when its leader is gone.

Clean: of the live members of the ISR the one with the highest LEO, then preference order. The leader epoch rises by one
and begins at the new leader's LEO; what the log has above that is cut, as in Kafka, and the entry says what was lost
(`row_loss`). Where no member of the ISR is left: with unclean.leader.election.enable the live replica with the highest
LEO, else nobody. Then writes are refused, and reads below the HW go on from whoever holds the rows. For an unclean
election a replica counts with the rows that it really has: one whose disk was set back may lead too (`set_back`).

With replication.mode=quorum a majority of the replicas must live, and the one with the highest LEO leads.

That a replica is live is the caller's to find out: it answers, its marker is the expected one, and the newest file that
the state says it holds is there (a disk restored from a backup has the right marker too).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import Holder, NodeId, Partition
from pyspark_log_coordinator.model.topic_state import Topic, with_partition
from pyspark_log_coordinator.replication import high_watermark, replicas, row_loss, set_back
from pyspark_log_coordinator.replication.damaged_copies import CopiesDamaged
from pyspark_log_coordinator.replication.row_loss import RowsLost
from pyspark_log_coordinator.replication.set_back import SetBack
from pyspark_log_coordinator.replication.suspicion import Suspicion
from pyspark_log_storage.ranges import Count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


class ElectLeaders(msgspec.Struct, frozen=True):
    """Elect leaders where the present one is gone or there is none. `partitions` None means: of all."""

    live: tuple[Holder, ...]
    """The nodes that the caller found live, in which incarnation."""
    gone: tuple[Suspicion, ...] = ()
    """The suspicions that have stood for a full period on the caller's clock; one that was cancelled does not count."""
    partitions: tuple[int, ...] | None = None
    unclean: bool = False
    """An operator gives up what only the ISR has. Else `unclean.leader.election.enable` says whether that may be."""
    set_back: tuple[SetBack, ...] = ()
    """The nodes that answer and lack files, also such as were found live: only an unclean election looks at these."""


class ElectPreferred(msgspec.Struct, frozen=True):
    """Give the lead back to the preferred leaders, as far as they live and have every row: nothing is ever cut."""

    live: tuple[Holder, ...]
    partitions: tuple[int, ...] | None = None


class LeaderElected(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """A node leads the partition, or nobody does. The rows of the new leader epoch begin at `start`."""

    partition: Count
    leader: NodeId | None
    leader_epoch: Count
    start: Count
    isr: tuple[NodeId, ...]


Elected = CopiesDamaged | RowsLost | LeaderElected
"""What an election may consist of, in this order."""


def decide(topic: Topic, command: ElectLeaders) -> list[Elected]:
    """Return the elections, none where the leaders are there or the suspicions of them were cancelled."""
    live = set(_present(topic, command.live))
    gone = {each.node for each in command.gone if topic.suspects.get(each.node) == each.number} - live
    unclean = is_unclean(topic, command)
    found = {each.node: each for each in command.set_back if topic.incarnations.get(each.node) == each.incarnation}
    events: list[Elected] = []
    for number in _chosen(topic, command.partitions):
        leader = topic.partitions[number].leader
        if leader is None or leader in gone or leader in topic.fenced:
            clean = elect(topic, number, live, gone)
            has_leader = any(isinstance(each, LeaderElected) and each.leader is not None for each in clean)
            events += clean if has_leader or not unclean else _elect_unclean(topic, number, live, gone, found) or clean
    return events


def is_unclean(topic: Topic, command: ElectLeaders) -> bool:
    """Return whether a replica that is not in sync may lead, if no other can."""
    return command.unclean or topic.config.unclean_leader_election_enable


def decide_preferred(topic: Topic, command: ElectPreferred) -> list[LeaderElected]:
    """Return the elections of preferred leaders that do not lead."""
    live = set(_present(topic, command.live))
    events = []
    for number in _chosen(topic, command.partitions):
        partition = topic.partitions[number]
        preferred = partition.replicas[0]
        if (
            partition.leader not in (None, preferred)
            and preferred in live
            and preferred in fully_caught_up(topic, partition)
        ):
            events.append(leader_elected(partition, number, preferred, partition.isr))
    return events


def elect(
    topic: Topic, number: int, live: Collection[NodeId], gone: Collection[NodeId]
) -> list[RowsLost | LeaderElected]:
    """Return the clean election of a leader among `live`, in the place of one that is gone or fenced.

    `gone` leave the ISR. Nothing where nobody leads and nobody can.
    """
    partition = topic.partitions[number]
    out = {*gone, *topic.fenced}
    able = [node for node in partition.replicas if node in live and node not in out]
    best = max(_entitled(topic, partition, able), key=partition.log_end_offsets.__getitem__, default=None)
    if best is None:
        if partition.leader is None:
            return []
        # The ISR stays: only its members know all that was acknowledged, and may lead when they are back.
        return [LeaderElected(number, None, partition.leader_epoch + 1, partition.log_end, partition.isr)]
    start = partition.log_end_offsets[best]
    kept = (node for node in partition.isr if node not in out)
    isr = replicas.in_preference_order(partition.replicas, {*kept, best})
    return [
        *row_loss.above(topic, number, start),
        LeaderElected(number, best, partition.leader_epoch + 1, start, isr),
    ]


def awaited(
    topic: Topic,
    partition: Partition,
    live: Collection[NodeId],
    gone: Collection[NodeId],
    found: Collection[NodeId],
) -> tuple[NodeId, ...]:
    """Return the replicas that rule out an unclean election: they may come back with all that was committed.

    `found` are those whose disks were set back. Such a node has nothing more to bring, unless it is under suspicion: a
    restore may be under way, and end before the time-out does.
    """
    voters = partition.replicas if topic.config.replication_mode == "quorum" else partition.isr
    known = {*live, *gone, *topic.fenced, *(node for node in found if node not in topic.suspects)}
    return tuple(node for node in voters if node not in known)


def _elect_unclean(
    topic: Topic,
    number: int,
    live: Collection[NodeId],
    gone: Collection[NodeId],
    found: Mapping[NodeId, SetBack],
) -> list[Elected]:
    """Return the election of the replica that really has most rows, the first of several.

    Nothing if none is there, or another may come back that has all that was committed.
    """
    partition = topic.partitions[number]
    out = {*gone, *topic.fenced}
    able = [node for node in partition.replicas if node in live and node not in out]
    if awaited(topic, partition, live, gone, found):
        return []
    ends = {
        node: set_back.real_end(topic, number, found[node]) if node in found else partition.log_end_offsets[node]
        for node in partition.replicas
        if node in able or (node in found and node not in topic.fenced)
    }
    best = max(ends, key=ends.__getitem__, default=None)
    if best is None:
        return []
    start = ends[best]
    return [
        *(set_back.told(topic, number, found[best]) if best in found else ()),
        *row_loss.above(topic, number, start),
        LeaderElected(number, best, partition.leader_epoch + 1, start, (best,)),
    ]


def leader_elected(partition: Partition, number: int, leader: NodeId, isr: tuple[NodeId, ...]) -> LeaderElected:
    """Return the election of a leader that has every row."""
    return LeaderElected(number, leader, partition.leader_epoch + 1, partition.log_end, isr)


def fully_caught_up(topic: Topic, partition: Partition) -> tuple[NodeId, ...]:
    """Return the members of the ISR that have every row and are in service: any of them may lead at no loss."""
    return tuple(
        node
        for node in partition.isr
        if partition.log_end_offsets[node] == partition.log_end and node not in topic.fenced
    )


def evolve(topic: Topic, event: LeaderElected) -> Topic:
    """Return the topic with the new leader; what the log had above its LEO was cut by the event before."""
    partition = topic.partitions[event.partition]
    if event.start != partition.log_end:
        raise ValueError(f"a leader is elected at offset {event.start}, and the log ends at {partition.log_end}")
    starts = partition.epoch_starts
    if event.leader is not None:
        # An epoch in which nothing was written leaves no mark (Kafka's LeaderEpochFileCache.assign).
        kept = tuple(each for each in starts if each[1] < event.start)
        starts = (*kept, (event.leader_epoch, event.start))
    partition = msgspec.structs.replace(
        partition, leader=event.leader, leader_epoch=event.leader_epoch, epoch_starts=starts, isr=event.isr
    )
    return with_partition(topic, event.partition, replicas.advance(partition, topic.config))


def _entitled(topic: Topic, partition: Partition, able: list[NodeId]) -> list[NodeId]:
    """Return those of the live replicas that may lead without loss of what was committed."""
    if topic.config.replication_mode == "quorum":
        if len(able) < high_watermark.majority(len(partition.replicas)):
            return []
        # One that was wiped lives, and is no part of the majority that had the rows.
        return [node for node in able if partition.log_end_offsets[node] >= partition.high_watermark]
    return [node for node in able if node in partition.isr]


def _present(topic: Topic, live: Iterable[Holder]) -> Iterable[NodeId]:
    return (holder.node for holder in replicas.of_current_incarnations(topic, live))


def _chosen(topic: Topic, partitions: tuple[int, ...] | None) -> list[int]:
    every = range(len(topic.partitions))
    return [number for number in (every if partitions is None else partitions) if number in every]
