"""What happened: the moments of all journals, read once and continued, and how a page shows them as lanes over time."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pyspark_log.documents.text import time_ms_of
from pyspark_log.ui.budget import DEBT_MAX, REQUESTS_PER_SECOND, requests_made
from pyspark_log.ui.view import CLUSTER
from pyspark_log_coordinator.audit import timeline
from pyspark_log_coordinator.audit.timeline import Lane, Moment, Scope
from pyspark_log_coordinator.cluster.groups import group_of
from pyspark_log_storage.errors import LogError, UnknownGroup, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pyspark_log.ui.view import ClusterView, Key
    from pyspark_log_coordinator.log.log import Log

ENTRIES_READ = 1_000
"""The newest entries of each journal that are read. In an object store each is a request."""
REQUESTS_AT_FIRST = 1_000
"""When the page is opened first, and for a topic or group that somebody asks for. The last journal may take more."""
REQUESTS_AT_ONCE = 20
"""Afterwards."""
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

    def __init__(self, log: Log, requests_at_first: float | None = None) -> None:
        """Read nothing yet. `requests_at_first` may be made at once in an object store; None: `REQUESTS_AT_FIRST`."""
        self._log = log
        self._at_first = REQUESTS_AT_FIRST if requests_at_first is None else requests_at_first
        self._journals: dict[Key, Journal] = {}
        self._handles: dict[Key, tuple[str, timeline.Handle]] = {}
        """Which journal was read under a name, and from where."""
        self._versions: dict[Key, tuple[str, int]] = {}
        """What a view had of a journal when it was read from an object store."""
        self._turns: dict[Key, int] = {}
        self._numbers = itertools.count(1)
        self._due = -float("inf")
        """When an object store may be asked again."""

    def journals(self, view: ClusterView, topic: str = "", group: str = "") -> dict[Key, Journal]:
        """Return what happened in the cluster's journal and in those of all topics and groups, or of one.

        In an object store only journals are read in which `view` has newer entries, and these within the budget: what
        is not known yet is left out, and found later. A journal that cannot be read has a `problem`.
        Raises `UnknownTopic`, `UnknownGroup`, and `LogError` if the cluster cannot be read.
        """
        if self._log.is_remote:
            return self._within_budget(view, topic, group)
        self._log.open(create=False)
        topics, groups = sorted(self._log.topics(polls=True)), sorted(self._log.groups())
        wanted = _keys(topics, groups, topic, group)
        for key in wanted:
            self._read(key)
        self._forget(topics, groups)
        return {key: self._journals[key] for key in wanted if key in self._journals}

    def _within_budget(self, view: ClusterView, topic: str, group: str) -> dict[Key, Journal]:
        wanted = _keys(sorted(view.topics), sorted(view.groups), topic, group)
        self._forget(view.topics, view.groups)
        news = [key for key in wanted if _version_in(view, key) != self._versions.get(key)]
        news.sort(key=lambda key: self._turns.get(key, 0))  # the one that was read longest ago first
        is_asked_for = bool(topic or group) and any(key not in self._journals for key in wanted)
        now = self._log.environment.monotonic()
        if news and (is_asked_for or now >= self._due):
            before = requests_made()
            most = self._at_first if is_asked_for or not self._journals else REQUESTS_AT_ONCE
            if CLUSTER in news:
                if CLUSTER in self._journals:  # before the log is opened anew, when the next entry is all that is read
                    self._read(CLUSTER)
                self._log.open(create=False)
            for key in news:
                self._read(key)
                if key in self._journals and not self._journals[key].problem:
                    self._versions[key] = _version_in(view, key)
                self._turns[key] = next(self._numbers)
                if requests_made() - before >= most:
                    break
            # The looks have the other half of the budget. They pay back what this has taken of it.
            self._due = now + 2 * min(requests_made() - before, DEBT_MAX) / REQUESTS_PER_SECOND
        return {key: self._journals[key] for key in wanted if key in self._journals}

    def _read(self, key: Key) -> None:
        """Read what is new in a journal, from its newest entries on if nothing is known of it."""
        try:
            self._journals[key] = self._journal(key)
        except (UnknownTopic, UnknownGroup):
            self._drop(key)  # deleted meanwhile
        except LogError as error:
            known = self._journals.get(key, Journal([], 0, 0, 0))
            self._journals[key] = msgspec.structs.replace(known, problem=error.message)

    def _forget(self, topics: Collection[str], groups: Collection[str]) -> None:
        for key in list(self._journals):
            if (key[0] is Scope.TOPIC and key[1] not in topics) or (key[0] is Scope.GROUP and key[1] not in groups):
                self._drop(key)

    def _drop(self, key: Key) -> None:
        for each in (self._journals, self._handles, self._versions, self._turns):
            each.pop(key, None)

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

    def _journal(self, key: Key) -> Journal:
        birth = self._birth(*key)
        if key in self._handles and self._handles[key][0] != birth:
            self._drop(key)  # created again under the same name
        if key not in self._handles:
            self._handles[key] = birth, self._handle(*key)
        handle = self._handles[key][1]
        known = self._journals.get(key) or Journal([], max(0, handle.version - ENTRIES_READ), 0, 0)
        new = list(timeline.moments(handle, known.version))
        if not known.begin and new:
            known = msgspec.structs.replace(known, begin=new[0].entry, begin_ms=new[0].time_ms)
        return Journal([*known.moments, *new][-MOMENTS_KEPT:], handle.version, known.begin, known.begin_ms)

    def _birth(self, scope: Scope, name: str) -> str:
        """Return the id of a topic or of a group's journal, as far as this process knows the cluster."""
        if scope is Scope.TOPIC:
            self._log.check_topic(name)
            return self._log.known_topics[name].topic_id
        if scope is Scope.GROUP:
            return group_of(self._log.known_groups, name).journal_id
        return ""


def _keys(topics: Iterable[str], groups: Iterable[str], topic: str, group: str) -> list[Key]:
    """Return the journals of a page about everything, a topic, or a group. Raises `UnknownTopic`, `UnknownGroup`."""
    if topic and topic not in topics:
        raise UnknownTopic(topic, f"topic {topic!r} does not exist")
    if group and group not in groups:
        raise UnknownGroup(group, f"group {group!r} does not exist")
    keys = [CLUSTER]
    if not group:
        keys += [(Scope.TOPIC, each) for each in ([topic] if topic else topics)]
    if not topic:
        keys += [(Scope.GROUP, each) for each in ([group] if group else groups)]
    return keys


def _version_in(view: ClusterView, key: Key) -> tuple[str, int]:
    """Return which journal a view has under a name, and its newest entry."""
    scope, name = key
    if scope is Scope.CLUSTER:
        return "", view.version
    if scope is Scope.GROUP:
        return "", view.groups[name].version
    found = view.topics[name]
    return (found.topic.topic_id if found.topic is not None else ""), found.version


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
    end = time_ms_of(until) if until else max(now_ms, *(each.time_ms for each in moments), begin + 1)
    return Span(begin, max(end, begin + 1))


TIMES = Span(-(10**15) + 1, 10**15 - 1)
"""All that an address can ask for, in ms."""


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
        earlier=_within(span.since - length, span.since),
        later=_within(span.until, span.until + length),
        wider=_within(span.since - length, span.until + length),
    )


def _within(since: int, until: int) -> Span:
    return Span(max(since, TIMES.since), min(until, TIMES.until))


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
