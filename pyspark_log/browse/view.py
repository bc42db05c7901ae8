"""What the pages show of a cluster: values, made from its journals by one process for all viewers.

`Watch` keeps the newest view. On disks each look reads the newest entries of all journals. In an object store that
would be a request for each, so a look reads one of them, if the budget allows one, and each part of a view says how old
it is.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from pyspark_log.browse.budget import Budget
from pyspark_log.documents import cluster as documents
from pyspark_log.documents import verdict
from pyspark_log.documents.figures import Figures, OnNode, figures_of
from pyspark_log.documents.groups import unstarted
from pyspark_log.documents.history import Journal, Key
from pyspark_log.reading.groups import PartitionLag, lags_in
from pyspark_log_coordinator.audit.timeline import Lane, Moment, Scope
from pyspark_log_coordinator.group.state import Group, GroupState
from pyspark_log_coordinator.log.partition_health import Trouble
from pyspark_log_coordinator.model.partition import by_number
from pyspark_log_storage.errors import LogError, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyspark_log.documents.verdict import Finding
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId, Partition
    from pyspark_log_coordinator.model.topic_state import Topic

RATE_SECONDS = 60.0
"""A rate is that of the last minute, or of the time since the page was opened."""
PAUSED = "paused: a bucket is asked once a second"
STALE_MS = 10_000
"""What was read longer ago says nothing about now: nothing of it is healthy."""
NOTICED_KEPT = 200
PAUSE_REQUESTS = 2
"""So many requests above the budget are a pause that pages speak of."""
OPEN_SECONDS = 60.0
"""How often the cluster's own journal and its nodes are looked at in an object store."""
Document = dict[str, Any]
CLUSTER: Key = (Scope.CLUSTER, "")


class TopicView(msgspec.Struct, frozen=True):
    """A topic. `problem` says why it could not be read; then the figures are the last ones, or zero."""

    name: str
    at_ms: int
    """When this was read, by this process's clock."""
    topic: Topic | None
    version: int
    figures: Figures
    rate: float | None
    """Rows a second; None until two looks are some time apart."""
    problem: str = ""

    @property
    def is_troubled(self) -> bool:
        """Whether a partition is in trouble. To have just as many in sync as it takes is none."""
        return any(kind is not Trouble.AT_MIN_ISR for kind in self.figures.troubles)


class GroupView(msgspec.Struct, frozen=True):
    """A group, with its lag in each partition."""

    group_id: str
    at_ms: int
    group: Group | None
    address: str
    """Where its journal is."""
    version: int
    lags: tuple[PartitionLag, ...]
    unstarted: dict[str, dict[int, int]] = {}
    """The rows of partitions in which it has committed nothing, though it has in others of the topic."""
    problem: str = ""

    @property
    def lag(self) -> int:
        """The rows that the group has not committed."""
        return sum(each.lag for each in self.lags) + sum(sum(each.values()) for each in self.unstarted.values())

    def lag_of(self, topic: str) -> int:
        """Return the rows of a topic that the group has not committed."""
        return sum(each.lag for each in self.lags if each.topic == topic) + sum(self.unstarted.get(topic, {}).values())


class ClusterView(msgspec.Struct, frozen=True):
    """A cluster as of a look. `problem` says why a look failed; then the rest is what was seen before, at `at_ms`."""

    address: str
    at_ms: int = 0
    """When something was read last; 0 if nothing was."""
    now_ms: int = 0
    """When this is shown."""
    waits: bool = False
    """Whether the requests to an object store that are allowed now were made."""
    version: int = 0
    """The newest entry of the cluster's own journal."""
    cluster_id: str = ""
    nodes: tuple[Document, ...] = ()
    """Those of `documents`, with what they have of all topics (`has`), and the room on their disks (`free`)."""
    journals: tuple[Document, ...] = ()
    """The journal nodes, if there are several."""
    broken: frozenset[NodeId] = frozenset()
    """The nodes that did not answer."""
    topics: dict[str, TopicView] = {}
    groups: dict[str, GroupView] = {}
    problem: str = ""
    noticed: tuple[Moment, ...] = ()
    """When nodes ceased to answer and when they answered again, while somebody looked."""
    past: dict[Key, Journal] = {}
    """What has been read of the past."""

    @property
    def partitions(self) -> int:
        """The number of partitions of all topics that can be read."""
        return sum(len(each.topic.partitions) for each in self.topics.values() if each.topic is not None)

    @property
    def keys(self) -> list[Key]:
        """The journals: the cluster's, and those of topics and groups."""
        topics, groups = ((Scope.TOPIC, each) for each in self.topics), ((Scope.GROUP, each) for each in self.groups)
        return [CLUSTER, *topics, *groups]

    @property
    def is_stale(self) -> bool:
        """Whether nothing could be read for so long that nobody knows what is so now."""
        return self.now_ms - self.at_ms > STALE_MS

    @property
    def status(self) -> str:
        """How new what is shown is: live, paused, stale, or not read yet."""
        if not self.at_ms:
            return "not read yet"
        if self.problem or (self.is_stale and not self.waits):
            return "stale"
        return PAUSED if self.waits else "live"

    @property
    def oldest_ms(self) -> int:
        """When the part was read that was read longest ago."""
        return min([self.at_ms, *(each.at_ms for kind in (self.topics, self.groups) for each in kind.values())])

    @property
    def verdict(self) -> list[Finding]:
        """What is wrong and what to do, the worst first; one finding that is good if nothing is."""
        if not self.at_ms:
            return [verdict.unread(self.problem)]
        age_ms = self.now_ms - self.at_ms if self.is_stale else 0
        topics = {name: (each.figures, each.problem) for name, each in self.topics.items()}
        unreadable = [name for name, each in self.groups.items() if each.problem]
        return verdict.verdict(self.nodes, self.journals, topics, unreadable, self.problem, age_ms)


class Watch:
    """Keeps the view of a cluster. Used by one thread at a time."""

    def __init__(self, log: Log, address: str) -> None:
        """Read nothing yet."""
        self._log = log
        self.budget = Budget(log.environment.monotonic)
        """What may be read from an object store."""
        self._view = ClusterView(address)
        self._ends: dict[str, deque[tuple[float, int]]] = {}
        self._figures: dict[str, tuple[tuple[int, frozenset[NodeId]], Figures]] = {}
        """Of each topic, and from what they were counted."""
        self._lags: dict[str, tuple[Any, GroupView]] = {}
        """The same of groups."""
        self._turns: dict[Key, int] = {}
        """The number of the turn in which a journal was read, if they take turns."""
        self._turn = 0
        self._opened = -float("inf")
        """When the cluster's own journal was read."""
        self._journals: tuple[Document, ...] = ()

    @property
    def view(self) -> ClusterView:
        """The newest view, which says how old it is. Used by any thread."""
        waits = self._log.is_remote and self.budget.left() < -PAUSE_REQUESTS
        return msgspec.structs.replace(self._view, now_ms=self._log.environment.now_ms(), waits=waits)

    def look(self, wanted: Collection[str] = ()) -> ClusterView:
        """Return the view after a look. `wanted` are the topics and groups that somebody has open.

        What cannot be read is a `problem` in the view, so this raises no `LogError`.
        """
        log = self._log
        begun = log.environment.now_ms()
        turn: Key | None = None
        if log.is_remote and self._view.at_ms:
            if self.budget.left() < 1:
                return self.view
            turn = self._next_turn(wanted)
        try:
            if turn is None or turn == CLUSTER:
                self._open()
        except LogError as error:
            self._opened = -float("inf")
            found = self._found_without_journals()
            self._view = msgspec.structs.replace(self._view, problem=error.message, **found, noticed=self._noticed())
            return self.view
        names = sorted(log.known_topics)
        topics = {name: self._topic(name, read=turn in {None, (Scope.TOPIC, name)}) for name in names}
        ids = {
            each.topic.topic_id: (name, each.topic.partitions, each.version)
            for name, each in topics.items()
            if each is not None and each.topic is not None
        }
        groups = {
            name: self._group(name, ids, read=turn in {None, (Scope.GROUP, name)}) for name in sorted(log.known_groups)
        }
        scope, name = turn or CLUSTER
        mine = topics.get(name) if scope is Scope.TOPIC else groups.get(name)
        is_read = mine is None or not mine.problem
        if not is_read:
            self._opened = -float("inf")
        self._view = ClusterView(
            address=self._view.address,
            at_ms=begun if is_read else self._view.at_ms,
            version=log.cluster.number,
            cluster_id=log.cluster_id,
            nodes=tuple(self._nodes(topics.values())),
            journals=self._journals,
            broken=log.broken_nodes,
            topics={name: each for name, each in topics.items() if each is not None},
            groups={name: each for name, each in groups.items() if each is not None},
            problem="" if is_read else self._view.problem,
            noticed=self._noticed(),
        )
        if turn is None:
            self._opened = log.environment.monotonic()
            self.budget.clear()
        return self.view

    def _next_turn(self, wanted: Collection[str]) -> Key:
        """Return whose journal is read next.

        Two of three turns are those of what somebody has open, the others go round. The cluster has one a minute.
        """
        now = self._log.environment.monotonic()
        every = self._view.keys[1:]
        if now - self._opened >= OPEN_SECONDS or not every:
            self._opened = now
            return CLUSTER
        self._turn += 1
        shown = [key for key in every if key[1] in wanted] if self._turn % 3 else []
        turn = min(shown or every, key=lambda key: self._turns.get(key, 0))
        self._turns[turn] = self._turn
        return turn

    def _noticed(self) -> tuple[Moment, ...]:
        """Return what the looks have noticed of nodes, which no journal says until a writer needs them."""
        now, broken, before = self._log.environment.now_ms(), self._log.broken_nodes, self._view.broken
        words = [(f"node {each} does not answer", True) for each in sorted(broken - before)]
        words += [(f"node {each} answers again", False) for each in sorted(before - broken)]
        new = [Moment(Lane.NODES, *each, time_ms=now, scope=Scope.CLUSTER, name="", entry=0) for each in words]
        return (*self._view.noticed, *new)[-NOTICED_KEPT:]

    def _open(self) -> None:
        """Read the cluster's journal, and find out which nodes answer. Raises `LogError`."""
        log = self._log
        log.open(create=False)
        if log.is_remote:
            log.topics(polls=True)
        if log.journals.nodes is not None:
            self._journals = tuple(documents.journal_nodes(log))

    def _found_without_journals(self) -> dict[str, Any]:
        """Return what can still be known when the cluster's journal cannot be read: which stores answer."""
        log = self._log
        with contextlib.suppress(LogError):
            log.probe_nodes()
            if log.journals.nodes is not None:
                self._journals = tuple(documents.journal_nodes(log))
            has = {each["node"]: each["has"] for each in self._view.nodes}
            nodes = tuple(self._with_room(name, has.get(name, OnNode())) for name in sorted(log.nodes, key=by_number))
            return {"nodes": nodes, "journals": self._journals, "broken": log.broken_nodes}
        # Not even the only store can be asked.
        return {"nodes": tuple(each | {"state": "unknown", "free": None} for each in self._view.nodes)}

    def _topic(self, name: str, *, read: bool) -> TopicView | None:
        before = self._view.topics.get(name)
        if not read and before is not None:
            return before
        now = self._log.environment.now_ms()
        try:
            handle = self._log.topic(name, polls=True)
        except UnknownTopic:
            return None  # deleted meanwhile
        except LogError as error:
            if before is not None:
                return msgspec.structs.replace(before, problem=error.message)
            return TopicView(name, now, None, 0, Figures(), None, problem=error.message)
        counted_from = handle.version, self._log.broken_nodes
        known = self._figures.get(handle.topic_id)
        if known is None or known[0] != counted_from:
            known = self._figures[handle.topic_id] = counted_from, figures_of(handle.state, counted_from[1])
        return TopicView(
            name=name,
            at_ms=now,
            topic=handle.state,
            version=handle.version,
            figures=known[1],
            rate=self._rate(handle, known[1].ends),
        )

    def _rate(self, handle: TopicHandle, ends: int) -> float | None:
        now = self._log.environment.monotonic()
        points = self._ends.setdefault(handle.topic_id, deque())
        if points and not self._log.is_remote and now - points[-1][0] > RATE_SECONDS:
            points.clear()  # nobody has looked: the page is opened anew
        points.append((now, ends))
        while len(points) > 2 and points[1][0] <= now - RATE_SECONDS:  # noqa: PLR2004 -- the two ends of a rate
            points.popleft()
        (since, first), seconds = points[0], now - points[0][0]
        return max(0.0, (ends - first) / seconds) if seconds > 0.5 and since < now else None  # noqa: PLR2004

    def _group(
        self, name: str, topics: Mapping[str, tuple[str, tuple[Partition, ...], int]], *, read: bool
    ) -> GroupView | None:
        before = self._view.groups.get(name)
        now = self._log.environment.now_ms()
        try:
            handle = self._log.group_handle(self._log.known_groups[name])
            state = handle.refresh(polls=True) if read or before is None else handle.state
        except LogError as error:
            if before is not None:
                return msgspec.structs.replace(before, problem=error.message)
            return GroupView(name, now, None, "", 0, (), problem=error.message)
        if state.state is GroupState.DEAD:
            return None
        at_ms = now if read or before is None else before.at_ms
        found_in = handle.version, tuple((each, topics[each][2]) for each in state.offsets if each in topics)
        known = self._lags.get(name)
        if known is None or known[0] != found_in:
            of_topics = {each: found[:2] for each, found in topics.items()}
            lags, rest = tuple(lags_in(state, of_topics)), unstarted(state, of_topics)
            known = found_in, GroupView(name, at_ms, state, handle.address, handle.version, lags, rest)
            self._lags[name] = known
        return msgspec.structs.replace(known[1], at_ms=at_ms)

    def _nodes(self, topics: Iterable[TopicView | None]) -> Iterable[Document]:
        has: dict[str, OnNode] = {}
        for topic in topics:
            for holder, found in topic.figures.nodes.items() if topic is not None else ():
                has[holder] = has.get(holder, OnNode()) + found
        for name in sorted(self._log.nodes, key=by_number):
            yield self._with_room(name, has.get(name, OnNode()))

    def _with_room(self, name: str, has: OnNode) -> Document:
        node = self._log.nodes[name]
        return documents.node(self._log, node) | {"has": has, "free": documents.free_bytes(self._log, node)}
