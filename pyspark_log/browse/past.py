"""The past of a cluster: the moments of all journals, read once and continued, within what a bucket may be asked."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pyspark_log.browse.budget import DEBT_MAX, REQUESTS_PER_SECOND, requests_made
from pyspark_log.browse.view import CLUSTER
from pyspark_log_coordinator.audit import timeline
from pyspark_log_coordinator.audit.timeline import Moment, Scope
from pyspark_log_coordinator.cluster.cluster_state import group_of
from pyspark_log_storage.errors import LogError, UnknownGroup, UnknownTopic

if TYPE_CHECKING:
    from pyspark_log.browse.view import ClusterView, Key
    from pyspark_log_coordinator.log.log import Log

ENTRIES_READ = 1_000
"""The newest entries of each journal that are read. In an object store each is a request."""
REQUESTS_AT_FIRST = 1_000
"""When the past is asked for first, and for a topic or group that somebody asks for. The last journal may take more."""
REQUESTS_AT_ONCE = 20
"""Afterwards."""
MOMENTS_KEPT = 20_000
"""Of each journal, the newest."""


class Journal(msgspec.Struct):
    """What is known of the past of one journal."""

    moments: list[Moment]
    version: int
    begin: int
    """The first entry that is known."""
    begin_ms: int
    """When it was written."""
    problem: str = ""


Known = dict["Key", Journal]


class Entry(NamedTuple):
    """An entry of a journal: when it was written (ms), its events by their fields, and what it did."""

    time_ms: int
    events: list[dict[str, Any]]
    did: list[Moment]


class Past:
    """The past of a cluster. Read by one thread at a time; `known` is for any."""

    def __init__(self, log: Log, requests_at_first: float | None = None) -> None:
        """Read nothing yet. `requests_at_first` may be made at once in an object store; None: `REQUESTS_AT_FIRST`."""
        self._log = log
        self._at_first = REQUESTS_AT_FIRST if requests_at_first is None else requests_at_first
        self.known: Known = {}
        """What has been read. It is replaced and never changed."""
        self._handles: dict[Key, tuple[str, timeline.Handle]] = {}
        """Which journal was read under a name, and from where."""
        self._versions: dict[Key, tuple[str, int]] = {}
        """What a view had of a journal when it was read."""
        self._turns: dict[Key, int] = {}
        self._numbers = itertools.count(1)
        self._due = -float("inf")
        """When an object store may be asked again."""

    def read(self, view: ClusterView, topic: str = "", group: str = "", *, waits: bool = True) -> None:
        """Read the journals in which `view` has newer entries, first those of a topic or a group that is asked for.

        In an object store this is within the budget, unless somebody `waits` for what was never read: the rest is read
        later. A journal that cannot be read has a `problem`.
        """
        keys = [CLUSTER, *((Scope.TOPIC, each) for each in view.topics), *((Scope.GROUP, each) for each in view.groups)]
        asked = [key for key in keys if key in {(Scope.TOPIC, topic), (Scope.GROUP, group)}]
        self._forget(view)
        news = [key for key in keys if _version_in(view, key) != self._versions.get(key)]
        # The one that was read longest ago comes first.
        news.sort(key=lambda key: (key not in asked, self._turns.get(key, 0)))
        is_asked_for = waits and (any(key not in self.known for key in asked) or not self.known)
        now = self._log.environment.monotonic()
        if not news or (self._log.is_remote and now < self._due and not is_asked_for):
            return
        before = requests_made()
        most = self._at_first if is_asked_for else REQUESTS_AT_ONCE
        try:
            if CLUSTER in self.known and CLUSTER in news:  # before the log is opened anew, which reads its next entry
                self._read(CLUSTER)
            self._log.open(create=False)
        except LogError as error:
            self._note(CLUSTER, error)
            return
        for key in news:
            self._read(key)
            if key in self.known and not self.known[key].problem:
                self._versions[key] = _version_in(view, key)
            self._turns[key] = next(self._numbers)
            if requests_made() - before >= most:
                break
        # The looks have the other half of the budget. They pay back what this has taken of it.
        self._due = now + 2 * min(requests_made() - before, DEBT_MAX) / REQUESTS_PER_SECOND

    def _read(self, key: Key) -> None:
        """Read what is new in a journal, from its newest entries on if nothing is known of it."""
        try:
            self.known = self.known | {key: self._journal(key)}
        except (UnknownTopic, UnknownGroup):
            self._drop(key)  # deleted meanwhile
        except LogError as error:
            self._note(key, error)

    def _note(self, key: Key, error: LogError) -> None:
        known = self.known.get(key, Journal([], 0, 0, 0))
        self.known = self.known | {key: msgspec.structs.replace(known, problem=error.message)}

    def _forget(self, view: ClusterView) -> None:
        for scope, name in list(self.known):
            if (scope is Scope.TOPIC and name not in view.topics) or (scope is Scope.GROUP and name not in view.groups):
                self._drop((scope, name))

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

    def _journal(self, key: Key) -> Journal:
        birth = self._birth(*key)
        if key in self._handles and self._handles[key][0] != birth:
            self._drop(key)  # created again under the same name
        if key not in self._handles:
            self._handles[key] = birth, self._handle(*key)
        handle = self._handles[key][1]
        known = self.known.get(key) or Journal([], max(0, handle.version - ENTRIES_READ), 0, 0)
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


def _version_in(view: ClusterView, key: Key) -> tuple[str, int]:
    """Return which journal a view has under a name, and its newest entry."""
    scope, name = key
    if scope is Scope.CLUSTER:
        return "", view.version
    if scope is Scope.GROUP:
        return "", view.groups[name].version
    found = view.topics[name]
    return (found.topic.topic_id if found.topic is not None else ""), found.version
