"""Leaderless: what an operator finds out before he gives up the rows that only lost replicas had.

A partition that nobody leads waits for a member of its ISR. Where none comes back another replica may lead, at the
price of what it lacks (`ElectLeaders` with `unclean`), also one whose disk was set back. That a member is gone is found
out as always: it is suspected, and the suspicion stands for the session time-out on this process's clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.replication import election, suspicion
from pyspark_log_coordinator.replication.election import ElectLeaders
from pyspark_log_coordinator.replication.row_loss import RowsLost
from pyspark_log_coordinator.sync import damage_reports
from pyspark_log_coordinator.sync.failure_detector import failure_detector_of
from pyspark_log_coordinator.sync.replica_probe import live
from pyspark_log_storage.fan_out import is_node_failure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.replication.suspicion import Suspicion

LOOK_SECONDS = 0.5
"""How often one looks while a suspicion stands."""


def partitions(topic: Topic) -> tuple[int, ...]:
    """Return the partitions that nobody leads."""
    return tuple(number for number, each in enumerate(topic.partitions) if each.leader is None)


def find_gone(handle: TopicHandle, session_timeout_ms: int) -> tuple[Suspicion, ...]:
    """Return which nodes are gone; waits for the time-out where one is away.

    Leaders are elected where that can be clean. Raises what reading the journals raises.
    """
    observer = failure_detector_of(handle, session_timeout_ms)
    clock = handle.log.environment
    end = clock.monotonic() + session_timeout_ms / 1000
    observer.look(handle)
    while clock.monotonic() <= end and set(handle.journal.state.suspects) - {each.node for each in observer.gone}:
        clock.sleep(LOOK_SECONDS)
        observer.look(handle)
    return observer.gone


def giving_up(handle: TopicHandle, gone: tuple[Suspicion, ...]) -> ElectLeaders:
    """Return the unclean election of all partitions that nobody leads, by what the replicas really have."""
    headless = partitions(handle.journal.state)
    return ElectLeaders(live(handle), gone, headless, unclean=True, set_back=damage_reports.set_back(handle))


def would_lose(topic: Topic, command: ElectLeaders) -> dict[int, RowsLost]:
    """Return which rows of each partition the election would cut, of those that lose any."""
    return lost(election.decide(topic, command))


def lost(events: Iterable[object]) -> dict[int, RowsLost]:
    """Return which rows of each partition were cut, of those that lost any."""
    return {each.partition: each for each in events if isinstance(each, RowsLost)}


def why_nobody(handle: TopicHandle, command: ElectLeaders, number: int) -> str:
    """Say why an unclean election leaves a partition without a leader, and what to do."""
    state = handle.journal.state
    partition = state.partitions[number]
    lives = {each.node for each in command.live}
    gone = {each.node for each in command.gone if suspicion.stands(state, each)} - lives
    found = {each.node for each in command.set_back}
    awaited = election.awaited(state, partition, lives, gone, found)
    reasons = []
    for node in partition.replicas:
        error = handle.log.missing_nodes.get(node)
        if node in state.fenced:
            reasons.append(f"node {node} is fenced (nodes unfence {node})")
        elif error is not None and not is_node_failure(error):
            reasons.append(f"node {node} may be well and cannot be used from here: {error.message}")
        elif node in awaited and node in found:
            reasons.append(f"the disk of node {node} was set back just now, and may yet be restored")
        elif node in awaited:
            reasons.append(f"node {node} is away, and may come back")
        elif node in lives | found:
            reasons.append(f"node {node} is there, and has not all that was committed")
        else:
            reasons.append(f"node {node} is away")
    what = "; ".join(reasons)
    if awaited:
        fence = "; ".join(f"nodes fence {node}" for node in awaited)
        return f"{what}. Bring that one back, or try again; to give up what only it has: {fence}"
    return f"{what}. Bring one back, then try again"
