"""The longest prefix: which of the segments and chunks that were found make up as much of a partition as can be had.

    segments   [0, 10) [10, 20) [20, 30)          of any node
    merged     [0, 20)                            overlaps what it was made of
    chunks     [20, 23) [23, 30) [30, 34)         of the newest description

    chosen     [0, 20) [20, 30) then the chunk [30, 34)

Pieces follow one another without a gap, segments first, as they do in a log. Of the ways to the furthest offset the
one with the most rows in segments is taken, then the one with the fewest segments. Where the log start is in no piece,
it is the first offset that is.
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
    """What was chosen. Without pieces `log_start` and `log_end` are equal."""

    log_start: int
    log_end: int
    segments: tuple[S, ...]
    chunks: tuple[C, ...]


def longest(segments: Sequence[S], chunks: Sequence[C], log_start: int) -> Prefix[S, C]:
    """Return the longest prefix from `log_start` on, or from the first offset behind it that any piece has."""
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
    """The last segment of the way to an offset, and how many there are on it."""

    segment: S
    count: int


class _Run(msgspec.Struct, Generic[C], frozen=True):
    """The first of the chunks that follow one another from an offset on, and where the last of them ends."""

    chunk: C
    end: int


def _steps(segments: Sequence[S], start: int) -> dict[int, _Step[S]]:
    """Return the offsets that segments lead to from `start` on, each with the last one of the way of the fewest."""
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
    """Return the segments of the way to `end`."""
    path = []
    while end in steps:
        path.append(steps[end].segment)
        end = path[-1].base_offset
        if end <= start:
            break
    return tuple(reversed(path))


def _runs(chunks: Sequence[C], start: int) -> dict[int, _Run[C]]:
    """Return the offsets at which chunks begin, and `start` where one holds it, each with what follows from there."""
    runs: dict[int, _Run[C]] = {}
    for each in sorted(chunks, key=lambda each: each.base_offset, reverse=True):
        end = runs[each.end_offset].end if each.end_offset in runs else each.end_offset
        runs[each.base_offset] = _Run(each, end)
        if each.base_offset <= start < each.end_offset:
            runs[start] = runs[each.base_offset]
    return runs


def _run(runs: Mapping[int, _Run[C]], start: int) -> tuple[C, ...]:
    """Return the chunks that follow one another from `start` on."""
    found = []
    while start in runs:
        found.append(runs[start].chunk)
        start = found[-1].end_offset
    return tuple(found)
