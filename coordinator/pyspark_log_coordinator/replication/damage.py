"""Damage: a node's copy of a file is not what was written, or is gone though the node's store is the right one.

Whoever has found that says so (`ReportDamage`) and names the bytes. From that entry on the copy is not counted: the
node's LEO ends before it, the node leaves the ISRs that need it, where it led another leads that has every row, and its
follower copies the file again as any other that it lacks. Then it is in sync again.

Nobody can see from here whether a report is true: a disk may be read wrongly once, and a client's memory may be bad. So
a report may cost a copy, and never a row. It counts only where

    the journal names the bytes, and says that the node, in this incarnation, holds them
    another node holds the file that is not suspected: the only copy is never given up
    the ISR does without the node: min.insync.replicas are left that are not suspected
    where the node leads, one of these has every row: nothing is cut

Else it changes nothing, and the copy is made again in its place, still counted. With replication.mode=quorum a majority
must be left that has what was committed. A report may also come late, when the copy has been made again: then the
node's follower looks, finds it whole, and counts it again.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from pyspark_log_coordinator.model.partition import Holder, NodeId, Partition
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication import damaged_copies, election, replicas
from pyspark_log_coordinator.replication.damaged_copies import CopiesDamaged, DamagedFile, DamagedSegment
from pyspark_log_coordinator.replication.election import LeaderElected
from pyspark_log_coordinator.replication.isr import IsrShrunk


class ReportDamage(msgspec.Struct, frozen=True):
    """Say that copies on a node, in this incarnation, are damaged or gone. Positions are in bytes, 0 where all is."""

    node: NodeId
    incarnation: str
    files: tuple[DamagedFile, ...] = ()
    segments: tuple[DamagedSegment, ...] = ()


def decide(topic: Topic, command: ReportDamage) -> list[IsrShrunk | LeaderElected | CopiesDamaged]:
    """Return what is not counted any more, and who leads and is in sync without it; nothing where it is needed."""
    if topic.incarnations.get(command.node) != command.incarnation:
        return []
    judged = _Judged(topic, command)
    while True:
        event = judged.event()
        if not event.files and not event.segments:
            return []
        after = damaged_copies.evolve(topic, event)
        changes: list[IsrShrunk | LeaderElected] = []
        needing: set[int] = set()
        for number in judged.concerned(event):
            change = _change(topic, after, number, event.node)
            if isinstance(change, _Needed):
                needing.add(number)
            elif change is not None:
                changes.append(change)
        if not needing:
            return [*changes, event]
        judged.keep(needing)


class _Judged:
    """What of a report may count: what the journal names, without what is found to be needed."""

    def __init__(self, topic: Topic, command: ReportDamage) -> None:
        self._topic = topic
        self._node = command.node
        self._partitions: dict[DamagedFile | DamagedSegment, set[int]] = {}
        """The partitions with rows in each of them."""
        self._files = self._named_files(command)
        self._segments = self._named_segments(command)

    def event(self) -> CopiesDamaged:
        """Return what counts by now."""
        return CopiesDamaged(self._node, self._files, self._segments)

    def concerned(self, event: CopiesDamaged) -> list[int]:
        """Return the partitions with rows in any of it."""
        counting: list[DamagedFile | DamagedSegment] = [*event.files, *event.segments]
        return sorted({number for each in counting for number in self._partitions[each]})

    def keep(self, needing: set[int]) -> None:
        """Let nothing count that these partitions need."""
        self._files = tuple(each for each in self._files if not self._partitions[each] & needing)
        self._segments = tuple(each for each in self._segments if not self._partitions[each] & needing)

    def _named_files(self, command: ReportDamage) -> tuple[DamagedFile, ...]:
        topic = self._topic
        reported = {number for number, _ in command.files}
        chunks: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        for partition_number, partition in enumerate(topic.partitions):
            for chunk in partition.chunks_between(partition.log_start, partition.log_end):
                if chunk.file in reported:
                    chunks[chunk.file][chunk.position].add(partition_number)
        found = []
        for number, position in sorted(dict(command.files).items()):
            # Of a file that is rolled nothing is read any more: it is not named.
            if position in chunks.get(number, ()) and self._may_go(topic.file(number).holders):
                self._partitions[number, position] = set().union(*chunks[number].values())
                found.append((number, position))
        return tuple(found)

    def _named_segments(self, command: ReportDamage) -> tuple[DamagedSegment, ...]:
        positions = {(number, name): position for number, name, position in command.segments}
        found: list[DamagedSegment] = []
        for number, partition in enumerate(self._topic.partitions):
            for each in (*partition.segments, *partition.staged):
                bad: DamagedSegment = number, each.name, positions.get((number, each.name), -1)
                if 0 <= bad[2] < each.log_bytes and self._may_go(each.holders):
                    self._partitions[bad] = {number}
                    found.append(bad)
        return tuple(found)

    def _may_go(self, holders: tuple[Holder, ...]) -> bool:
        """Return whether the node is one of the holders, and another is left."""
        there = {each.node for each in replicas.of_current_incarnations(self._topic, holders)}
        return self._node in there and bool(there - {self._node} - set(self._topic.suspects))


class _Needed:
    """The answer that a partition cannot do without the node."""


def _change(topic: Topic, after: Topic, number: int, node: NodeId) -> IsrShrunk | LeaderElected | _Needed | None:
    """Return how a partition does without what a node has lost; `after` is the topic in which that is not counted."""
    partition, reached = topic.partitions[number], after.partitions[number].log_end_offsets
    if reached == partition.log_end_offsets:
        return None  # the node was behind anyway, or is no replica
    mark = partition.high_watermark
    if topic.config.replication_mode == "quorum":
        having = [each for each, end in reached.items() if end >= mark and each not in topic.suspects]
        if partition.log_end_offsets[node] >= mark > reached[node] and len(having) < _least(topic, partition):
            return _Needed()
    if node != partition.leader and (node not in partition.isr or reached[node] >= mark):
        return None
    isr = tuple(each for each in partition.isr if each != node)
    if topic.config.replication_mode != "quorum":
        live = [each for each in isr if each not in topic.suspects]
        if len(live) < _least(topic, partition):
            return _Needed()
    if node != partition.leader:
        return IsrShrunk(number, isr)
    able = [each for each in election.fully_caught_up(topic, partition) if each != node and each not in topic.suspects]
    return election.leader_elected(partition, number, able[0], isr) if able else _Needed()


def _least(topic: Topic, partition: Partition) -> int:
    return max(1, replicas.required_acks(partition, topic.config))
