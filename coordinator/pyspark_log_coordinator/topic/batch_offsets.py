"""Where the rows of a batch are in the log: the offsets that a commit returns."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from pyspark_log_coordinator.topic.sequencing import BatchSequenced, CommitBatch

if TYPE_CHECKING:
    from pyspark_log_coordinator.journal.state_machine import Outcome
    from pyspark_log_coordinator.model.topic_state import Topic

Offsets: TypeAlias = dict[int, tuple[int, int]]
"""The first offset and the end of the rows, by partition."""


def answer(command: object, outcome: Outcome[Topic]) -> Offsets | None:
    """Return the offsets of a batch that another process waits for; see `Machine.answer`.

    None if some of its rows may not be committed yet: then their writer has to see to it. Where the rows of a replay
    are is often unknown, and a run that used acks=1 may have written them, to other partitions if it had other tasks.
    """
    if not isinstance(command, CommitBatch):
        return None
    offsets, partitions = of_outcome(command, outcome), outcome.state.partitions
    if offsets.keys() == _rows(command).keys():
        is_committed = all(end <= partitions[number].high_watermark for number, (_, end) in offsets.items())
    else:
        is_committed = all(partition.log_end <= partition.high_watermark for partition in partitions)
    return offsets if is_committed else None


def of_outcome(command: CommitBatch, outcome: Outcome[Topic]) -> Offsets:
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
    offsets = {}
    for partition in sorted(rows):
        chunks = [chunk for chunk in state.partitions[partition].chunks if chunk.file in numbers]
        if chunks and chunks[-1].end_offset - chunks[0].base_offset == rows[partition]:
            offsets[partition] = chunks[0].base_offset, chunks[-1].end_offset
    return offsets


def _rows(command: CommitBatch) -> Counter[int]:
    """Return the number of the batch's rows in each partition."""
    rows: Counter[int] = Counter()
    for file in command.files:
        for chunk in file.chunks:
            rows[chunk.partition] += chunk.rows
    return rows
