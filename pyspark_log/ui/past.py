"""What happened: the moments of all journals, read once and continued, and how a page shows them as lanes over time."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pyspark_log.ui.rows import time_ms_of
from pyspark_log.ui.view import DEBT_MAX, REQUESTS_PER_SECOND
from pyspark_log_coordinator.audit import timeline
from pyspark_log_coordinator.audit.timeline import Lane, Moment, Scope
from pyspark_log_storage.errors import LogError, UnknownGroup, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark_log_coordinator.log.log import Log

ENTRIES_READ = 1_000
"""The newest entries of each journal that are read. In an object store each is a request."""
REQUESTS_OF_CLUSTER = 2
"""To read the cluster's own journal, beside one for each node and each other journal."""
REQUESTS_OF_ENTRY = 2
"""A new entry is read for the state that the journal has now, and for what happened."""
MOMENTS_KEPT = 20_000
"""Of each journal, the newest."""
MOMENTS_LISTED = 300
WIDTH = 1_000
"""Of the lanes, in their own units."""
BUCKETS = 20
"""Parts of the time that is shown; a click on one shows it alone."""
_MARK = 6


class Journal(msgspec.Struct):
    """What is known of the past of one journal."""

    moments: list[Moment]
    version: int
    begin: int
    """The first entry that is known."""
    begin_ms: int
    """When it was written."""
    problem: str = ""


class Entry(NamedTuple):
    """An entry of a journal: when it was written (ms), its events by their fields, and what it did."""

    time_ms: int
    events: list[dict[str, Any]]
    did: list[Moment]


class Past:
    """The past of a cluster. Used by one thread at a time."""

    def __init__(self, log: Log) -> None:
        """Read nothing yet."""
        self._log = log
        self._journals: dict[tuple[Scope, str], Journal] = {}
        self._found: dict[tuple[str, str], dict[tuple[Scope, str], Journal]] = {}
        self._due = -float("inf")
        """When an object store may be asked again for what was found before."""

    def journals(self, topic: str = "", group: str = "") -> dict[tuple[Scope, str], Journal]:
        """Return what happened in the cluster's journal and in those of all topics and groups, or of one.

        In an object store each journal is a request, so what was found stays for as many seconds as it took requests,
        of new entries `DEBT_MAX` at most.
        A journal that cannot be read has a `problem`. Raises `LogError` if the cluster cannot be read.
        """
        now = self._log.environment.monotonic()
        if not self._log.is_remote or now >= self._due:
            self._found.clear()
        if (topic, group) not in self._found:
            before = {key: each.version for key, each in self._journals.items()}
            found = self._found[topic, group] = self._read(topic, group)
            news = ((each.version, max(before.get(key, 0), each.begin - 1)) for key, each in found.items())
            entries = sum(max(0, version - known) for version, known in news)
            requests = (
                REQUESTS_OF_CLUSTER + len(self._log.nodes) + len(found) + min(REQUESTS_OF_ENTRY * entries, DEBT_MAX)
            )
            self._due = max(self._due, now) + requests / REQUESTS_PER_SECOND
        return self._found[topic, group]

    def _read(self, topic: str, group: str) -> dict[tuple[Scope, str], Journal]:
        log = self._log
        log.open(create=False)
        wanted: list[tuple[Scope, str]] = [(Scope.CLUSTER, "")]
        if not group:
            wanted += [(Scope.TOPIC, each) for each in ([topic] if topic else sorted(log.topics(polls=True)))]
        if not topic:
            wanted += [(Scope.GROUP, each) for each in ([group] if group else sorted(log.groups()))]
        found = {}
        for key in wanted:
            try:
                found[key] = self._journal(*key)
            except (UnknownTopic, UnknownGroup) as error:
                if topic or group:
                    raise
                del error  # deleted meanwhile
            except LogError as error:
                known = self._journals.get(key, Journal([], 0, 0, 0))
                found[key] = msgspec.structs.replace(known, problem=error.message)
        self._journals = {key: each for key, each in self._journals.items() if key in found or topic or group}
        return found

    def entry(self, scope: Scope, name: str, number: int) -> Entry | None:
        """Return an entry, None if it was trimmed or does not exist. Raises `LogError`."""
        self._log.open(create=False)
        handle = self._handle(scope, name)
        found = timeline.entry_of(handle, number)
        if found is None:
            return None
        did = itertools.takewhile(lambda each: each.entry == number, timeline.moments(handle, number - 1))
        return Entry(*found, list(did))

    def _handle(self, scope: Scope, name: str) -> timeline.Handle:
        if scope is Scope.CLUSTER:
            return self._log
        return self._log.topic(name, polls=True) if scope is Scope.TOPIC else self._log.group(name, polls=True)

    def _journal(self, scope: Scope, name: str) -> Journal:
        handle = self._handle(scope, name)
        known = self._journals.get((scope, name))
        if known is None or known.version > handle.version:  # created again under the same name
            known = Journal([], max(0, handle.version - ENTRIES_READ), 0, 0)
        if handle.version > known.version:
            new = list(timeline.moments(handle, known.version))
            if not known.begin and new:
                known = msgspec.structs.replace(known, begin=new[0].entry, begin_ms=new[0].time_ms)
            moments = [*known.moments, *new][-MOMENTS_KEPT:]
            known = Journal(moments, handle.version, known.begin, known.begin_ms)
        self._journals[scope, name] = known
        return known


class Mark(NamedTuple):
    """One or several moments that are so close that they are one mark."""

    x: float
    width: float
    total: int
    is_bad: bool
    words: str


class LaneRow(NamedTuple):
    """A lane with its marks."""

    lane: Lane
    y: int
    marks: list[Mark]


class Span(NamedTuple):
    """A part of the time, for an address."""

    since: int
    until: int


class Drawn(NamedTuple):
    """What the page of the timeline shows."""

    span: Span
    lanes: list[LaneRow]
    buckets: list[tuple[float, Span]]
    listed: list[Moment]
    total: int
    earlier: Span
    later: Span
    wider: Span


def span_of(parameters: Mapping[str, str], moments: Sequence[Moment], now_ms: int) -> Span:
    """Return the time that an address asks for: all that is known unless it says otherwise. Raises `InvalidInput`."""
    since, until = parameters.get("from", ""), parameters.get("to", "")
    first = min((each.time_ms for each in moments), default=now_ms)
    begin = time_ms_of(since) if since else first
    end = time_ms_of(until) if until else max(now_ms, *(each.time_ms for each in moments[-1:]), begin + 1)
    return Span(begin, max(end, begin + 1))


def drawn(
    moments: Sequence[Moment], span: Span, lanes: Sequence[Lane], describe: Callable[[int], str], listed: int
) -> Drawn:
    """Return the lanes of a span of time, and its newest moments. `describe` makes a time (ms) into text."""
    length = span.until - span.since
    inside = [each for each in moments if span.since <= each.time_ms <= span.until]
    inside.sort(key=lambda each: each.time_ms)
    shown = [each for each in inside if each.lane in lanes]
    rows = []
    for number, lane in enumerate(lanes):
        mine = [each for each in inside if each.lane is lane]
        rows.append(LaneRow(lane, 24 * number, list(_marks(mine, span, describe))))
    step = length / BUCKETS
    spans = [Span(round(span.since + step * part), round(span.since + step * (part + 1))) for part in range(BUCKETS)]
    return Drawn(
        span=span,
        lanes=rows,
        buckets=[(WIDTH * part / BUCKETS, each) for part, each in enumerate(spans)],
        listed=shown[: -listed - 1 : -1],
        total=len(shown),
        earlier=Span(span.since - length, span.since),
        later=Span(span.until, span.until + length),
        wider=Span(span.since - length, span.until + length),
    )


def _marks(moments: Sequence[Moment], span: Span, describe: Callable[[int], str]) -> Iterator[Mark]:
    """Yield the marks of a lane. Bad moments stay marks of their own kind, so that they are never hidden."""
    scale = WIDTH / (span.until - span.since)
    for is_bad in (False, True):
        together: list[Moment] = []
        mine = [each for each in moments if each.is_bad is is_bad]
        for each, following in zip(mine, [*mine[1:], None], strict=False):
            together.append(each)
            if following is None or (following.time_ms - together[0].time_ms) * scale > _MARK:
                x = (together[0].time_ms - span.since) * scale
                words = f"{describe(each.time_ms)} {_where(each)}{each.words}"
                if len(together) > 1:
                    words = f"{len(together)} until {words}"
                yield Mark(round(min(x, WIDTH - _MARK), 1), _MARK, len(together), is_bad, words)
                together = []


def _where(moment: Moment) -> str:
    return f"{moment.scope.value} {moment.name}: " if moment.name else ""
