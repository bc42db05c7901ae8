"""Tiers: which neighbouring segments to merge, so that a row is rewritten a few times, however long the log is.

The tier of a segment is how often it was rewritten (`roll_plan`); in the head of a compacted partition, which each
cleaning rewrites, it is the power of 16 in its number of rows. Rows count, and not bytes: the bytes of a tiny file are
mostly its footer, so 16 of them would not be of a higher tier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pyspark_log_coordinator.model.partition import ChunkRef, SegmentRef
from pyspark_log_storage.files.index import SEGMENT_ROWS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

P = TypeVar("P", SegmentRef, ChunkRef, SegmentRef | ChunkRef)
MERGE_COUNT = 16
TIER_MAX = 64
"""Above all tiers."""


def tier_of(rows: int) -> int:
    """Return the tier of a segment of a head with so many rows."""
    return (max(1, rows).bit_length() - 1) // (MERGE_COUNT.bit_length() - 1)


def joined(tiers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the neighbours that are to be merged, by their tiers.

    They are several that one of a higher tier follows, or those up to the 16th of a tier, with lower ones between them.
    """
    for tier in sorted({each for each in tiers if each < TIER_MAX}):
        start = count = 0
        for number, each in enumerate(tiers):
            if each > tier:
                if number - start > 1:
                    yield start, number
                start, count = number + 1, 0
            elif each == tier:
                count += 1
                if count == MERGE_COUNT:
                    yield start, number + 1
                    start, count = number + 1, 0


def fitting(pieces: Iterable[P], bytes_max: int, rows_max: int = SEGMENT_ROWS_MAX) -> tuple[P, ...]:
    """Return the first of the pieces, of at most so many bytes and rows, that fit into one segment; one at least."""
    taken: list[P] = []
    size = rows = 0
    for each in pieces:
        size, rows = size + each.length, rows + each.rows
        is_long = bool(taken) and each.end_offset - taken[0].base_offset > SEGMENT_ROWS_MAX
        if taken and (size > bytes_max or rows > rows_max or is_long):
            break
        taken.append(each)
    return tuple(taken)
