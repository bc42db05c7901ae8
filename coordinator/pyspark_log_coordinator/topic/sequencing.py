"""Sequencing: the journal entry that gives chunks their offsets, and so makes them part of the log.

All chunks of all partitions of a batch get their offsets in one entry: in the order of the writing tasks, then of the
chunks in a task's file. Each holder whose LEO is the log end moves on with it.

With acks=all the same entry sets ISR' = the members of the ISR that hold everything up to the new log end, and elects
one of them if the leader is not among them. So a node that fails costs no retry. The batch is refused below
min.insync.replicas, and if no member of the ISR has all earlier rows: then the only copy of some is gone, and an
election must cut them first. With acks=1 the leader must hold the batch, and the ISR stays as it is.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from pyspark_log_coordinator.model import producers, timestamps
from pyspark_log_coordinator.model.batch import Acks, SequencedFile
from pyspark_log_coordinator.model.partition import ChunkRef, NodeId, Partition
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.model.topic_state import FileRef, Topic, TopicCommand, with_partitions
from pyspark_log_coordinator.replication import election, replicas, suspicion
from pyspark_log_coordinator.replication.election import LeaderElected
from pyspark_log_coordinator.replication.isr_shrink import IsrShrunk
from pyspark_log_coordinator.segments import orphans
from pyspark_log_coordinator.segments.swap import SwapSegments
from pyspark_log_storage.errors import InvalidRecord, NotEnoughReplicas
from pyspark_log_storage.layout import born_of
from pyspark_log_storage.stored_fields import Count, Int64

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log_coordinator.journal.state_machine import Outcome


Offsets: TypeAlias = dict[int, tuple[int, int]]
"""The first offset and the end of the rows of a batch, by partition."""


class CommitBatch(TopicCommand, frozen=True):
    """Append the rows of a batch. `files` are in the order of the writing tasks."""

    claim: ProducerClaim | None
    """None for a batch write without an identity, which is never a replay."""
    files: tuple[SequencedFile, ...]
    acks: Acks = "all"
    swaps: tuple[SwapSegments, ...] = ()
    """What inline maintenance rolled and merged; stale ones are dropped."""

    @property
    def rows(self) -> int:
        """The number of rows in the batch."""
        return sum(chunk.rows for file in self.files for chunk in file.chunks)


class BatchSequenced(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The batch is in the log. The offsets of its chunks follow from their order."""

    claim: ProducerClaim | None
    rows: Count
    acks: Acks
    files: tuple[SequencedFile, ...]
    at_ms: Int64
    """The log's clock, in the process that decided."""


def decide(topic: Topic, command: CommitBatch, now: int) -> list[Any]:
    """Return the events of a batch: none for a replay, and for a batch without rows that follows no other.

    Raises `ProducerFenced`, `BatchMismatch` (see `producers`; also if a partition ends elsewhere than in `begins`),
    `NotEnoughReplicas`, `StaleFile`, and `InvalidRecord` for a partition or a schema that the topic does not have, and
    for a row whose time it refuses (`timestamps`).
    """
    rows, claim = command.rows, command.claim
    if claim is not None and producers.is_replay(topic.producers, claim, rows, topic.name):
        return []
    if rows == 0:
        is_counted = claim is not None and claim.follows
        return [BatchSequenced(claim, 0, command.acks, (), now)] if is_counted else []
    _check_chunks(topic, command.files, now)
    orphans.check_born(topic, (file.name for file in command.files))
    files = tuple(
        msgspec.structs.replace(file, holders=replicas.of_current_incarnations(topic, file.holders))
        for file in command.files
    )
    growths = lay_out(topic.partitions, files, topic.next_file)
    changed = [
        event for index in sorted(growths) if (event := _check_holders(topic, command.acks, index, growths[index]))
    ]
    return [*changed, BatchSequenced(claim, rows, command.acks, files, now)]


def _check_holders(topic: Topic, acks: Acks, index: int, growth: Growth) -> IsrShrunk | LeaderElected | None:
    """Return how the ISR of partition `index` shrinks, or its new leader. Raises `NotEnoughReplicas`."""
    partition = topic.partitions[index]
    where = f"topic {topic.name!r}, partition {index}:"
    end = growth.chunks[-1].end_offset
    voters = replicas.voters(partition, topic.config)
    holding = tuple(node for node in voters if growth.log_end_offsets[node] == end and node not in topic.fenced)
    if acks != "all":
        if partition.leader not in holding:
            raise NotEnoughReplicas(f"{where} {_why_leader_lacks_batch(topic, partition)}")
        return None
    if not holding:
        raise NotEnoughReplicas(f"{where} {_why_no_replica_counts(topic, partition)}")
    needed = replicas.required_acks(partition, topic.config)
    if len(holding) < needed:
        raise NotEnoughReplicas(
            f"{where} {len(holding)} in-sync replicas hold the batch and {_minimum(topic)} is {needed}; bring nodes "
            "back, then try again"
        )
    if partition.leader not in holding:
        return election.leader_elected(partition, index, holding[0], holding)
    return None if holding == partition.isr else IsrShrunk(index, holding)


def _why_leader_lacks_batch(topic: Topic, partition: Partition) -> str:
    if partition.leader is None:
        isr = ", ".join(partition.isr) or "empty"
        return (
            f"it has no leader, because no in-sync replica is reachable (ISR: {isr}); bring one back, then try again. "
            f"{_last_resort(topic)}. Rows below the high watermark can be read"
        )
    return (
        f"the leader's node {partition.leader!r} does not hold the batch; check that its disk is mounted and of the "
        "expected incarnation, then try again"
    )


def _last_resort(topic: Topic) -> str:
    return f"If they are lost for good: pyspark-log topics elect-leaders {topic.name} --unclean"


def _why_no_replica_counts(topic: Topic, partition: Partition) -> str:
    ends = partition.log_end_offsets
    complete = [node for node in partition.isr if ends[node] == partition.log_end]
    if len(complete) == len(partition.isr):
        disks = ", ".join(complete) or "the replicas"
        why = f"no in-sync replica holds the batch; check the disks of {disks}, then try again"
        return why if partition.leader is not None else f"{why}. {_last_resort(topic)}"
    known = max((ends[node] for node in partition.isr if node not in complete), default=partition.log_end)
    return (
        "no in-sync replica holds the batch and all rows before it: the only copy of offsets "
        f"{known} to {partition.log_end - 1} is on {', '.join(complete) or 'no node'}. Try again when that node is "
        "back, or when an election has cut these rows, which were written with acks=1"
    )


def _minimum(topic: Topic) -> str:
    return "a majority" if replicas.by_majority(topic.config) else "min.insync.replicas"


class Growth(msgspec.Struct, frozen=True):
    """The chunks that a batch adds to one partition, and the LEOs after them."""

    chunks: list[ChunkRef]
    log_end_offsets: dict[NodeId, int]


def lay_out(partitions: Sequence[Partition], files: Sequence[SequencedFile], first_file: int) -> dict[int, Growth]:
    """Return what the files add to each partition. Files are numbered from `first_file`."""
    growths: dict[int, Growth] = {}
    for file_number, file in enumerate(files, first_file):
        holders = {holder.node for holder in file.holders}
        for chunk in file.chunks:
            partition = partitions[chunk.partition]
            growth = growths.get(chunk.partition)
            if growth is None:
                growth = growths[chunk.partition] = Growth([], dict(partition.log_end_offsets))
            base, reached = _end(partition, growth.chunks)
            growth.chunks.append(
                ChunkRef(
                    base_offset=base,
                    rows=chunk.rows,
                    file=file_number,
                    position=chunk.position,
                    length=chunk.length,
                    min_timestamp=chunk.min_timestamp,
                    max_timestamp=chunk.max_timestamp,
                    timestamp_reached=max(reached, chunk.max_timestamp),
                    leader_epoch=partition.leader_epoch,
                    schema_id=chunk.schema_id,
                    crc=chunk.crc,
                )
            )
            for node in holders:
                if growth.log_end_offsets.get(node) == base:
                    growth.log_end_offsets[node] = base + chunk.rows
    return growths


def _grow(topic: Topic, partition: Partition, growth: Growth) -> Partition:
    """Return the partition with the batch's chunks at its end. A replica that has all of it rejoins the ISR."""
    end = growth.chunks[-1].end_offset
    grown = msgspec.structs.replace(
        partition,
        log_end=end,
        log_end_offsets=growth.log_end_offsets,
        chunks=(*partition.chunks, *growth.chunks),
    )
    joining = []
    if len(grown.isr) < len(grown.replicas):
        joining = [
            node for node, reached in growth.log_end_offsets.items() if reached == end and node not in topic.fenced
        ]
    return replicas.advance(grown, topic.config, joining)


def evolve(topic: Topic, event: BatchSequenced) -> Topic:
    """Return the topic after the batch. Raises `ValueError` for a chunk whose schema the topic does not have."""
    schemas = len(topic.schemas)
    if any(chunk.schema_id >= schemas for file in event.files for chunk in file.chunks):
        raise ValueError(f"a chunk has a schema that the topic lacks, which has {schemas}")
    known = topic.producers
    growths = lay_out(topic.partitions, event.files, topic.next_file)
    if event.claim is not None:
        born = min((born_of(file.name) for file in event.files), default=0)
        begins = {index: growth.chunks[0].base_offset for index, growth in growths.items()}
        moved = producers.move(known.get(event.claim.producer), event.claim, event.rows, born, begins)
        known = {**known, event.claim.producer: moved}
    grown = {index: _grow(topic, topic.partitions[index], growth) for index, growth in growths.items()}
    producer, batch_id = (event.claim.producer, event.claim.batch_id) if event.claim is not None else ("", 0)
    new = (FileRef(file.name, file.holders, event.at_ms, producer, batch_id) for file in event.files)
    files = (*topic.files, *new)
    topic = with_partitions(topic, grown, files=files, producers=known)
    return suspicion.without_suspicions(topic, (holder.node for file in event.files for holder in file.holders))


def _end(partition: Partition, placed: Sequence[ChunkRef]) -> tuple[int, int]:
    """Return the log end and the largest timestamp (microseconds) after the chunks `placed`."""
    if placed:
        return placed[-1].end_offset, placed[-1].timestamp_reached
    return partition.log_end, partition.timestamp_reached


def _check_chunks(topic: Topic, files: Sequence[SequencedFile], now: int) -> None:
    """Raise `InvalidRecord` for a partition or a schema that the topic lacks, or the time of a row that it refuses."""
    partitions, schemas = len(topic.partitions), len(topic.schemas)
    lowest, highest = timestamps.bounds(topic.config, now)
    for chunk in (chunk for file in files for chunk in file.chunks):
        if not 0 <= chunk.partition < partitions:
            raise InvalidRecord(
                f"topic {topic.name!r} has no partition {chunk.partition}: it has {partitions}, numbered from 0; "
                "correct the column 'partition' or add partitions"
            )
        if chunk.schema_id >= schemas:
            raise InvalidRecord(
                f"topic {topic.name!r}, partition {chunk.partition}: a chunk of the batch has schema "
                f"{chunk.schema_id}, and the topic has {schemas}, numbered from 0; start the write again"
            )
        if chunk.min_timestamp < lowest or chunk.max_timestamp > highest:
            wrong = chunk.max_timestamp if chunk.max_timestamp > highest else chunk.min_timestamp
            why = timestamps.refusal(topic.config, wrong, now)
            raise InvalidRecord(f"topic {topic.name!r}, partition {chunk.partition}: {why}")


def answer(command: object, outcome: Outcome[Topic]) -> Offsets | None:
    """Return the offsets of a batch that another process waits for; see `Machine.answer`.

    None if some of its rows may not be committed yet: then their writer has to see to it. Where the rows of a replay
    are is often unknown, and a run that used acks=1 may have written them, to other partitions if it had other tasks.
    """
    if not isinstance(command, CommitBatch):
        return None
    found, partitions = offsets(command, outcome), outcome.state.partitions
    if found.keys() == _rows(command).keys():
        is_committed = all(end <= partitions[number].high_watermark for number, (_, end) in found.items())
    else:
        is_committed = all(partition.log_end <= partition.high_watermark for partition in partitions)
    return found if is_committed else None


def offsets(command: CommitBatch, outcome: Outcome[Topic]) -> Offsets:
    """Return the offsets of a batch, given the outcome of its command.

    For a replay these are what the log remembers of a producer that expires, else the rows of the same files that are
    not in segments yet.
    """
    if not any(isinstance(event, BatchSequenced) for event in outcome.events):
        return _of_replay(command, outcome.state)
    rows = _rows(command)
    # The state is the one after the batch's own events, so its rows are the last ones.
    ends = {partition: outcome.state.partitions[partition].log_end for partition in sorted(rows)}
    return {partition: (end - rows[partition], end) for partition, end in ends.items()}


def _of_replay(command: CommitBatch, state: Topic) -> Offsets:
    """Return the offsets of the rows of a batch that its producer's claim, or the names of its files, tell.

    Without the claim a partition of which a part has been rolled is left out.
    """
    rows, claim = _rows(command), command.claim
    known = None if claim is None else state.producers.get(claim.producer)
    if claim and known and known.batch_id == claim.batch_id and known.begins is not None:
        return {partition: (begin, begin + rows[partition]) for partition, begin in sorted(known.begins.items())}
    names = {file.name for file in command.files}
    numbers = {state.first_file + index for index, file in enumerate(state.files) if file.name in names}
    if not numbers:
        return {}
    found = {}
    for partition in sorted(rows):
        chunks = [chunk for chunk in state.partitions[partition].chunks if chunk.file in numbers]
        if chunks and chunks[-1].end_offset - chunks[0].base_offset == rows[partition]:
            found[partition] = chunks[0].base_offset, chunks[-1].end_offset
    return found


def _rows(command: CommitBatch) -> Counter[int]:
    """Return the number of the batch's rows in each partition."""
    rows: Counter[int] = Counter()
    for file in command.files:
        for chunk in file.chunks:
            rows[chunk.partition] += chunk.rows
    return rows
