"""The failure detector: one process's observations of a topic's replicas, and the commands that follow from them.

A commit that waits, a follower, maintenance and the controller look from time to time. What they observe, and what
follows:

    unreachable        the node is suspected. If the suspicion stands for `broker.session.timeout.ms` on this process's
                       monotonic clock, its partitions get other leaders, and it leaves the ISRs in which it lacks rows
    newest file gone   the same: its disk was set back, or emptied
    not allowed        nothing: others may use the node
    reachable again    with its required files: the suspicion is cancelled
    behind             the node leaves the ISRs after the topic's `replica.lag.time.max.ms`

A wrong observation loses no row acknowledged with acks=all, because the journal decides by holders and LEOs.
"""

from __future__ import annotations

import weakref
from collections import Counter
from typing import TYPE_CHECKING

from pyspark_log_coordinator.model.settings import BROKER_SESSION_TIMEOUT_MS
from pyspark_log_coordinator.replication import isr_shrink, suspicion
from pyspark_log_coordinator.replication.election import Elected, ElectLeaders, LeaderElected
from pyspark_log_coordinator.replication.isr_shrink import FollowerId, FollowerLag, IsrShrunk, ShrinkIsr
from pyspark_log_coordinator.replication.row_loss import RowsLost
from pyspark_log_coordinator.replication.suspicion import CancelSuspicion, Suspect
from pyspark_log_coordinator.sync.replica_file import is_complete, live
from pyspark_log_storage import logs

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.replication.suspicion import Suspicions

LOOK_SECONDS = 2.0
"""The interval of `look_now_and_then`."""


class FailureDetector:
    """Observes the replicas of one topic for one process."""

    def __init__(self) -> None:
        self.session_timeout_ms = BROKER_SESSION_TIMEOUT_MS.default
        self.unreachable: Suspicions = {}
        """The suspicions that had stood for the session timeout at the last look."""
        self.next_lag_ms: int | None = None
        """Milliseconds from the last look until the next follower has been behind for too long; None if none is."""
        self._standing: dict[tuple[NodeId, int], int] = {}
        self._lags: dict[FollowerId, FollowerLag] = {}
        self._looked: float | None = None

    def look(self, handle: TopicHandle) -> None:
        """Probe the nodes, refresh the topic, and submit what follows from both.

        Raises what reading the journals raises, `UnknownTopic`.
        """
        self._looked = handle.log.environment.monotonic()
        handle.log.cluster.refresh()
        handle.log.probe_nodes()
        self.consider(handle)

    def look_now_and_then(self, handle: TopicHandle) -> None:
        """Look, unless the last look was less than 2 seconds ago."""
        interval = min(LOOK_SECONDS, self.session_timeout_ms / 2000)
        if self._looked is None or handle.log.environment.monotonic() - self._looked >= interval:
            self.look(handle)

    def consider(self, handle: TopicHandle) -> list[LeaderElected]:
        """Do the same as `look` by the last probe of the nodes, which a process does once for many topics.

        Return the elections.
        """
        log = handle.log
        state = handle.refresh(polls=True)
        complete: dict[NodeId, bool | None] = {}
        for node in sorted(_leaders_and_isr(state)):
            complete[node] = is_complete(handle, node)
            if complete[node] is False and node not in log.missing_nodes:
                handle.refresh()
                complete[node] = is_complete(handle, node)  # the file may have been rolled and deleted since
            if complete[node] is False:
                handle.submit(Suspect(node, state.incarnations[node]))
        for node, number in sorted(state.suspects.items()):
            if not _is_expected_node(handle, node):
                continue
            if complete[node] if node in complete else is_complete(handle, node):
                handle.submit(CancelSuspicion(node, handle.journal.state.incarnations[node], number))
        state = handle.journal.state
        now = int(log.environment.monotonic() * 1000)
        self._standing = suspicion.observe(self._standing, state, now)
        self._lags = isr_shrink.observe_all(self._lags, state, now)
        unreachable = self.unreachable = suspicion.confirmed(self._standing, now, self.session_timeout_ms)
        elected: list[LeaderElected] = []
        if any(_needs_leader(state, number, unreachable) for number in range(len(state.partitions))):
            events = elect_leaders(handle, ElectLeaders(live(handle), unreachable))
            elected = [each for each in events if isinstance(each, LeaderElected)]
            state = handle.journal.state
        self.next_lag_ms = isr_shrink.next_due_ms(self._lags, state, now)
        shrink = ShrinkIsr(isr_shrink.lagging(self._lags, state, now), unreachable)
        if (shrink.lagging or unreachable) and isr_shrink.decide(state, shrink):
            log_changes(state, handle.submit(shrink).events)
        return elected


_detectors: weakref.WeakKeyDictionary[TopicHandle, FailureDetector] = weakref.WeakKeyDictionary()


def failure_detector_of(
    handle: TopicHandle, session_timeout_ms: int = BROKER_SESSION_TIMEOUT_MS.default
) -> FailureDetector:
    """Return this process's failure detector of a topic, with this timeout from now on."""
    detector = _detectors.get(handle)
    if detector is None:
        detector = _detectors[handle] = FailureDetector()
    detector.session_timeout_ms = session_timeout_ms
    return detector


def elect_leaders(handle: TopicHandle, command: ElectLeaders) -> list[Elected]:
    """Elect leaders; return the events."""
    before = handle.journal.state
    events: list[Elected] = handle.submit(command).events
    log_changes(before, events)
    return events


def log_changes(before: Topic, events: Sequence[object]) -> None:
    """Log the elections of a journal entry, the rows that are lost by them, and the nodes that left ISRs."""
    leaders = {each.partition: each for each in events if isinstance(each, LeaderElected)}
    for each in leaders.values():
        logs.info(
            "topic %(topic)r, partition %(partition)d: node %(node)r leads from epoch %(epoch)d on"
            if each.leader is not None
            else "topic %(topic)r, partition %(partition)d has no leader from epoch %(epoch)d on",
            topic=before.name,
            partition=each.partition,
            epoch=each.leader_epoch,
            node=each.leader,
        )
    for lost in events:
        if isinstance(lost, RowsLost):
            logs.warning(
                "topic %(topic)r, partition %(partition)d: the new leader, node %(node)r, lacks rows: offsets "
                "%(offset)d to %(last)d are lost",
                topic=before.name,
                partition=lost.partition,
                epoch=leaders[lost.partition].leader_epoch,
                node=leaders[lost.partition].leader,
                offset=lost.start,
                last=lost.end - 1,
            )
    for node, partitions in sorted(_left(before, events).items()):
        logs.warning(
            "topic %(topic)r: node %(node)r left the ISR of %(partitions)d of %(all)d partitions",
            topic=before.name,
            node=node,
            partitions=partitions,
            all=len(before.partitions),
        )


def _left(before: Topic, events: Sequence[object]) -> Counter[NodeId]:
    """Return of how many ISRs each node is no longer a member."""
    isrs = {each.partition: each.isr for each in events if isinstance(each, IsrShrunk | LeaderElected)}
    known = len(before.partitions)
    return Counter(
        node for number, isr in isrs.items() if number < known for node in set(before.partitions[number].isr) - set(isr)
    )


def _leaders_and_isr(state: Topic) -> set[NodeId]:
    """Return the nodes that lead a partition or are in its ISR, without fenced ones."""
    found = {each.leader for each in state.partitions if each.leader is not None}
    found.update(node for each in state.partitions for node in each.isr)
    return found - set(state.fenced)


def _needs_leader(state: Topic, number: int, unreachable: Collection[NodeId]) -> bool:
    leader = state.partitions[number].leader
    return leader is None or leader in state.fenced or leader in unreachable


def _is_expected_node(handle: TopicHandle, node: NodeId) -> bool:
    """Return whether a node answered the last probe as the incarnation that the topic knows. Fenced nodes never do."""
    member = handle.log.cluster.state.nodes.get(node)
    return (
        member is not None
        and not member.fenced
        and member.incarnation == handle.journal.state.incarnations.get(node)
        and node not in handle.log.missing_nodes
    )
