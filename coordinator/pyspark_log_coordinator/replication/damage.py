"""Damage reports: what follows when a node's copy of a file is damaged or lost.

The process that finds such a copy reports it and names the bytes. From that entry on the copy no longer counts: the
node's LEO ends before it, the node leaves the ISRs that need it, and another replica with every row leads in its place.
The node's follower then copies the file again and rejoins.

A report can be false: a disk may have been misread once, or the reporter's memory may be bad. So a report may cost a
copy, but never a row. It counts only if

    the journal names the bytes, and the node holds them in this incarnation
    another node that is not suspected holds the file: the only copy is never given up, unless it is a staged segment,
        whose rows are in the log. If the store does not have the file at all, and the node is in no ISR of its
        partitions, the other node may be suspected: else the node would copy nothing of other partitions
    the ISR keeps min.insync.replicas members that are not suspected
    one of these has every row, if the node leads: nothing is cut

Otherwise nothing changes, and the copy is replaced while it still counts. With replication.mode=quorum, a majority in
the ISR that has all committed rows must remain. If a report arrives after the copy was replaced, the node's follower
checks the copy and counts it again.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import Holder, NodeId
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication import damaged_copies, election, replicas
from pyspark_log_coordinator.replication.damaged_copies import CopiesDamaged, DamagedFile, DamagedSegment
from pyspark_log_coordinator.replication.election import LeaderElected
from pyspark_log_coordinator.replication.isr_shrink import IsrShrunk

if TYPE_CHECKING:
    from collections.abc import Collection


class ReportDamage(msgspec.Struct, frozen=True):
    """Report that a node's copies, in this incarnation, are damaged or lost (at byte 0: all of it)."""

    node: NodeId
    incarnation: str
    files: tuple[DamagedFile, ...] = ()
    segments: tuple[DamagedSegment, ...] = ()
    are_lost: bool = False
    """Whether the node's store does not have the files at all."""


def decide(topic: Topic, command: ReportDamage) -> list[IsrShrunk | LeaderElected | CopiesDamaged]:
    """Return the copies that no longer count and the changes that this forces, none for copies that are needed."""
    if topic.incarnations.get(command.node) != command.incarnation:
        return []
    files = _known_files(topic, command)
    segments = _known_segments(topic, command)
    while files or segments:
        event = CopiesDamaged(command.node, tuple(files), tuple(segments))
        after = damaged_copies.evolve(topic, event)
        affected = sorted(set().union(*files.values(), *segments.values()))
        changes = {number: _changes(topic, after, number, command.node) for number in affected}
        needing = {number for number, events in changes.items() if events is None}
        if not needing:
            return [*(change for events in changes.values() for change in events or ()), event]
        files = {each: numbers for each, numbers in files.items() if not numbers & needing}
        segments = {each: numbers for each, numbers in segments.items() if not numbers & needing}
    return []


def _known_files(topic: Topic, command: ReportDamage) -> dict[DamagedFile, set[int]]:
    """Return the reported files that can be given up, each with the partitions that have rows in it."""
    reported = dict(command.files)
    chunks: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for partition_number, partition in enumerate(topic.partitions):
        for chunk in partition.chunks_between(partition.log_start, partition.log_end):
            if chunk.file in reported:
                chunks[chunk.file][chunk.position].add(partition_number)
    affected = {number: set().union(*positions.values()) for number, positions in chunks.items()}
    return {
        (number, position): affected[number]
        for number, position in sorted(reported.items())
        # A file whose chunks are all rolled is no longer read, and is not among these.
        if position in chunks.get(number, ())
        and _is_spare(topic, topic.file(number).holders, command, affected[number])
    }


def _known_segments(topic: Topic, command: ReportDamage) -> dict[DamagedSegment, set[int]]:
    """Return the reported segments that can be given up, each with its partition."""
    positions = {(number, name): position for number, name, position in command.segments}
    return {
        (number, each.name, position): {number}
        for number, partition in enumerate(topic.partitions)
        for each in partition.all_segments
        if 0 <= (position := positions.get((number, each.name), -1)) < each.log_bytes
        and (
            _is_spare(topic, each.holders, command, {number})
            or (each in partition.staged and replicas.is_held(each.holders, command.node))
        )
    }


def _is_spare(topic: Topic, holders: tuple[Holder, ...], command: ReportDamage, affected: Collection[int]) -> bool:
    """Return whether the node is one of the holders, and another one will do. `affected` are the file's partitions."""
    node = command.node
    nodes = {each.node for each in replicas.of_current_incarnations(topic, holders)}
    others = nodes - {node}
    if not command.are_lost or any(node in topic.partitions[number].isr for number in affected):
        others -= set(topic.suspects)
    return node in nodes and bool(others)


def _changes(topic: Topic, after: Topic, number: int, node: NodeId) -> list[IsrShrunk | LeaderElected] | None:
    """Return how a partition continues without the copies, which `after` does not count; None if it needs them."""
    partition, reached = topic.partitions[number], after.partitions[number].log_end_offsets
    if reached == partition.log_end_offsets:
        return []  # the node lags behind the copies anyway, or is no replica
    mark = partition.high_watermark
    is_quorum = replicas.by_majority(topic.config)
    required = max(1, replicas.required_acks(partition, topic.config))
    if is_quorum and partition.log_end_offsets[node] >= mark > reached[node]:
        having = [each for each in partition.isr if reached[each] >= mark and each not in topic.suspects]
        if len(having) < required:
            return None
    if node != partition.leader and (node not in partition.isr or reached[node] >= mark):
        return []
    isr = tuple(each for each in partition.isr if each != node)
    if not is_quorum and len([each for each in isr if each not in topic.suspects]) < required:
        return None
    if node != partition.leader:
        return [IsrShrunk(number, isr)]
    able = [each for each in election.fully_caught_up(topic, partition) if each != node and each not in topic.suspects]
    return [election.leader_elected(partition, number, able[0], isr)] if able else None
