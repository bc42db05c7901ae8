"""The integrity of a topic: checks of stored entries and snapshots that have the right types but impossible values.

A faulty machine or a forger may have written them. Most impossible events make `evolve` fail. These checks find the
others, which would lead to a state with a gap in the offsets, or in which a rule never ends. An entry that consists of
batches needs no check: the types of its fields and `evolve` are enough.

The checks raise `ValueError`, which replay turns into an error that names the entry or the snapshot.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from pyspark_log_coordinator.journal.state_machine import JournalMoved, check_ordinals
from pyspark_log_coordinator.topic import columns
from pyspark_log_coordinator.topic.sequencing import BatchSequenced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark_log_coordinator.model.partition import ChunkRef, Partition, SegmentRef
    from pyspark_log_coordinator.model.topic_state import Topic


_NUMBERS = ("generation", "orphan_floor", "suspicions", "first_file", "next_file")
OFFSET_MAX = 2**62
"""Batches after this offset still stay below 2**63, the limit of Arrow and Spark."""


def check_entry(before: Topic, events: list[Any], after: Topic, number: int) -> None:
    """Raise `ValueError` if the entry `number`, with these events, cannot lead from one state to the other."""
    if before.started and all(type(each) is BatchSequenced for each in events):
        return
    if before.deleted and not all(isinstance(each, JournalMoved) for each in events):
        raise ValueError("the topic is deleted")
    if before.started and (before.name, before.topic_id) != (after.name, after.topic_id):
        raise ValueError(f"the topic becomes {after.name!r} ({after.topic_id})")
    for what in _NUMBERS:
        if getattr(after, what) < getattr(before, what) and not after.deleted:
            raise ValueError(f"{what} goes back from {getattr(before, what)} to {getattr(after, what)}")
    _check_topic(after, number)
    _check_producers(before, after)
    if after.config is not before.config:
        after.config.check()
    if before.started and after.schemas is not before.schemas:
        columns.check_evolution(before.schemas, after.schemas)
    if len(after.partitions) < len(before.partitions):
        raise ValueError("it removes partitions")
    known = len(before.partitions)
    for index in after.partitions.changed_since(before.partitions):
        _check_partition(index, after, before.partitions[index] if index < known else None, after.partitions[index])


def check_snapshot(state: Topic, number: int) -> None:
    """Raise `ValueError` if a state as of the entry `number` is impossible."""
    _check_topic(state, number)
    _check_producers(None, state)
    state.config.check()
    for index, each in enumerate(state.partitions):
        _check_partition(index, state, None, each)


def _check_topic(topic: Topic, number: int) -> None:
    if not topic.started:
        raise ValueError("the topic has not been started")
    if not topic.schemas:
        raise ValueError("the topic has no schema")
    if not topic.partitions:
        raise ValueError("the topic has no partition")
    check_ordinals(topic, _NUMBERS)
    if topic.orphan_floor > number:
        raise ValueError(f"the orphan floor {topic.orphan_floor} is after the journal's newest entry, {number}")
    if topic.floor_mark is not None and topic.floor_mark.number > number:
        raise ValueError(f"it marks entry {topic.floor_mark.number}, after the journal's newest, {number}")


def _check_producers(before: Topic | None, topic: Topic) -> None:
    if before is not None and before.producers is topic.producers:
        return
    for each in topic.producers.values():
        check_ordinals(each, ("rows_lost",))


def _check_partition(index: int, topic: Topic, old: Partition | None, new: Partition) -> None:
    try:
        if old is None or not _only_pieces_changed(old, new):
            _check_replicas(topic, old, new)
            _check_epochs(new)
        if not topic.deleted:
            _check_rows(topic, old, new)
        elif new.segments or new.chunks or new.staged:
            raise ValueError("it has rows, but the topic is deleted")
    except ValueError as error:
        raise ValueError(f"partition {index}: {error}") from error


def _only_pieces_changed(old: Partition, new: Partition) -> bool:
    """Return whether only chunks and segments have changed, as after most entries."""
    return (
        new.log_end_offsets is old.log_end_offsets
        and new.replicas is old.replicas
        and new.isr is old.isr
        and new.epoch_starts is old.epoch_starts
        and (new.leader, new.leader_epoch, new.log_start, new.log_end, new.adding, new.removing)
        == (old.leader, old.leader_epoch, old.log_start, old.log_end, old.adding, old.removing)
    )


def _check_replicas(topic: Topic, old: Partition | None, new: Partition) -> None:
    members = set(new.replicas)
    if not members or len(members) != len(new.replicas) or not members <= topic.incarnations.keys():
        raise ValueError(f"the replicas are {', '.join(new.replicas) or 'none'}")
    if new.log_end_offsets.keys() != members:
        raise ValueError("the log end offsets are not those of the replicas")
    if len(set(new.isr)) != len(new.isr) or not members.issuperset(new.isr):
        raise ValueError(f"the ISR is {', '.join(new.isr)}, of replicas {', '.join(new.replicas)}")
    if new.leader is not None and new.leader not in members:
        raise ValueError(f"the leader {new.leader!r} is not a replica")
    if not (members.issuperset(new.adding) and members.issuperset(new.removing)):
        raise ValueError("a reassignment names nodes that are not replicas")
    for end in new.log_end_offsets.values():
        if not new.log_start <= end <= new.log_end:
            raise ValueError(f"a log end offset is {end}, of a log from {new.log_start} to {new.log_end}")
    if old is not None and new.leader_epoch < old.leader_epoch:
        raise ValueError(f"the leader epoch goes back from {old.leader_epoch} to {new.leader_epoch}")


def _check_epochs(partition: Partition) -> None:
    check_ordinals(partition, ("leader_epoch",))
    epoch, start = -1, 0
    for next_epoch, next_start in partition.epoch_starts:
        if next_epoch <= epoch or next_start < start:
            raise ValueError(f"leader epoch {next_epoch} from {next_start} follows {epoch} from {start}")
        epoch, start = next_epoch, next_start
    if not partition.epoch_starts or epoch > partition.leader_epoch or start > partition.log_end:
        raise ValueError(f"leader epoch {epoch} begins at {start}: the log ends at {partition.log_end}")


def _check_rows(topic: Topic, old: Partition | None, new: Partition) -> None:
    if not new.log_start <= new.high_watermark <= new.log_end <= OFFSET_MAX:
        raise ValueError(f"log start {new.log_start}, high watermark {new.high_watermark}, log end {new.log_end}")
    check_ordinals(new, ("compactions",))
    if old is not None and new.log_start < old.log_start:
        raise ValueError(f"the log start goes back from {old.log_start} to {new.log_start}")
    if old is None or new.segments is not old.segments:
        changed = _changed(() if old is None else old.segments, new.segments)
        _check_joined(changed)
        _check_segments(changed)
        _check_keyed_come_first(changed)
    if old is None or new.staged is not old.staged:
        _check_segments(new.staged)
    if old is None:
        _check_joined(new.chunks)
        if not all(topic.first_file <= each.file < topic.next_file for each in new.chunks):
            raise ValueError("a chunk names a file that the topic does not have")
    elif new.chunks and not topic.first_file <= new.chunks[0].file <= new.chunks[-1].file < topic.next_file:
        raise ValueError("a chunk names a file that the topic does not have")
    if new.segments and new.chunks and new.segments[-1].end_offset != new.chunks[0].base_offset:
        raise ValueError(f"segments end at {new.segments[-1].end_offset}, chunks begin at {new.chunks[0].base_offset}")
    newest = new.chunks or new.segments
    end = newest[-1].end_offset if newest else new.log_start
    if end != new.log_end:
        raise ValueError(f"the last row comes before {end}, but the log ends at {new.log_end}")
    first = (new.segments or new.chunks)[0] if newest else None
    if first is not None and not first.base_offset <= new.log_start < first.end_offset:
        raise ValueError(f"the log starts at {new.log_start}, but the first row is {first.base_offset}")


def _changed(old: tuple[SegmentRef, ...], new: tuple[SegmentRef, ...]) -> tuple[SegmentRef, ...]:
    """Return the segments that are new, with a neighbour on each side, at a cost that does not grow with the log."""
    both = min(len(old), len(new))
    first = _longest(both, lambda count: old[:count] == new[:count])
    last = _longest(both - first, lambda count: old[len(old) - count :] == new[len(new) - count :])
    return new[max(0, first - 1) : len(new) - last + 1]


def _longest(count_max: int, are_equal: Callable[[int], bool]) -> int:
    """Return the largest count for which `are_equal`, given that it holds for all smaller counts."""
    low, high = 0, count_max
    while low < high:
        middle = (low + high + 1) // 2
        if are_equal(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _check_joined(pieces: Iterable[ChunkRef | SegmentRef]) -> None:
    end = None
    for each in pieces:
        if end is not None and each.base_offset != end:
            raise ValueError(f"offset {each.base_offset} follows {end}")
        end = each.end_offset


def _check_segments(segments: Iterable[SegmentRef]) -> None:
    for each in segments:
        if each.base_offset >= each.end_offset:
            raise ValueError(f"segment {each.name} goes from {each.base_offset} to {each.end_offset}")
        check_ordinals(each, ("level",))
        keyed = each.keyed
        if keyed is None:
            continue
        if not 1 <= keyed.rows <= each.span or max(keyed.tombstones, keyed.superseded) > keyed.rows:
            raise ValueError(
                f"segment {each.name} of {each.span} offsets has {keyed.rows} rows, {keyed.superseded} of "
                f"them superseded and {keyed.tombstones} that delete their key"
            )
        if not each.is_parquet:
            raise ValueError(f"segment {each.name} is keyed, and not Parquet")


def _check_keyed_come_first(segments: Iterable[SegmentRef]) -> None:
    for before, after in itertools.pairwise(segments):
        if before.keyed is None and after.keyed is not None:
            raise ValueError(f"keyed segment {after.name} follows {before.name}, which has every row")
