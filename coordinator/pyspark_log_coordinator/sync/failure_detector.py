"""The observer: what one process sees of a topic's replicas, and the entries that it proposes for it.

No process watches all the time. Who waits looks: a commit that is refused, or whose rows are not committed, a follower,
maintenance. A node that does not answer is suspected; if the suspicion has stood for `broker.session.timeout.ms` on
this process's own monotonic clock, leaders are elected in its place, and where it lacks rows it leaves the ISRs. A
suspected node that answers again, with the files that count, is suspected no more: the observer says so in the journal.
One that answers, and has lost files, is told of at once (`bad_copies`). One that answers and falls behind leaves the
ISRs after the topic's `replica.lag.time.max.ms`, together with others that do (`isr.Publication`). Whatever this
process gets wrong costs nothing that was acknowledged with acks=all: the journal decides, by holders and LEOs.
"""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.replication import election, isr, suspicion
from pyspark_log_coordinator.replication.election import Elected, ElectLeaders, LeaderElected
from pyspark_log_coordinator.replication.isr import FollowerId, FollowerLag, Publication, ShrinkIsr
from pyspark_log_coordinator.replication.row_loss import RowsLost
from pyspark_log_coordinator.replication.suspicion import CancelSuspicion, ObservedSuspicion, Suspect
from pyspark_log_coordinator.sync import damage_reports
from pyspark_log_coordinator.sync.replica_probe import has_required_files, live
from pyspark_log_storage.fan_out import is_node_failure

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.replication.suspicion import Suspicion

LOOK_SECONDS = 2.0
"""How often one looks whom the matter does not hold up."""
SESSION_TIMEOUT_MS = 9_000
"""Kafka's default of broker.session.timeout.ms."""


class FailureDetector:
    """Watches the replicas of one topic for one process."""

    def __init__(self) -> None:
        self.session_timeout_ms = SESSION_TIMEOUT_MS
        self.gone: tuple[Suspicion, ...] = ()
        """The suspicions that had stood for the session time-out when it looked last."""
        self.next_lag_ms: int | None = None
        """In how many ms from its last look the next follower will have been behind for too long; None: none is."""
        self._standing: dict[NodeId, ObservedSuspicion] = {}
        self._lags: dict[FollowerId, FollowerLag] = {}
        self._publication = Publication()
        self._looked: float | None = None

    @property
    def has_unpublished(self) -> bool:
        """Whether some have fallen behind and the journal is not told yet: they are to be looked at soon."""
        return bool(self._publication.waiting)

    def look(self, handle: TopicHandle) -> None:
        """Look at the nodes and at the topic's newest state, and propose what follows from both.

        Raises what reading the journals raises, `UnknownTopic`.
        """
        self._looked = handle.log.environment.monotonic()
        handle.log.cluster.refresh()
        handle.log.probe_nodes()
        self.consider(handle)

    def look_now_and_then(self, handle: TopicHandle) -> None:
        """Look, unless it has looked lately."""
        interval = min(LOOK_SECONDS, self.session_timeout_ms / 2000)
        if self._looked is None or handle.log.environment.monotonic() - self._looked >= interval:
            self.look(handle)

    def consider(self, handle: TopicHandle) -> None:
        """Do the same by the last probe of the nodes. A process that watches many topics probes them once."""
        log = handle.log
        unreachable = {node for node, error in log.missing_nodes.items() if is_node_failure(error)}
        state = handle.refresh()
        complete: dict[NodeId, bool] = {}
        for node in sorted(_in_service(state)):
            complete[node] = node not in unreachable and has_required_files(handle, node)
            if node not in unreachable and not complete[node]:
                damage_reports.report_lost(handle, node)
                complete[node] = has_required_files(handle, node)  # of those that it still counts as a holder of
            if not complete[node]:
                handle.submit(Suspect(node, state.incarnations[node]))
        for node, number in sorted(state.suspects.items()):
            if not _is_expected_node(handle, node):
                continue
            if complete[node] if node in complete else has_required_files(handle, node):
                handle.submit(CancelSuspicion(node, handle.journal.state.incarnations[node], number))
        state = handle.journal.state
        now = int(log.environment.monotonic() * 1000)
        self._standing = suspicion.observe(self._standing, state, now)
        self._lags = isr.observe_all(self._lags, state, now)
        gone = self.gone = suspicion.confirmed(self._standing, now, self.session_timeout_ms)
        if any(_is_headless(state, number, gone) for number in range(len(state.partitions))):
            elect_leaders(handle, ElectLeaders(live(handle), gone))
            state = handle.journal.state
        lagging = isr.lagging(self._lags, state, now)
        self.next_lag_ms = isr.next_due_ms(self._lags, state, now)
        self._publication = self._publication.with_found(lagging, now)
        if (gone and isr.decide(state, ShrinkIsr((), gone))) or self._publication.is_due(now):
            handle.submit(ShrinkIsr(lagging, gone))
            self._publication = Publication(published_ms=now)


_logger = logging.getLogger("pyspark_log")

_observers: weakref.WeakKeyDictionary[TopicHandle, FailureDetector] = weakref.WeakKeyDictionary()


def failure_detector_of(handle: TopicHandle, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> FailureDetector:
    """Return what watches a topic in this process, with this time-out from now on."""
    observer = _observers.get(handle)
    if observer is None:
        observer = _observers[handle] = FailureDetector()
    observer.session_timeout_ms = session_timeout_ms
    return observer


def elect_leaders(handle: TopicHandle, command: ElectLeaders) -> list[Elected]:
    """Elect leaders; return what came of it. Rows that are lost by it are told to the process's log too.

    For an election that may be unclean it is looked for what the replicas really have.
    """
    if election.is_unclean(handle.journal.state, command):
        command = msgspec.structs.replace(command, set_back=damage_reports.set_back(handle))
    events: list[Elected] = handle.submit(command).events
    leaders = {each.partition: each.leader for each in events if isinstance(each, LeaderElected)}
    for each in events:
        if isinstance(each, RowsLost):
            message = "topic %r, partition %d: node %r leads now and lacks rows: offsets %d to %d are lost"
            _logger.warning(message, handle.name, each.partition, leaders[each.partition], each.start, each.end - 1)
    return events


def _in_service(state: Topic) -> set[NodeId]:
    """Return the nodes that somebody counts on: they lead, or are in an ISR."""
    counted = {each.leader for each in state.partitions if each.leader is not None}
    counted.update(node for each in state.partitions for node in each.isr)
    return counted - set(state.fenced)


def _is_headless(state: Topic, number: int, gone: Collection[Suspicion]) -> bool:
    leader = state.partitions[number].leader
    return leader is None or leader in state.fenced or any(each.node == leader for each in gone)


def _is_expected_node(handle: TopicHandle, node: NodeId) -> bool:
    """Return whether a node answered the last probe as the incarnation that the topic knows. Fenced nodes never do."""
    member = handle.log.cluster.state.nodes.get(node)
    return (
        member is not None
        and not member.fenced
        and member.incarnation == handle.journal.state.incarnations.get(node)
        and node not in handle.log.missing_nodes
    )
