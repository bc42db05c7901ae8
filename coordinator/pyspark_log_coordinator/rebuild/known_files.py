"""What a topic becomes whose log begins anew: its known state, as far as the files of that state are there. Pure.

Of each partition:

rows        those of the state, up to the first file that no node has whole. There the partition ends (`cut`): its later
            rows are lost, and a producer whose newest batch lost rows gets an error when it sends that batch again
replicas    those of the state that are among the nodes; without any, the nodes that have files of it
leader      the replica that has the most; it gets the files that it lacks (`lacking`) before the journal begins
epoch       a new one at the log end, above any that a reader can know

The files of the former log that the new one lacks become orphans, and stay for `orphan.retention.ms` like all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster.placement import default_replication_factor
from pyspark_log_coordinator.model.partition import (
    ChunkRef,
    Holder,
    NodeId,
    Partition,
    SegmentRef,
    empty,
)
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication import replicas, row_loss
from pyspark_log_storage import layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Copies = Mapping[str, Sequence[NodeId]]
    """The nodes that have each file whole, by its key; that of a segment is without ending."""

NUMBER_MARGIN = 1_000_000
"""A lost journal had fewer entries than this after the newest entry that any file names: each batch leaves a file."""
EPOCH_MARGIN = 1_000
"""How far the new leader epoch is above the newest known one: readers may know later epochs than any folder."""


class Loss(msgspec.Struct, frozen=True):
    """The end of a partition: no node has the file whole that holds the rows from `offset` on."""

    partition: int
    offset: int
    rows: int
    """How many rows are lost, in this file and after it."""
    file: str
    """Its key, of a segment without ending."""


def next_number(newest: int) -> int:
    """Return the first entry number of a new journal, above any that the former one can have had.

    `newest` is the largest entry number that any file names.
    """
    return (newest // NUMBER_MARGIN + 2) * NUMBER_MARGIN


def cut(state: Topic, copies: Copies) -> tuple[Topic, tuple[Loss, ...]]:
    """Return the topic without the rows that no node has, and what is lost."""
    losses = []
    for number, partition in enumerate(state.partitions):
        for piece in partition.pieces_from(partition.log_start):
            key = key_of(state, number, piece)
            if not copies.get(key):
                end = max(piece.base_offset, partition.log_start)
                losses.append(Loss(number, end, partition.rows_between(end, partition.log_end), key))
                for event in row_loss.cut_from(state, number, end):
                    state = row_loss.evolve(state, event)
                break
    return state, tuple(losses)


def lacking(state: Topic, copies: Copies, nodes: Sequence[NodeId]) -> Iterator[tuple[str, NodeId]]:
    """Yield the files that the next leader of each partition of a cut topic lacks, by key, and that node."""
    for number, partition in enumerate(state.partitions):
        keys = _keys(state, number)
        ends = {node: reached(state, number, copies, node) for node in _replicas(partition, keys, copies, nodes)}
        leader = max(ends, key=lambda node: ends[node])
        yield from ((key, leader) for key in keys if leader not in copies[key])


def anew(
    state: Topic,
    number: int,
    copies: Copies,
    nodes: Mapping[NodeId, str],
    generation: int = 1,
) -> Topic:
    """Return the state with which the journal of a cut topic begins at entry `number`.

    `nodes` are those that are there, in order, with their incarnations.
    """
    used = sorted({chunk.file for each in state.partitions for chunk in each.chunks})
    numbers = {file: position for position, file in enumerate(used)}

    def holders(key: str) -> tuple[Holder, ...]:
        return tuple(Holder(node, nodes[node]) for node in copies[key])

    def begun(index: int, partition: Partition) -> Partition:
        members = _replicas(partition, _keys(state, index), copies, list(nodes))
        ends = {node: reached(state, index, copies, node) for node in members}
        isr = tuple(node for node in members if ends[node] == partition.log_end)
        epoch = partition.leader_epoch + EPOCH_MARGIN
        epochs = [each for each in partition.epoch_starts if each[1] < partition.log_end]
        return msgspec.structs.replace(
            empty(members, ()),
            isr=isr,
            leader=isr[0] if isr else None,
            leader_epoch=epoch,
            epoch_starts=(*epochs, (epoch, partition.log_end)),
            log_start=partition.log_start,
            log_end=partition.log_end,
            high_watermark=partition.log_end,
            log_end_offsets=ends,
            segments=tuple(
                msgspec.structs.replace(each, holders=holders(key_of(state, index, each)))
                for each in partition.segments
            ),
            chunks=tuple(msgspec.structs.replace(each, file=numbers[each.file]) for each in partition.chunks),
            # Which rows had been compacted when a batch was planned is not known: no batch has seen this count.
            compactions=number if partition.compactions or state.config.is_compacted else 0,
        )

    partitions = [begun(index, each) for index, each in enumerate(state.partitions)]
    files = [msgspec.structs.replace(state.file(each), holders=holders(_file_key(state, each))) for each in used]
    members = {node for each in partitions for node in each.replicas}
    members |= {holder.node for each in files for holder in each.holders}
    members |= {holder.node for one in partitions for each in one.segments for holder in each.holders}
    return Topic(
        name=state.name,
        topic_id=state.topic_id,
        config=state.config,
        schemas=state.schemas,
        incarnations={node: nodes[node] for node in nodes if node in members},
        partitions=tuple(partitions),
        files=tuple(files),
        producers=state.producers,
        generation=generation,
        started=True,
        restored=number,
    )


def key_of(state: Topic, number: int, piece: SegmentRef | ChunkRef) -> str:
    """Return the key of a segment of a partition, without ending, or of a chunk's append file."""
    if isinstance(piece, SegmentRef):
        return f"{layout.topic_folder(state.name, state.topic_id)}{number}/{piece.name}"
    return _file_key(state, piece.file)


def _keys(state: Topic, number: int) -> list[str]:
    partition = state.partitions[number]
    return [key_of(state, number, each) for each in partition.pieces_from(partition.log_start)]


def _file_key(state: Topic, number: int) -> str:
    return layout.append_file(state.name, state.topic_id, state.file(number).name)


def _replicas(partition: Partition, keys: Sequence[str], copies: Copies, nodes: Sequence[NodeId]) -> tuple[NodeId, ...]:
    """Return the partition's replicas among the nodes; without any, those that have files of it, or the first ones."""
    present = replicas.in_preference_order(partition.replicas, nodes)
    having = tuple(node for node in nodes if any(node in copies[key] for key in keys))
    return present or having or tuple(nodes[: default_replication_factor(len(nodes))])


def reached(state: Topic, number: int, copies: Copies, node: NodeId) -> int:
    """Return the end of the rows of a partition that a node has without a gap."""
    partition = state.partitions[number]
    end = partition.log_start
    for piece in partition.pieces_from(end):
        if node not in copies.get(key_of(state, number, piece), ()):
            break
        end = piece.end_offset
    return end
