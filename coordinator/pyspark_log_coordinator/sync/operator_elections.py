"""Elections by an operator: of preferred leaders, and unclean ones.

Before an unclean election it is known which rows will be lost because only lost replicas had them. A leaderless
partition waits for a member of its ISR. If none comes back, another replica may lead, also one whose disk was set
back; the rows that it lacks are lost (`ElectLeaders` with `unclean`). A member counts as unreachable if a suspicion
of it has stood for the session timeout on this process's clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.replication import election, suspicion
from pyspark_log_coordinator.replication.election import ElectLeaders, ElectPreferred, LeaderElected
from pyspark_log_coordinator.replication.row_loss import RowsLost
from pyspark_log_coordinator.sync.failure_detector import elect_leaders, failure_detector_of
from pyspark_log_coordinator.sync.replica_file import live
from pyspark_log_storage.errors import is_node_failure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.replication.suspicion import Suspicions

LOOK_SECONDS = 0.5
"""The interval between looks while a suspicion stands."""


def elect_preferred(handle: TopicHandle) -> tuple[Topic, frozenset[NodeId]]:
    """Elect the preferred leaders that may lead. Return the topic after it, and the nodes that may lead."""
    able = live(handle)
    return handle.submit(ElectPreferred(able)).state, frozenset(each.node for each in able)


def find_unreachable(handle: TopicHandle, session_timeout_ms: int) -> Suspicions:
    """Return the unreachable nodes; wait for the timeout if one is suspected.

    A node that is reached meanwhile is not unreachable, even if it is suspected anew. Elect leaders if that can be
    clean. Raises what reading the journals raises.
    """
    detector = failure_detector_of(handle, session_timeout_ms)
    clock = handle.log.environment
    detector.look(handle)
    deadline = clock.monotonic() + session_timeout_ms / 1000
    is_last = False
    while not is_last and handle.journal.state.suspects.keys() - detector.unreachable.keys():
        clock.sleep(LOOK_SECONDS)
        is_last = clock.monotonic() >= deadline  # before the look: what the first look saw has stood for the timeout
        detector.look(handle)
    return detector.unreachable


def election_of(handle: TopicHandle, unreachable: Suspicions) -> ElectLeaders:
    """Return the unclean election of all leaderless partitions."""
    leaderless = tuple(number for number, each in enumerate(handle.journal.state.partitions) if each.leader is None)
    return ElectLeaders(live(handle), unreachable, leaderless, unclean=True)


def would_lose(topic: Topic, command: ElectLeaders) -> dict[int, range]:
    """Return the offsets of the rows that the election would cut, by partition."""
    return _lost(election.decide(topic, command))


def elect_unclean(handle: TopicHandle, command: ElectLeaders) -> tuple[dict[int, NodeId | None], dict[int, range]]:
    """Carry out an unclean election. Return the new leaders, and the offsets of the lost rows, by partition."""
    events = elect_leaders(handle, command)
    return {each.partition: each.leader for each in events if isinstance(each, LeaderElected)}, _lost(events)


def _lost(events: Iterable[object]) -> dict[int, range]:
    return {each.partition: range(each.start, each.end) for each in events if isinstance(each, RowsLost)}


def why_leaderless(handle: TopicHandle, command: ElectLeaders, number: int) -> str:
    """Return why an unclean election leaves a partition without a leader, and what to do."""
    state = handle.journal.state
    partition = state.partitions[number]
    alive = {each.node for each in command.live}
    unreachable = suspicion.standing(state, command.unreachable) - alive
    awaited = election.awaited(state, partition, alive, unreachable)
    reasons = []
    for node in partition.replicas:
        error = handle.log.missing_nodes.get(node)
        if node in state.fenced:
            reasons.append(f"node {node} is fenced (nodes unfence {node})")
        elif error is not None and not is_node_failure(error):
            reasons.append(f"node {node} cannot be used from here, but may be well: {error.message}")
        elif error is None and node not in alive:
            reasons.append(f"node {node} lacks its newest files, because its disk was set back (nodes renew {node})")
        elif node in awaited:
            reasons.append(f"node {node} is missing and may come back")
        elif node in alive:
            reasons.append(f"node {node} lacks committed rows")
        else:
            reasons.append(f"node {node} is missing")
    why = "; ".join(reasons)
    if awaited:
        fence = "; ".join(f"nodes fence {node}" for node in awaited)
        return f"{why}. Bring it back or try again; to give up the rows that only it has: {fence}"
    return f"{why}. Bring one back, then try again"
