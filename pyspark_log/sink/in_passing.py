"""Upkeep in passing: what keeps a topic cheap is done by those who write to it, a little with each batch.

Tasks roll and merge (`ride_along`), and the commit does what only needs the driver (`housekeep_when_due`). Nothing of
this may fail a write: what goes wrong is logged, and somebody does it later.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_log_coordinator import maintenance, upkeep
from pyspark_log_coordinator.topic import MaintainSegments
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from pyspark_log_coordinator.log import Log, TopicHandle
    from pyspark_log_coordinator.rolling import SwapSegments
    from pyspark_log_coordinator.upkeep import Work

HOUSEKEEPING_EVERY = 64
"""Journal entries between two rounds of housekeeping."""

_logger = logging.getLogger("pyspark_log")


def planned_work(handle: TopicHandle) -> tuple[Work, ...]:
    """Return what the tasks of the next batch may do in passing: task n the n-th."""
    state = handle.journal.state
    return tuple(upkeep.work_of(handle, job) for job in maintenance.plan(state, handle.now_ms()))


def ride_along(log: Log, work: Work) -> tuple[SwapSegments, ...]:
    """Do one job; return its swap, nothing where it failed."""
    try:
        return (upkeep.carry_out(log.store, work, log.environment.nonce()),)
    except LogError as error:
        _logger.warning(
            "maintenance of topic %r, partition %d was left for later: %s", work.topic, work.job.partition, error
        )
        return ()


def roll_in_passing(log: Log, handle: TopicHandle) -> tuple[SwapSegments, ...]:
    """Do the most urgent job of a topic that no task could know of beforehand."""
    for work in planned_work(handle)[:1]:
        return ride_along(log, work)
    return ()


def roll_past_the_cap(log: Log, handle: TopicHandle) -> None:
    """Roll until no partition is past the hard cap of unrolled chunks. Raises what reading and writing raise."""
    # Chunks above the HW cannot be rolled: then there is no work.
    while maintenance.must_roll(handle.journal.state) and (works := planned_work(handle)):
        swaps = tuple(upkeep.carry_out(log.store, work, log.environment.nonce()) for work in works)
        handle.submit(MaintainSegments(swaps))


def housekeep_when_due(log: Log, handle: TopicHandle) -> None:
    """Do the housekeeping of a topic at every 64th entry of its journal."""
    if handle.journal.number % HOUSEKEEPING_EVERY != 0:
        return
    try:
        upkeep.housekeep(log.store, handle, thorough=False)
    except LogError as error:
        _logger.warning("housekeeping of topic %r was left for later: %s", handle.name, error)
