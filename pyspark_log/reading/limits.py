"""The limits of a micro-batch.

`maxOffsetsPerTrigger` is shared out in proportion to each partition's backlog, so a large one does not starve a small
one. `maxBytesPerTrigger` is first turned into a number of rows. `maxOffsetsPerTriggerPerPartition` cuts the backlog of
each partition before that. `minOffsetsPerTrigger` makes a batch wait until the backlog is that large, or
`maxTriggerDelay` has passed. Source: Spark's KafkaMicroBatchStream (`rateLimit`, `delayBatch`).

A batch of few rows is one task, whose rows the driver reads (`maxRecordsOnDriver`).
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyspark_log_storage.files.chunk import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark_log_coordinator.model.partition import Partition

K = TypeVar("K")


class Piece(NamedTuple):
    """Some rows that are stored together, and their size."""

    rows: int
    stored_bytes: float


def pieces_between(partition: Partition, start: int, end: int) -> Iterator[Piece]:
    """Yield the pieces of the rows `[start, end)`, in order and lazily.

    Only the size of a chunk or a segment is known without reading it, so its rows count as equally large.
    """
    for piece in partition.pieces_from(start):
        if max(piece.base_offset, start) >= end:  # an empty range may be inside a piece
            return
        rows = min(piece.end_offset, end) - max(piece.base_offset, start)
        yield Piece(rows, piece.length * rows / (piece.end_offset - piece.base_offset))


def rows_within(bytes_max: int, pieces: Sequence[Iterable[Piece]], backlogs: Sequence[int]) -> int:
    """Return about how many rows have `bytes_max` bytes, if each partition gives the same fraction of its backlog.

    `pieces` and `backlogs`, in rows, are those of the partitions. Looks at the pieces that fit and one more of each
    partition, however long the backlogs are.
    """
    steps = [_steps(each, backlog) for each, backlog in zip(pieces, backlogs, strict=True)]
    reached, rate, left = 0.0, 0.0, float(bytes_max)
    current = [(0.0, number, 0.0) for number in range(len(steps))]
    while current:
        end, number, its_rate = current[0]
        if (end - reached) * rate > left:
            return math.floor((reached + left / rate) * sum(backlogs))
        left -= (end - reached) * rate
        reached = end
        rate -= its_rate
        following = next(steps[number], None)
        if following is None:
            heapq.heappop(current)
        else:
            end, its_rate = following
            heapq.heapreplace(current, (end, number, its_rate))
            rate += its_rate
    return sum(backlogs)


def _steps(pieces: Iterable[Piece], backlog: int) -> Iterator[tuple[float, float]]:
    """Yield for each piece the fraction of the backlog at which it ends, and its bytes per unit of the fraction."""
    reached = 0
    for piece in pieces:
        reached += piece.rows
        yield reached / backlog, piece.stored_bytes / piece.rows * backlog


def bytes_read(partition: Partition, start: int, end: int) -> int:
    """Return about how much is read for the rows `[start, end)`: whole chunks, of a segment about one."""
    return sum(min(piece.length, CHUNK_BYTES) for piece in partition.pieces_between(start, end))


def share_out(limit: int, begin: Mapping[K, int], until: Mapping[K, int]) -> dict[K, int]:
    """Return where each partition ends if about `limit` rows are taken of `[begin, until)`.

    Each partition with a backlog gets at least one row, so the sum may exceed a very small limit.
    """
    backlog = {key: until[key] - begin[key] for key in until if until[key] > begin[key]}
    total = sum(backlog.values())
    if total <= limit:
        return dict(until)
    ends = {}
    for key, end in until.items():
        share = limit * backlog.get(key, 0) / total
        whole = math.ceil(share) if share < 1 else math.floor(share)
        ends[key] = min(end, begin[key] + whole)
    return ends


def waits(backlog: int, minimum: int, now: float, last_batch: float | None, delay_ms: int) -> bool:
    """Return whether a batch of `backlog` rows should wait for more. Times in seconds of one monotonic clock.

    The first batch of a run (`last_batch` None) does not wait.
    """
    if backlog >= minimum or last_batch is None:
        return False
    return now - last_batch < delay_ms / 1000
