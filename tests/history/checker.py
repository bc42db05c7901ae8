"""Is a history one that a log may have? This knows nothing of the product: only what its clients saw.

| rule | what is held |
| --- | --- |
| lost | a row that was acknowledged with acks=all is at its offset, in every read after it that comes so far |
| changed | all reads and acknowledgements agree about the row at an offset |
| order | a row whose send began after another row was acknowledged, or read, has a larger offset in its partition |
| twice | each row is at one offset, however often it was tried, and whether it was acknowledged or not |
| unsent | no row is read that nobody had begun to send |
| refused | no row is read whose send was refused, each time that it was tried |
| gap | a client that polls, or reads all, gets every offset |
| backwards | it gets no offset again |
| commit | a committed offset does not go back, and is one that somebody commits |

Rows may be missing where the history says why: they were deleted, are old enough to expire, or have a newer row of
their key in a compacted topic. It says nothing of rewinds of a group, which a history must not have.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from tests.history.events import Assign, Commit, Committed, Compact, Delete, Event, Poll, Read, Retain, Send

NEVER = math.inf


class Violation(NamedTuple):
    """What a log must not do, and where it did."""

    rule: str
    text: str


def check(history: Iterable[Event]) -> list[Violation]:
    """Return everything in a history that a log must not do; nothing if it may be the history of one."""
    events = sorted(_outcomes(history), key=lambda event: event.ended)
    topics = {event.topic: _Topic(event.topic) for event in events}
    for event in events:
        topics[event.topic].learn(event)
    for event in events:
        if isinstance(event, (Poll, Read)):
            topics[event.topic].place(event)
    found: list[Violation] = []
    for topic in topics.values():
        topic.order()
    for event in events:
        topics[event.topic].look(event)
    for topic in topics.values():
        found += topic.violations
    return [*found, *_commits(events)]


def _outcomes(history: Iterable[Event]) -> Iterator[Event]:
    """Return of each call the line that counts: the one of its outcome, if there is one."""
    calls: dict[tuple[object, ...], Event] = {}
    for event in history:
        match event:
            case Send():  # each row has an outcome of its own
                for row in event.rows:
                    _settle(calls, (event.who, event.began, row.value), msgspec.structs.replace(event, rows=[row]))
            case Commit():
                _settle(calls, (event.who, event.began, event.topic, *event.offsets), event)
            case _:
                yield event
    yield from calls.values()


def _settle(calls: dict[tuple[object, ...], Event], call: tuple[object, ...], event: Send | Commit) -> None:
    if call not in calls or event.result != "unknown":
        calls[call] = event


class _Sent(msgspec.Struct):
    """What is known of a row from whoever sent it."""

    began: float
    refused: bool = True
    acknowledged: float = NEVER
    """When its place was settled by an acknowledgement with acks=all."""
    key: str | None = None


class _Place(msgspec.Struct):
    """What is at an offset."""

    value: str
    seen: float
    """When a client knew it first."""
    by: str


class _Topic:
    """What a history says of a topic."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.violations: list[Violation] = []
        self._sent: dict[str, _Sent] = {}
        self._places: defaultdict[int, dict[int, _Place]] = defaultdict(dict)
        self._where: dict[str, tuple[int, int]] = {}
        self._due: dict[tuple[str, int], int | None] = {}
        """The offset that a client gets next of a partition, if that is known."""
        self._deletes: list[Delete] = []
        self._retain_ms = NEVER
        self._is_compacted = False
        self._superseded: dict[tuple[int, int], float] = {}
        """By partition and offset, when somebody began to send a later row of the key."""
        self._acknowledged: dict[int, tuple[list[float], list[int]]] = {}
        """By partition the times of acknowledgements, in order, and up to which offset rows are acknowledged then."""
        self._nowhere: list[str] = []
        """Rows that were acknowledged, and nobody ever saw where."""

    def learn(self, event: Event) -> None:
        """Take note of what was sent, and of which rows may go."""
        match event:
            case Send():
                for row in event.rows:
                    sent = self._sent.setdefault(row.value, _Sent(event.began))
                    sent.began = min(sent.began, event.began)
                    sent.refused &= event.result == "refused"
                    sent.key = row.key
                    if event.result == "ok" and event.acks == "all":
                        sent.acknowledged = min(sent.acknowledged, event.ended)
                        if row.offset is not None:
                            self._put(row.partition, row.offset, row.value, event)
            case Delete():
                self._deletes.append(event)
            case Retain():
                self._retain_ms = event.ms
            case Compact():
                self._is_compacted = True

    def place(self, event: Poll | Read) -> None:
        """Hold the rows of a read against what was sent, and against what others saw."""
        for row in event.rows:
            sent = self._sent.get(row.value)
            if sent is None or sent.began > event.ended:
                when = "that nobody sent" if sent is None else "before it was sent"
                self._report("unsent", event, row.partition, row.offset, f"{row.value} is read {when}")
            elif sent.refused:
                self._report("refused", event, row.partition, row.offset, f"{row.value} is read, and was refused")
            assert row.offset is not None
            self._put(row.partition, row.offset, row.value, event)

    def _put(self, p: int, offset: int, value: str, event: Send | Poll | Read) -> None:
        there = self._places[p].setdefault(offset, _Place(value, event.ended, event.who))
        there.seen = min(there.seen, event.ended)
        if there.value != value:
            self._report("changed", event, p, offset, f"{value} is where {there.by} saw {there.value}")
        elif (where := self._where.setdefault(value, (p, offset))) != (p, offset):
            self._report("twice", event, p, offset, f"{value} is at partition {where[0]}, offset {where[1]} too")

    def order(self) -> None:
        """Hold the offsets against the order of the sends, and find out which rows are due to a read, and when."""
        if not (self._deletes or self._is_compacted or self._retain_ms < NEVER):
            self._nowhere = [
                value for value, sent in self._sent.items() if sent.acknowledged < NEVER and value not in self._where
            ]
        for p, places in self._places.items():
            by_seen = sorted((place.seen, offset) for offset, place in places.items())
            most = list(itertools.accumulate((offset for _, offset in by_seen), max))
            times = [seen for seen, _ in by_seen]
            for offset, place in places.items():
                if (sent := self._sent.get(place.value)) is None:
                    continue
                before = bisect.bisect_left(times, sent.began)
                if before and most[before - 1] > offset:
                    text = f"{place.value} was sent when offset {most[before - 1]} was known"
                    self.violations.append(Violation("order", f"{self.name}, partition {p}, offset {offset}: {text}"))
            self._acknowledged[p] = self._acknowledged_of(places)
            newest: dict[str | None, float] = {}
            for offset in sorted(places, reverse=True) if self._is_compacted else ():
                if sent := self._sent.get(places[offset].value):
                    self._superseded[p, offset] = newest.get(sent.key, NEVER)
                    newest[sent.key] = min(sent.began, newest.get(sent.key, NEVER))

    def _acknowledged_of(self, places: dict[int, _Place]) -> tuple[list[float], list[int]]:
        ends = sorted(
            (self._sent[place.value].acknowledged, offset + 1)
            for offset, place in places.items()
            if place.value in self._sent and self._sent[place.value].acknowledged < NEVER
        )
        return [at for at, _ in ends], list(itertools.accumulate((end for _, end in ends), max))

    def look(self, event: Event) -> None:
        """Hold what a client got against what was due to it."""
        match event:
            case Assign():
                self._due.update({(event.who, p): offset for p, offset in event.offsets.items()})
            case Poll():
                for row in event.rows:
                    due = self._due.get((event.who, row.partition))
                    self._due[event.who, row.partition] = self._next(event, row.partition, due, row.offset)
            case Read():
                self._look_at_all(event)

    def _look_at_all(self, event: Read) -> None:
        due: dict[int, int] = {}
        for row in sorted(event.rows):
            begin = due.get(row.partition, event.start.get(row.partition, 0))
            due[row.partition] = self._next(event, row.partition, begin, row.offset)
        for p, (times, ends) in self._acknowledged.items():
            before = bisect.bisect_left(times, event.began)
            begin = due.get(p, event.start.get(p, 0))
            if before and begin < ends[before - 1]:
                self._next(event, p, begin, ends[before - 1])
        for value in () if event.start else self._nowhere:
            if self._sent[value].acknowledged < event.began:
                self._report("lost", event, None, None, f"{value} was acknowledged, and is nowhere")

    def _next(self, event: Poll | Read, p: int, due: int | None, offset: int | None) -> int:
        """Hold that nothing between two offsets is left out, and nothing comes again; return the offset after them."""
        assert offset is not None
        if due is None:
            return offset + 1
        if offset < due:
            self._report("backwards", event, p, offset, f"it comes where {due} is due")
        for missing in range(due, offset):
            if not self._may_miss(event, p, missing):
                place = self._places[p].get(missing)
                sent = None if place is None else self._sent.get(place.value)
                is_lost = sent is not None and sent.acknowledged < event.ended
                name = "a row" if place is None else place.value
                self._report("lost" if is_lost else "gap", event, p, missing, f"{name} is left out")
        return max(due, offset + 1)

    def _may_miss(self, event: Poll | Read, p: int, offset: int) -> bool:
        if any(each.began <= event.ended and offset < each.offsets.get(p, 0) for each in self._deletes):
            return True
        place = self._places[p].get(offset)
        if place is None or place.value not in self._sent:  # nobody ever saw it
            return self._is_compacted or self._retain_ms < NEVER
        is_old = self._sent[place.value].began + self._retain_ms < event.ended
        return is_old or self._superseded.get((p, offset), NEVER) <= event.ended

    def _report(self, rule: str, event: Event, p: int | None, offset: int | None, text: str) -> None:
        where = f"{self.name}, partition {p}, offset {offset}"
        self.violations.append(
            Violation(rule, f"{where}: {text} ({event.who}, {event.began:.1f} to {event.ended:.1f})")
        )


def _commits(events: Iterable[Event]) -> Iterator[Violation]:
    """Hold the committed offsets of the groups."""
    known: defaultdict[tuple[str, str, int], list[tuple[float, float, int, bool, str]]] = defaultdict(list)
    tried: defaultdict[tuple[str, str, int], dict[int, float]] = defaultdict(dict)
    for event in events:
        if isinstance(event, (Commit, Committed)):
            for p, offset in event.offsets.items():
                key, is_read = (event.group, event.topic, p), isinstance(event, Committed)
                if isinstance(event, Commit) and event.result != "refused" and offset is not None:
                    tried[key][offset] = min(event.began, tried[key].get(offset, NEVER))
                if isinstance(event, Committed) or event.result == "ok":
                    known[key].append((event.began, event.ended, -1 if offset is None else offset, is_read, event.who))
    for (group, topic, p), calls in known.items():
        where = f"group {group}, {topic}, partition {p}"
        by_end = sorted((ended, offset) for _, ended, offset, _, _ in calls)
        times = [ended for ended, _ in by_end]
        most = list(itertools.accumulate((offset for _, offset in by_end), max))
        for began, ended, offset, is_read, who in calls:
            before = bisect.bisect_left(times, began)
            if before and most[before - 1] > offset:
                yield Violation("commit", f"{where}: {offset} after {most[before - 1]} ({who}, {began:.1f})")
            if is_read and offset >= 0 and tried[group, topic, p].get(offset, NEVER) > ended:
                yield Violation("commit", f"{where}: nobody commits {offset} ({who}, {began:.1f})")
