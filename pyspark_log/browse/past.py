"""The past of a cluster: the moments of all journals, read once and continued, within what a bucket may be asked."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pyspark_log.browse.budget import requests_made
from pyspark_log.browse.view import CLUSTER
from pyspark_log.documents.history import Journal
from pyspark_log_coordinator.audit import timeline
from pyspark_log_coordinator.audit.timeline import Moment, Scope
from pyspark_log_coordinator.cluster.cluster_state import group_of
from pyspark_log_storage.errors import LogError, UnknownGroup, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pyspark_log.browse.budget import Budget
    from pyspark_log.browse.view import ClusterView
    from pyspark_log.documents.history import Key
    from pyspark_log_coordinator.log.log import Log

ENTRIES_READ = 1_000
"""The newest entries of each journal that are read. In an object store each is a request."""
ENTRIES_AT_ONCE = 256
"""There they are read so many at once, which is what lies between two snapshots, the newest first."""
REQUESTS_AT_ONCE = 20
"""There the next journal is left for later after so many."""
REQUESTS_AHEAD = 300
"""So many requests may be made before the budget allows them. Then the rest of the past waits."""
MOMENTS_KEPT = 20_000
"""Of each journal, the newest."""


class Entry(NamedTuple):
    """An entry of a journal: when it was written (ms), its events by their fields, and what it did."""

    time_ms: int
    events: list[dict[str, Any]]
    did: list[Moment]


class Past:
    """The past of a cluster. Read by one thread at a time; `known` is for any."""

    def __init__(self, log: Log, budget: Budget | None = None) -> None:
        """Read nothing yet. The budget is for an object store; None reads everything at once."""
        self._log = log
        self._budget = budget if log.is_remote else None
        self.known: dict[Key, Journal] = {}
        """What has been read. It is replaced and never changed."""
        self._handles: dict[Key, tuple[str, timeline.Handle]] = {}
        """Which journal was read under a name, and from where."""
        self._versions: dict[Key, tuple[str, int]] = {}
        """What a view had of a journal when it was read."""
        self._turns: dict[Key, int] = {}
        self._numbers = itertools.count(1)

    def read(self, view: ClusterView, topic: str = "", group: str = "", *, waits: bool = True) -> ClusterView:
        """Return a view with what is known of the past, after the journals were read in which it has newer entries.

        In an object store this is within the budget, somewhat ahead of it if somebody `waits` for what was never read:
        the rest is read later. A journal that cannot be read has a `problem`.
        """
        keys = view.keys
        asked = {(Scope.TOPIC, topic), (Scope.GROUP, group)}.intersection(keys)
        self._forget(view)
        news = {key for key in keys if _version_in(view, key) != self._versions.get(key)}
        due = [key for key in keys if key in news or (key in self.known and not self.known[key].is_whole)]
        # The one that was read longest ago comes first.
        due.sort(key=lambda key: (key not in asked, self._turns.get(key, 0)))
        is_asked_for = waits and not (self.known and asked <= self.known.keys())
        if due and not (self._budget and self._budget.lent() > (REQUESTS_AHEAD if is_asked_for else 0)):
            before = requests_made()
            try:
                self._read_some(view, due, news, before)
            except LogError as error:
                self._note(CLUSTER, error)
            if self._budget is not None:
                self._budget.lend(requests_made() - before)
        return self.shown(view)

    def shown(self, view: ClusterView) -> ClusterView:
        """Return a view with what is known of the past."""
        return msgspec.structs.replace(view, past=self.known)

    def _read_some(self, view: ClusterView, due: Sequence[Key], news: Collection[Key], before: int) -> None:
        if CLUSTER in self.known and CLUSTER in news:  # before the log is opened anew, which reads its next entry
            self._read(CLUSTER, self._newer)
        self._log.open(create=False)
        for key in due:
            if key in news:
                self._read(key, self._newer)
                if key in self.known and not self.known[key].problem:
                    self._versions[key] = _version_in(view, key)
            if requests_made() - before < REQUESTS_AT_ONCE and key in self.known and not self.known[key].is_whole:
                self._read(key, self._older)
            self._turns[key] = next(self._numbers)
            if self._budget is not None and requests_made() - before >= REQUESTS_AT_ONCE:
                break

    def _read(self, key: Key, read: Callable[[Key], Journal]) -> None:
        """Read newer or older entries of a journal."""
        try:
            self.known = self.known | {key: msgspec.structs.replace(read(key), problem="")}
        except (UnknownTopic, UnknownGroup):
            self._drop(key)  # deleted meanwhile
        except LogError as error:
            self._note(key, error)

    def _note(self, key: Key, error: LogError) -> None:
        known = self.known.get(key, Journal([], 0, 0, 0))
        self.known = self.known | {key: msgspec.structs.replace(known, problem=error.message)}

    def _forget(self, view: ClusterView) -> None:
        for key in self.known.keys() - view.keys:
            self._drop(key)

    def _drop(self, key: Key) -> None:
        self.known = {each: found for each, found in self.known.items() if each != key}
        for each in (self._handles, self._versions, self._turns):
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

    def _newer(self, key: Key) -> Journal:
        """Return a journal with its new entries, or with its newest if nothing is known of it."""
        birth = self._birth(*key)
        if key in self._handles and self._handles[key][0] != birth:
            self._drop(key)  # created again under the same name
        if key not in self._handles:
            self._handles[key] = birth, self._handle(*key)
        handle, known = self._handles[key][1], self.known.get(key)
        if known is None or not known.version:
            known = self._before(handle.version, handle.version)
        new = list(timeline.moments(handle, known.version))
        if not known.begin_ms and new:
            begin = new[0].entry if known.is_whole else known.begin  # others were trimmed
            known = msgspec.structs.replace(known, begin=begin, begin_ms=new[0].time_ms)
        moments = [*known.moments, *new][-MOMENTS_KEPT:]
        return msgspec.structs.replace(known, moments=moments, version=handle.version)

    def _older(self, key: Key) -> Journal:
        """Return a journal with some entries before those that are known."""
        known = self.known[key]
        before = self._before(known.begin - 1, known.version)
        older = [
            each
            for each in timeline.moments(self._handles[key][1], before.version, known.begin - 1)
            if each.entry < known.begin
        ]
        if not older:  # they were trimmed
            return msgspec.structs.replace(known, is_whole=True)
        moments = [*older, *known.moments][-MOMENTS_KEPT:]
        whole = {"begin": before.begin, "begin_ms": older[0].time_ms, "is_whole": before.is_whole}
        return msgspec.structs.replace(known, moments=moments, **whole)

    def _before(self, number: int, newest: int) -> Journal:
        """Return what is known before the entries are read that end with `number`: all at once without a budget."""
        first = max(0, newest - ENTRIES_READ)
        after = first if self._budget is None else max(first, (number - 1) // ENTRIES_AT_ONCE * ENTRIES_AT_ONCE)
        return Journal([], after, after + 1, 0, is_whole=after == first)

    def _birth(self, scope: Scope, name: str) -> str:
        """Return the id of a topic or of a group's journal, as far as this process knows the cluster."""
        if scope is Scope.TOPIC:
            self._log.check_topic(name)
            return self._log.known_topics[name].topic_id
        if scope is Scope.GROUP:
            return group_of(self._log.known_groups, name).journal_id
        return ""


def _version_in(view: ClusterView, key: Key) -> tuple[str, int]:
    """Return which journal a view has under a name, and its newest entry."""
    scope, name = key
    if scope is Scope.CLUSTER:
        return "", view.version
    if scope is Scope.GROUP:
        return "", view.groups[name].version
    found = view.topics[name]
    return (found.topic.topic_id if found.topic is not None else ""), found.version
