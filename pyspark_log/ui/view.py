"""What the pages show of a cluster: values, made from its journals by one process for all viewers.

`Watch` keeps the newest view. On disks each look reads the newest entries of all journals. In an object store that
would be a request for each, so `Turns` says which one a look reads, if the budget allows one, and each part of a view
says how old it is.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from pyspark_log.documents import cluster as documents
from pyspark_log.documents.figures import Figures, OnNode, figures_of
from pyspark_log.reading.groups import PartitionLag, lags_in
from pyspark_log.ui.budget import Budget
from pyspark_log_coordinator.audit.timeline import Scope
from pyspark_log_coordinator.group.state import Group, GroupState
from pyspark_log_coordinator.log.partition_health import Trouble
from pyspark_log_coordinator.model.partition import by_number
from pyspark_log_storage.errors import LogError, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId, Partition
    from pyspark_log_coordinator.model.topic_state import Topic

RATE_SECONDS = 60.0
"""A rate is that of the last minute, or of the time since the page was opened."""
HISTORY_SECONDS = 3600.0
"""For so long the lag of a group is remembered while somebody looks."""
HISTORY_POINTS = 360
OPEN_SECONDS = 60.0
"""How often the cluster's own journal and its nodes are looked at in an object store."""
Document = dict[str, Any]


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
    """A group, with its lag in each partition, and the lag over time while somebody looked: (ms, rows)."""

    group_id: str
    at_ms: int
    group: Group | None
    address: str
    """Where its journal is."""
    version: int
    lags: tuple[PartitionLag, ...]
    history: tuple[tuple[int, int], ...]
    problem: str = ""

    @property
    def lag(self) -> int:
        """The rows that the group has not committed, of all partitions with committed offsets."""
        return sum(each.lag for each in self.lags)


class ClusterView(msgspec.Struct, frozen=True):
    """A cluster as of a look. `problem` says why a look failed; then the rest is what was seen before, at `at_ms`."""

    address: str
    at_ms: int = 0
    version: int = 0
    """The newest entry of the cluster's own journal."""
    cluster_id: str = ""
    nodes: tuple[Document, ...] = ()
    """Those of `documents`, with what they have of all topics (`has`), and the room on their disks (`free`)."""
    journals: tuple[Document, ...] = ()
    """The journal nodes, if there are several."""
    failures_tolerated: int = 0
    broken: frozenset[NodeId] = frozenset()
    """The nodes that did not answer."""
    topics: dict[str, TopicView] = {}
    groups: dict[str, GroupView] = {}
    problem: str = ""

    @property
    def partitions(self) -> int:
        """The number of partitions of all topics that can be read."""
        return sum(len(each.topic.partitions) for each in self.topics.values() if each.topic is not None)


Key = tuple[Scope, str]
CLUSTER: Key = (Scope.CLUSTER, "")


class Turns:
    """Whose journal is read next. Pure.

    Two of three turns are those of what somebody has open, the others go round. The cluster has one a minute.
    """

    def __init__(self) -> None:
        self._every: deque[Key] = deque()
        self._number = 0
        self._opened = -float("inf")

    def know(self, every: Sequence[Key]) -> None:
        """Take note of what there is."""
        known = set(every)
        self._every = deque([each for each in self._every if each in known])
        self._every.extend(sorted(known - set(self._every), key=lambda each: each[1]))

    def begin(self, now: float) -> None:
        """Begin after a first look, which has read everything."""
        self._opened = now

    def next(self, now: float, wanted: Collection[str]) -> Key:
        """Return whose turn it is at `now` (seconds)."""
        if now - self._opened >= OPEN_SECONDS or not self._every:
            self._opened = now
            return CLUSTER
        self._number += 1
        shown = [each for each in self._every if each[1] in wanted] if self._number % 3 else []
        turn = (shown or self._every)[0]
        self._every.remove(turn)
        self._every.append(turn)
        return turn


class Watch:
    """Keeps the view of a cluster. Used by one thread at a time."""

    def __init__(self, log: Log, address: str, budget: Budget | None = None) -> None:
        """Read nothing yet. The budget is for an object store."""
        self._log = log
        self._budget = budget or Budget(log.environment.monotonic)
        self.view = ClusterView(address)
        self._ends: dict[str, deque[tuple[float, int]]] = {}
        self._lags: dict[str, deque[tuple[int, int]]] = {}
        self._turns = Turns()
        self._journals: tuple[Document, ...] = ()
        self._failures_tolerated = 0

    def look(self, wanted: Collection[str] = ()) -> ClusterView:
        """Return the view after a look. `wanted` are the topics and groups that somebody has open.

        What cannot be read is a `problem` in the view, so this raises no `LogError`.
        """
        log = self._log
        turn: Key | None = None
        if log.is_remote and self.view.at_ms:
            if self._budget.left() < 1:
                return self.view
            turn = self._turns.next(log.environment.monotonic(), wanted)
        try:
            if turn is None or turn == CLUSTER:
                self._open()
        except LogError as error:
            self.view = msgspec.structs.replace(self.view, problem=error.message)
            return self.view
        names = sorted(log.known_topics)
        topics = {name: self._topic(name, read=turn in {None, (Scope.TOPIC, name)}) for name in names}
        ids = {
            each.topic.topic_id: (name, each.topic.partitions)
            for name, each in topics.items()
            if each is not None and each.topic is not None
        }
        groups = {
            name: self._group(name, ids, read=turn in {None, (Scope.GROUP, name)}) for name in sorted(log.known_groups)
        }
        self.view = ClusterView(
            address=self.view.address,
            at_ms=log.environment.now_ms(),
            version=log.cluster.number,
            cluster_id=log.cluster_id,
            nodes=tuple(self._nodes(topics.values())),
            journals=self._journals,
            failures_tolerated=self._failures_tolerated,
            broken=log.broken_nodes,
            topics={name: each for name, each in topics.items() if each is not None},
            groups={name: each for name, each in groups.items() if each is not None},
        )
        if turn is None:
            self._turns.begin(log.environment.monotonic())
            self._budget.clear()
        self._turns.know([(Scope.TOPIC, name) for name in topics] + [(Scope.GROUP, name) for name in groups])
        return self.view

    def _open(self) -> None:
        """Read the cluster's journal, and find out which nodes answer. Raises `LogError`."""
        log = self._log
        log.open(create=False)
        if log.is_remote:
            log.topics(polls=True)
        if log.journals.nodes is not None:
            self._journals = tuple(documents.journal_nodes(log))
            missing = [each["node"] for each in self._journals if each["missing"] is not None]
            self._failures_tolerated = log.journals.failures_tolerated(missing)

    def _topic(self, name: str, *, read: bool) -> TopicView | None:
        before = self.view.topics.get(name)
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
        figures = figures_of(handle.state, self._log.broken_nodes)
        return TopicView(
            name=name,
            at_ms=now,
            topic=handle.state,
            version=handle.version,
            figures=figures,
            rate=self._rate(handle, figures.ends),
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
        self, name: str, topics: Mapping[str, tuple[str, tuple[Partition, ...]]], *, read: bool
    ) -> GroupView | None:
        before = self.view.groups.get(name)
        now = self._log.environment.now_ms()
        try:
            handle = self._log.group_handle(self._log.known_groups[name])
            state = handle.refresh(polls=True) if read or before is None else handle.state
        except LogError as error:
            if before is not None:
                return msgspec.structs.replace(before, problem=error.message)
            return GroupView(name, now, None, "", 0, (), (), problem=error.message)
        if state.state is GroupState.DEAD:
            self._lags.pop(name, None)  # one of its name begins its own
            return None
        behind = tuple(lags_in(state, topics))
        points = self._lags.setdefault(name, deque(maxlen=HISTORY_POINTS))
        if not points or points[-1][0] <= now - HISTORY_SECONDS * 1000 / HISTORY_POINTS:
            points.append((now, sum(each.lag for each in behind)))
        at_ms = now if read or before is None else before.at_ms
        return GroupView(name, at_ms, state, handle.address, handle.version, behind, tuple(points))

    def _nodes(self, topics: Iterable[TopicView | None]) -> Iterable[Document]:
        has: dict[str, OnNode] = {}
        for topic in topics:
            for holder, found in topic.figures.nodes.items() if topic is not None else ():
                has[holder] = has.get(holder, OnNode()) + found
        for name in sorted(self._log.nodes, key=by_number):
            node = self._log.nodes[name]
            more = {"has": has.get(name, OnNode()), "free": documents.free_bytes(self._log, node)}
            yield documents.node(self._log, node) | more
