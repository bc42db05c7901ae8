"""Upkeep in passing: what keeps a topic cheap is done by those who write to it, a little with each batch.

Tasks roll and merge (`run_inline`), and the commit does what only needs the driver (`clean_up_when_due`). Nothing of
this may fail a write: what goes wrong is logged, and somebody does it later.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_log_coordinator.maintenance import roll_job, roll_run
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.maintenance.roll_job import RollTask
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.segments.swap import SwapSegments
    from pyspark_log_storage.store import Store

CLEAN_UP_EVERY_ENTRIES = 64
"""Journal entries between two rounds of housekeeping."""
CLUSTER_CLEAN_UP_EVERY_ENTRIES = 64 * CLEAN_UP_EVERY_ENTRIES
"""Journal entries between two looks at what no topic that is there needs."""
CLUSTER_CLEAN_UP_OBJECTS_MAX = 1_000
"""How many objects of deleted topics go at a time, so that no batch waits long for it."""

_logger = logging.getLogger("pyspark_log")


def plan_inline(handle: TopicHandle) -> tuple[RollTask, ...]:
    """Return what the tasks of the next batch may do in passing: task n the n-th."""
    state = handle.journal.state
    return tuple(roll_job.roll_task_of(handle, job) for job in roll_plan.plan(state, handle.now_ms()))


def run_inline(store_at: Callable[[str], Store], work: RollTask, nonce: str) -> tuple[SwapSegments, ...]:
    """Do one job; return its swap, nothing where it failed. `store_at` opens a node's store by its address."""
    try:
        return (roll_run.run_roll(store_at, work, nonce),)
    except LogError as error:
        _logger.warning(
            "maintenance of topic %r, partition %d was left for later: %s", work.topic, work.job.partition, error
        )
        return ()


def roll_one_inline(log: Log, handle: TopicHandle) -> tuple[SwapSegments, ...]:
    """Do the most urgent job of a topic that no task could know of beforehand."""
    for work in plan_inline(handle)[:1]:
        return run_inline(log.store_at, work, log.environment.nonce())
    return ()


def roll_past_the_cap(log: Log, handle: TopicHandle) -> None:
    """Roll until no partition is past the hard cap of unrolled chunks.

    Old rows that are damaged do not keep new ones out: where they are in the way, the cap is passed. Raises what
    writing raises, and of reading what may pass.
    """
    from pyspark_log_coordinator.topic.machine import MaintainSegments

    # Chunks above the HW cannot be rolled: then there is no work.
    while roll_plan.must_roll(handle.journal.state) and (works := plan_inline(handle)):
        swaps = tuple(swap for work in works for swap in _roll_unless_damaged(log, work))
        if not swaps:
            return
        handle.submit(MaintainSegments(swaps))


def _roll_unless_damaged(log: Log, work: RollTask) -> tuple[SwapSegments, ...]:
    try:
        return (roll_run.run_roll(log.store_at, work, log.environment.nonce()),)
    except (CorruptObject, ObjectMissing) as error:
        _logger.warning(
            "topic %r, partition %d is past its cap of unrolled chunks and cannot be rolled; mend it (pyspark-log "
            "verify says what is wrong), for it grows: %s",
            work.topic,
            work.job.partition,
            error,
        )
        return ()


def clean_up_when_due(log: Log, handle: TopicHandle) -> None:
    """Do the housekeeping of a topic at every 64th entry of its journal, and that of the cluster now and then."""
    number = handle.journal.number
    if number % CLEAN_UP_EVERY_ENTRIES != 0:
        return
    from pyspark_log_coordinator.maintenance import cluster_cleanup, topic_cleanup

    def told(node: NodeId, error: LogError) -> None:
        _logger.warning("housekeeping of topic %r on node %r was left for later: %s", handle.name, node, error)

    try:
        topic_cleanup.clean_up_topic(handle, thorough=False, failed=told)
        if number % CLUSTER_CLEAN_UP_EVERY_ENTRIES == 0:
            cluster_cleanup.clean_up_cluster(log, objects_max=CLUSTER_CLEAN_UP_OBJECTS_MAX)
    except LogError as error:
        _logger.warning("housekeeping of topic %r was left for later: %s", handle.name, error)
