"""Leaderless: what an operator finds out before he gives up the rows that only lost replicas had.

A partition that nobody leads waits for a member of its ISR. Where none comes back another replica may lead, at the
price of what it lacks (`ElectLeaders` with `unclean`). That a member is gone is found out as always: it is suspected,
and the suspicion stands for the session time-out on this process's clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator import election
from pyspark_log_coordinator.observer import observer_of
from pyspark_log_coordinator.row_loss import RowsLost

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_log_coordinator.election import ElectLeaders
    from pyspark_log_coordinator.log import TopicHandle
    from pyspark_log_coordinator.suspicion import Suspicion
    from pyspark_log_coordinator.topic_state import Topic

LOOK_SECONDS = 0.5
"""How often one looks while a suspicion stands."""


def partitions(topic: Topic) -> tuple[int, ...]:
    """Return the partitions that nobody leads."""
    return tuple(number for number, each in enumerate(topic.partitions) if each.leader is None)


def find_gone(handle: TopicHandle, session_timeout_ms: int) -> tuple[Suspicion, ...]:
    """Return which nodes are gone; waits for the time-out where one is away.

    Leaders are elected where that can be clean. Raises what reading the journals raises.
    """
    observer = observer_of(handle, session_timeout_ms)
    clock = handle.log.environment
    end = clock.monotonic() + session_timeout_ms / 1000
    observer.look(handle)
    while clock.monotonic() <= end and set(handle.journal.state.suspects) - {each.node for each in observer.gone}:
        clock.sleep(LOOK_SECONDS)
        observer.look(handle)
    return observer.gone


def would_lose(topic: Topic, command: ElectLeaders) -> dict[int, int]:
    """Return how many rows of each partition the election would cut, of those that lose any."""
    return lost(election.decide(topic, command))


def lost(events: Iterable[object]) -> dict[int, int]:
    """Return how many rows of each partition were cut, of those that lost any."""
    return {each.partition: each.end - each.start for each in events if isinstance(each, RowsLost)}
