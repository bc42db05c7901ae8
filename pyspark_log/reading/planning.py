"""The planning of splits from ranges of partitions, without reading a row.

Splits follow chunks. `minPartitions` divides the larger ranges in proportion to their rows, and
`maxRecordsPerPartition` cuts what is still longer. Source: Spark's KafkaOffsetRangeCalculator.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from typing import TYPE_CHECKING

import msgspec

from pyspark_log.reading.failover import ReadReplica
from pyspark_log.reading.fetch import Split
from pyspark_log_coordinator.cluster.nodes import holding
from pyspark_log_storage import logs
from pyspark_log_storage.errors import DataLoss, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark_log.options import SourceOptions
    from pyspark_log_coordinator.cluster.nodes import Node
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import ChunkRef, Holder, SegmentRef
    from pyspark_log_coordinator.model.topic_state import Topic


class Range(msgspec.Struct, frozen=True):
    """Rows `[start, end)` of a partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.start


def divide(ranges: Sequence[Range], min_partitions: int | None, max_records: int | None) -> list[Range]:
    """Return the ranges without empty ones, divided as the options ask."""
    parts = [each for each in ranges if each.rows > 0]
    if max_records is not None:
        parts = [piece for each in parts for piece in _cut(each, math.ceil(each.rows / max_records))]
    if min_partitions is not None and len(parts) < min_partitions:
        total = sum(each.rows for each in parts)
        # Ranges too small to be divided keep one split. The others share the rest in proportion.
        shares = [_share(each.rows, total, min_partitions) for each in parts]
        small = [each for each, share in zip(parts, shares, strict=True) if share == 1]
        large_total = total - sum(each.rows for each in small)
        left = max(1, min_partitions - len(small))
        parts = [
            piece
            for each, share in zip(parts, shares, strict=True)
            for piece in _cut(each, 1 if share == 1 else _share(each.rows, large_total, left))
        ]
    return parts


def _share(rows: int, total: int, pieces: int) -> int:
    """Return the share of `pieces` for `rows` of `total`, rounded half up, at least 1."""
    return max(1, math.floor(rows / total * pieces + 0.5))


def _cut(whole: Range, pieces: int) -> list[Range]:
    pieces = max(1, min(pieces, whole.rows))
    bounds = [whole.start + whole.rows * i // pieces for i in range(pieces + 1)]
    return [msgspec.structs.replace(whole, start=start, end=end) for start, end in itertools.pairwise(bounds)]


def splits(handles: Mapping[str, TopicHandle], ranges: Sequence[Range], options: SourceOptions) -> list[Split]:
    """Return the splits of the ranges, divided as the options ask."""
    parts = divide(ranges, options.min_partitions, options.max_records_per_partition)
    return [split_of(handles[part.topic], part, options.client_rack) for part in parts]


def split_of(handle: TopicHandle, part: Range, rack: str = "") -> Split:
    """Return the split of a range, which must be within the partition's log.

    `rack` is the reader's, empty if it is not known.
    """
    state = handle.state
    partition = state.partitions[part.partition]
    segments = partition.segments_between(part.start, part.end)
    chunks = tuple(partition.chunks_between(part.start, part.end))
    pieces: list[SegmentRef | ChunkRef] = [*segments, *chunks]
    assert pieces
    assert pieces[0].base_offset <= part.start
    assert part.end <= pieces[-1].end_offset
    files = {chunk.file: state.file(chunk.file) for chunk in chunks}
    held = {handle.segment(part.partition, each.name): each.holders for each in segments}
    held |= {handle.append_file(each.name): each.holders for each in files.values()}
    nodes, partial_holders = _holders(state, handle.log.nearest_first(rack=rack, leader=partition.leader), held)
    return Split(
        topic=part.topic,
        topic_id=handle.topic_id,
        partition=part.partition,
        start=part.start,
        end=part.end,
        segments=tuple(handle.segment(part.partition, each.name) for each in segments),
        segment_ends=tuple(each.end_offset for each in segments),
        files={number: handle.append_file(each.name) for number, each in files.items()},
        chunks=chunks,
        schemas=state.schemas,
        nodes=nodes,
        partial_holders=partial_holders,
        rack=rack,
        compactions=partition.compactions if segments and segments[0].keyed is not None else 0,
        leader_epoch=partition.leader_epoch,
    )


def compacted_since(handle: TopicHandle, rows: Range, then: int) -> str:
    """Return which rows were compacted since the partition had been compacted `then` times, as text; "" for none."""
    partition = handle.partitions[rows.partition]
    until = min(rows.end, partition.compacted_end)
    if then == partition.compactions or rows.start >= until:
        return ""
    where = f"topic {rows.topic!r}, partition {rows.partition}"
    return f"{where}: rows of offsets {rows.start} to {until - 1} were compacted"


def read_replicas(topic: Topic, nodes: Sequence[Node], holders: Iterable[Holder]) -> tuple[ReadReplica, ...]:
    """Return the nodes that hold a file, in their order, as a task needs them."""
    return tuple(ReadReplica(each.node_id, each.url) for each in holding(topic, nodes, holders))


def _holders(
    state: Topic, nodes: Sequence[Node], held: Mapping[str, Sequence[Holder]]
) -> tuple[tuple[ReadReplica, ...], dict[str, tuple[int, ...]]]:
    """Return `Split.nodes` and `Split.partial_holders` for files with these holders."""
    if len(nodes) == 1:
        return read_replicas(state, nodes, ()), {}
    found = {key: read_replicas(state, nodes, holders) for key, holders in held.items()}
    used = {each.node for some in found.values() for each in some}
    all_used = [ReadReplica(each.node_id, each.url) for each in nodes if each.node_id in used]
    numbers = {each: number for number, each in enumerate(all_used)}
    partial_holders = {
        key: tuple(numbers[each] for each in some) for key, some in found.items() if len(some) < len(all_used)
    }
    return tuple(all_used), partial_holders


def find_again(log: Log, split: Split, offset: int) -> Split:
    """Return a new split of the rows from `offset`, after maintenance has moved them.

    Raises `DataLoss` if rows expired or were truncated in the meantime, or the topic was created again.
    """
    handle = log.topic(split.topic)
    if handle.topic_id != split.topic_id:
        raise DataLoss(f"topic {split.topic!r} was deleted and created again while it was read; read it again")
    partition = handle.partitions[split.partition]
    now = partition.compactions if offset < partition.compacted_end else split.compactions
    low = partition.log_start
    # Later rows may have taken the places of some.
    high = min(partition.high_watermark, partition.end_of_epoch(split.leader_epoch))
    where = f"topic {split.topic!r}, partition {split.partition}"
    if low > offset:
        raise DataLoss(
            f"{where}: offsets {offset} to {min(low, split.end) - 1} expired or were deleted while they were read; "
            "read faster, or set a longer retention.ms"
        )
    if now != split.compactions and partition.keyed_segments:
        raise DataLoss(
            f"{where}: offsets {offset} to {min(partition.compacted_end, split.end) - 1} were compacted while they "
            "were read; start the read again"
        )
    if high < split.end:
        raise DataLoss(
            f"{where}: offsets {max(high, offset)} to {split.end - 1} were cut by an unclean election while they were "
            "read; start the read again"
        )
    found = split_of(handle, Range(split.topic, split.partition, offset, split.end), split.rack)
    return msgspec.structs.replace(found, columns=split.columns)


def find_rest(log: Log, split: Split, offset: int) -> Split | None:
    """Return a new split of those rows from `offset` that are still there, None if none is: failOnDataLoss=false.

    Raises `DataLoss` if they were compacted in the meantime: they would be of another state than those before them.
    """
    try:
        return find_again(log, split, offset)
    except (DataLoss, UnknownTopic) as lost:
        what = lost.message
    start = end = offset
    with contextlib.suppress(UnknownTopic):  # or its deletion was interrupted
        handle = log.topic(split.topic)
        if handle.topic_id == split.topic_id:
            partition = handle.partitions[split.partition]
            start = max(offset, partition.log_start)
            end = min(split.end, partition.high_watermark, partition.end_of_epoch(split.leader_epoch))
    rest = find_again(log, msgspec.structs.replace(split, end=end), start) if start < end else None
    logs.warning("%(what)s; continuing with the rest (failOnDataLoss=false)", what=what)
    return rest
