"""The longest prefix: the segments and chunks that cover the most of a partition without a gap.

    segments   [0, 10) [10, 20) [20, 30)          of any node
    merged     [0, 20)                            overlaps the segments it was made of
    chunks     [20, 23) [23, 30) [30, 34)         of the newest description

    chosen     [0, 20) [20, 30) then the chunk [30, 34)

As in every log, segments come first. Of the paths to the furthest offset, the one with the most rows in segments is
chosen, then the one with the fewest segments. If no piece has the log start, the prefix begins at the first offset that
a piece has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Span(Protocol):
    """Rows `[base_offset, end_offset)`."""

    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


S = TypeVar("S", bound=Span)
C = TypeVar("C", bound=Span)


class Prefix(msgspec.Struct, Generic[S, C], frozen=True):
    """The chosen pieces. Without any, `log_start` and `log_end` are equal."""

    log_start: int
    log_end: int
    segments: tuple[S, ...]
    chunks: tuple[C, ...]


def longest(segments: Sequence[S], chunks: Sequence[C], log_start: int) -> Prefix[S, C]:
    """Return the longest prefix from `log_start`, or from the first offset after it that a piece has."""
    begins = [max(each.base_offset, log_start) for each in (*segments, *chunks) if each.end_offset > log_start]
    if not begins:
        return Prefix(log_start, log_start, (), ())
    start = min(begins)
    steps = _steps(segments, start)
    runs = _runs(chunks, start)
    # A log may also begin with chunks.
    ends = {offset: runs[offset].end if offset in runs else offset for offset in (*steps, start)}
    furthest = max(ends.values())
    rolled_end = max(offset for offset, end in ends.items() if end == furthest)
    return Prefix(start, furthest, _path(steps, start, rolled_end), _run(runs, rolled_end))


class _Step(msgspec.Struct, Generic[S], frozen=True):
    """The last segment of the path to an offset, and the path's number of segments."""

    segment: S
    count: int


class _Run(msgspec.Struct, Generic[C], frozen=True):
    """The first of consecutive chunks from an offset, and where the last one ends."""

    chunk: C
    end: int


def _steps(segments: Sequence[S], start: int) -> dict[int, _Step[S]]:
    """Return the offsets that segments reach from `start`, each with the last step of its shortest path."""
    steps: dict[int, _Step[S]] = {}
    for each in sorted(segments, key=lambda each: (each.base_offset, each.end_offset)):
        if each.base_offset <= start < each.end_offset:
            step = _Step(each, 1)
        elif each.base_offset in steps:
            step = _Step(each, steps[each.base_offset].count + 1)
        else:
            continue
        known = steps.get(each.end_offset)
        if known is None or step.count < known.count:
            steps[each.end_offset] = step
    return steps


def _path(steps: Mapping[int, _Step[S]], start: int, end: int) -> tuple[S, ...]:
    """Return the segments of the path to `end`."""
    path = []
    while end in steps:
        path.append(steps[end].segment)
        end = path[-1].base_offset
        if end <= start:
            break
    return tuple(reversed(path))


def _runs(chunks: Sequence[C], start: int) -> dict[int, _Run[C]]:
    """Return the run from each offset at which a chunk begins, and from `start` if a chunk holds it."""
    runs: dict[int, _Run[C]] = {}
    for each in sorted(chunks, key=lambda each: each.base_offset, reverse=True):
        end = runs[each.end_offset].end if each.end_offset in runs else each.end_offset
        runs[each.base_offset] = _Run(each, end)
        if each.base_offset <= start < each.end_offset:
            runs[start] = runs[each.base_offset]
    return runs


def _run(runs: Mapping[int, _Run[C]], start: int) -> tuple[C, ...]:
    """Return the consecutive chunks from `start`."""
    found = []
    while start in runs:
        found.append(runs[start].chunk)
        start = found[-1].end_offset
    return tuple(found)
