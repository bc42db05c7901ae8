"""The integrity of a topic: the one check of a state that an entry leads to or a snapshot has.

Checksums and the hashes of entries find what a disk has changed, and typed decoding finds what no version writes. What
is left are bugs in the rules. The check finds those that would lose or double rows without an error: offsets with a gap
or an overlap, chunks whose files are given up, and bounds that go back.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pyspark_log_coordinator.model.topic_state import changed_partitions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_log_coordinator.model.partition import ChunkRef, Partition, SegmentRef
    from pyspark_log_coordinator.model.topic_state import Topic


def check(before: Topic, after: Topic) -> None:
    """Raise `ValueError` if no rule leads from one state to the other. Only what has changed is checked.

    The state before a snapshot is the initial one. Replay turns the error into one that names the entry or snapshot.
    """
    if after.deleted:
        return
    known = len(before.partitions)
    if len(after.partitions) < known:
        raise ValueError("it removes partitions")
    for number in changed_partitions(before.partitions, after.partitions):
        old, new = before.partitions[number] if number < known else None, after.partitions[number]
        try:
            _check_rows(old, new)
            _check_files(after, new)
            if old is not None:
                _check_bounds(old, new)
        except ValueError as error:
            raise ValueError(f"partition {number}: {error}") from error


def _check_rows(old: Partition | None, new: Partition) -> None:
    """Raise `ValueError` unless the segments and chunks have each offset of the log once."""
    if old is None or new.segments is not old.segments:
        _check_joined(new.segments)
    if old is None:
        _check_joined(new.chunks)  # an entry only adds chunks at the end and takes some from the beginning
    if new.segments and new.chunks and new.segments[-1].end_offset != new.chunks[0].base_offset:
        raise ValueError(f"segments end at {new.segments[-1].end_offset}, chunks begin at {new.chunks[0].base_offset}")
    newest = new.chunks or new.segments
    end = newest[-1].end_offset if newest else new.log_start
    if end != new.log_end:
        raise ValueError(f"the last row comes before {end}, but the log ends at {new.log_end}")
    first = (new.segments or new.chunks)[0] if newest else None
    if first is not None and not first.base_offset <= new.log_start < first.end_offset:
        raise ValueError(f"the log starts at {new.log_start}, but the first row is {first.base_offset}")
    if not new.log_start <= new.high_watermark <= new.log_end:
        raise ValueError(f"log start {new.log_start}, high watermark {new.high_watermark}, log end {new.log_end}")


def _check_joined(pieces: Iterable[ChunkRef | SegmentRef]) -> None:
    for before, after in itertools.pairwise(pieces):
        if before.end_offset != after.base_offset:
            raise ValueError(f"offset {after.base_offset} follows {before.end_offset}")


def _check_files(topic: Topic, partition: Partition) -> None:
    """Raise `ValueError` unless the topic has the append files of all chunks, which are in order."""
    chunks = partition.chunks
    if chunks and not topic.first_file <= chunks[0].file <= chunks[-1].file < topic.next_file:
        raise ValueError("a chunk names a file that the topic does not have")


def _check_bounds(old: Partition, new: Partition) -> None:
    if new.log_start < old.log_start:
        raise ValueError(f"the log start goes back from {old.log_start} to {new.log_start}")
    if new.leader_epoch < old.leader_epoch:
        raise ValueError(f"the leader epoch goes back from {old.leader_epoch} to {new.leader_epoch}")
    if new.high_watermark < old.high_watermark and new.leader_epoch == old.leader_epoch:
        raise ValueError(f"the high watermark goes back from {old.high_watermark} to {new.high_watermark}")
