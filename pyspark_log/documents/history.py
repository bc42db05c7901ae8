"""The history of a cluster as numbers over time, from what its journals did: rates, lag, ISR, and times of batches.

A span of time has at most `POINTS` steps. A step of which the journals are not known, because their entries were
trimmed or not read, has None: a gap, and no guess.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pyspark_log_coordinator.audit.timeline import Lane, Moment, Scope

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyspark_log.documents.figures import Figures

POINTS = 240
_S = 1000
STEPS_MS = tuple(
    _S * each
    for each in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400, 604_800)
)
REBALANCE_MS = 60 * _S
"""What a group does within this time until its work is assigned is one rebalance."""
TOLD_MAX = 8
"""How many moments one sentence describes at most."""
Key = tuple[Scope, str]
Values = list["float | None"]


class Journal(msgspec.Struct):
    """What is known of the past of a journal: its moments from entry `begin` on."""

    moments: list[Moment]
    version: int
    begin: int
    """The first entry that is known."""
    begin_ms: int
    """When it was written."""
    problem: str = ""
    is_whole: bool = True
    """Whether no older entries are left to read."""


class Span(NamedTuple):
    """A part of the time (ms), in whole steps. Nothing is known of steps that are not over at `now`."""

    since: int
    until: int
    step: int
    now: int

    @property
    def times(self) -> list[int]:
        """The ends of the steps."""
        return list(range(self.since + self.step, self.until + 1, self.step))

    def place(self, time_ms: int) -> int | None:
        """Return the number of the step of a time, None if it is outside."""
        return (time_ms - self.since - 1) // self.step if self.since < time_ms <= self.until else None


def span(since: int, until: int, now: int | None = None) -> Span:
    """Return the span between two times, of which the second is now unless `now` is given, in steps that people know.

    >>> span(1, 3_600_000)
    Span(since=0, until=3600000, step=15000, now=3600000)
    """
    length = max(1, until - since)
    step = next((each for each in STEPS_MS if length <= each * POINTS), -(-length // POINTS))
    begin = since // step * step
    return Span(begin, max(-(-until // step) * step, begin + step), step, until if now is None else now)


def known_since(journals: Iterable[Journal | None]) -> float:
    """Return since when all of these journals are known (ms)."""
    since = -float("inf")
    for each in journals:
        if each is None or (each.problem and not each.moments):
            return float("inf")
        since = max(since, each.begin_ms if each.begin > 1 else since)
    return since


def rates(journals: Mapping[Key, Journal], keys: Collection[Key], within: Span, *fields: str) -> list[Values]:
    """Return the `rows` or `bytes` a second of batches, or of commits the rows (`committed`), of some journals."""
    sums = [[0.0] * len(within.times) for _ in fields]
    for key in keys:
        for each in journals[key].moments if key in journals else ():
            place = within.place(each.time_ms)
            if place is not None:
                for total, field in zip(sums, fields, strict=True):
                    total[place] += getattr(each, field)
    known = known_since(journals.get(key) for key in keys)
    is_known = [known <= end - within.step and end <= within.now for end in within.times]
    return [
        [_S * each / within.step if is_it else None for each, is_it in zip(total, is_known, strict=True)]
        for total in sums
    ]


def levels(now: float, changes: Iterable[tuple[int, float]], known: float, within: Span) -> Values:
    """Return a number at the end of each step, from what it is now and by how much it has changed when (ms)."""
    waiting = sorted(changes)
    found: Values = []
    for at in reversed(within.times):
        while waiting and waiting[-1][0] > at:
            now -= waiting.pop()[1]
        found.append(max(0.0, now) if known <= at and at - within.step < within.now else None)
    return found[::-1]


def lag(journals: Mapping[Key, Journal], group: str, topics: Collection[str], now: int, within: Span) -> Values:
    """Return the lag of a group, from its lag `now` backward: batches made it larger, commits smaller."""
    keys = [(Scope.GROUP, group), *((Scope.TOPIC, each) for each in topics)]
    known = [journals[key] for key in keys if key in journals]
    changes = [(each.time_ms, each.rows - each.committed) for found in known for each in found.moments]
    return levels(now, changes, known_since(journals.get(key) for key in keys), within)


def out_of_sync(journals: Mapping[Key, Journal], topics: Mapping[str, Figures], within: Span) -> Values:
    """Return how many replicas of all topics are not in an ISR."""
    now = sum(has.replicas - has.in_sync for each in topics.values() for has in each.nodes.values())
    keys = [(Scope.TOPIC, each) for each in topics]
    changes = [
        (each.time_ms, -each.in_sync)
        for key in keys
        if key in journals
        for each in journals[key].moments
        if each.in_sync
    ]
    return levels(now, changes, known_since(journals.get(key) for key in keys), within)


def trend(values: Sequence[float | None], within: Span, steps: int = 20) -> float | None:
    """Return by how much a number changes a second, over its newest steps; None if they are not known."""
    newest = [(at, each) for at, each in zip(within.times, values, strict=True) if each is not None][-steps:]
    if len(newest) < 2 or newest[-1][0] <= newest[0][0]:  # noqa: PLR2004 -- a change has two ends
        return None
    return (newest[-1][1] - newest[0][1]) * _S / (newest[-1][0] - newest[0][0])


class Batches(NamedTuple):
    """The batches of a query or application in a topic that are known."""

    name: str
    topic: str
    newest: Moment
    rows: int
    seconds: list[tuple[int, float]]
    """When each batch was committed (ms), and how long that was after the one before."""

    @property
    def typical(self) -> float | None:
        """The median of the newest seconds between two batches."""
        newest = sorted(seconds for _, seconds in self.seconds[-20:])
        return newest[len(newest) // 2] if newest else None


def batches(journals: Mapping[Key, Journal]) -> list[Batches]:
    """Return who has written batches, the newest first."""
    found: dict[tuple[str, str], list[Moment]] = defaultdict(list)
    for journal in journals.values():
        for each in journal.moments:
            if each.producer:
                found[each.producer, each.name].append(each)
    every = [
        Batches(
            name,
            topic,
            moments[-1],
            sum(each.rows for each in moments),
            [(b.time_ms, (b.time_ms - a.time_ms) / _S) for a, b in itertools.pairwise(moments)],
        )
        for (name, topic), moments in found.items()
    ]
    return sorted(every, key=lambda each: -each.newest.time_ms)


def intervals(found: Batches, within: Span) -> Values:
    """Return the longest time between two batches (seconds) in each step."""
    values: Values = [None] * len(within.times)
    for time_ms, seconds in found.seconds:
        place = within.place(time_ms)
        if place is not None:
            values[place] = max(values[place] or 0.0, seconds)
    return values


def listed(moments: Iterable[Moment], most: int, lanes: Collection[Lane]) -> tuple[list[Moment], int]:
    """Return the newest moments of some lanes, newest first, and how many there are.

    A rebalance is one of them, and so are the rolls of one entry.
    """
    found: list[list[Moment]] = []
    open_: dict[tuple[object, ...], list[Moment]] = {}
    for each in sorted((each for each in moments if each.lane in lanes), key=lambda each: each.time_ms):
        is_rebalance = each.lane is Lane.REBALANCES
        key = (each.name,) if is_rebalance else (each.name, each.entry)
        together = open_.get(key, []) if is_rebalance or each.lane is Lane.SEGMENTS else []
        if not together or each.time_ms - together[0].time_ms > REBALANCE_MS:
            together = open_[key] = []
            found.append(together)
        together.append(each)
        if each.words.startswith("the work of generation"):
            open_.pop(key, None)
    return [_as_one(each) for each in found[: -most - 1 : -1]], len(found)


def _as_one(moments: list[Moment]) -> Moment:
    """Return several moments as the last of them, with the words of the first few."""
    words = "; ".join(each.words for each in moments[:TOLD_MAX])
    more = f"; and {len(moments) - TOLD_MAX} more" if len(moments) > TOLD_MAX else ""
    return msgspec.structs.replace(moments[-1], words=words + more, is_bad=any(each.is_bad for each in moments))
