"""Inline maintenance: writers do a little with each batch, so that a topic stays cheap without a daemon.

    plan_inline, roll_inline    the tasks of a batch roll or merge segments, planned on the driver
    roll_past_the_cap           the commit rolls before it appends to a topic that is past its hard cap
    run_inline                  after a batch the commit cleans up, or describes the topic

Except past the hard cap, an error is logged and the work is left for later: it cannot fail a batch.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from pyspark_log_coordinator.maintenance import descriptions, isr_copies, roll_task
from pyspark_log_coordinator.maintenance.descriptions import DESCRIBE_SECONDS
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.segments.swap import MaintainSegments, SwapSegments
from pyspark_log_storage import logs
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.maintenance.roll_input import RollTask
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_storage.stores.store import Store

CLEAN_UP_EVERY_ENTRIES = 64
"""Journal entries between two cleanups of the topic."""
CLUSTER_CLEAN_UP_EVERY_ENTRIES = 64 * CLEAN_UP_EVERY_ENTRIES
"""Journal entries between two cleanups of what belongs to no topic."""
CLUSTER_CLEAN_UP_OBJECTS_MAX = 1_000
"""Objects of deleted topics that one cleanup deletes, which bounds how long a batch waits."""


def plan_inline(handle: TopicHandle) -> tuple[RollTask, ...]:
    """Return the rolls and merges for the tasks of the next batch: one each, the most urgent first."""
    return tuple(roll_task.roll_task_of(handle, job) for job in _due(handle))


def roll_inline(
    store_at: Callable[[str], Store], work: RollTask, environment: Environment, failures: logs.Failures | None = None
) -> tuple[SwapSegments, ...]:
    """Roll or merge; return the swap, or nothing after an error. `store_at` opens a node's store by its address.

    `failures` knows which errors were logged before.
    """
    failures = failures or logs.Failures()
    topic, partition = work.topic, work.job.partition
    what = "roll", topic, partition
    try:
        swap = roll_task.run_roll(store_at, work, environment)
    except LogError as error:
        message = "maintenance of topic %(topic)r, partition %(partition)d was left for later: %(error)s"
        failures.note(what, error, message, topic=topic, partition=partition)
        return ()
    failures.end(
        what, "maintenance of topic %(topic)r, partition %(partition)d goes on", topic=topic, partition=partition
    )
    return (swap,)


def roll_one_inline(handle: TopicHandle) -> tuple[SwapSegments, ...]:
    """Do the most urgent roll of a topic that no task could know beforehand."""
    for work in plan_inline(handle)[:1]:
        return roll_inline(handle.log.store_at, work, handle.log.environment, handle.log.failures)
    return ()


def swap_in(handle: TopicHandle, swaps: tuple[SwapSegments, ...]) -> None:
    """Swap in what was rolled for a next batch that does not come."""
    try:
        handle.submit(MaintainSegments(isr_copies.with_copies(handle, swaps)))
    except LogError as error:
        message = "maintenance of topic %(topic)r was left for later: %(error)s"
        handle.log.failures.note(("swap", handle.topic_id), error, message, topic=handle.name)


def roll_past_the_cap(handle: TopicHandle) -> None:
    """Roll until no partition is past the hard cap of unrolled chunks.

    Damaged old rows do not block new ones: a partition that has some may exceed the cap. So may one whose ISR has a
    member that fails: the batch takes it out of the ISR. Raises the errors of writing, and the retriable errors of
    reading.
    """
    while past := roll_plan.past_the_cap(handle.journal.state):
        swaps = []
        # What is due in partitions below the cap fails no write, and may never succeed.
        for job in (job for job in _due(handle) if job.partition in past):
            work = roll_task.roll_task_of(handle, job)
            topic, partition, failures = work.topic, work.job.partition, handle.log.failures
            what = "cap", handle.topic_id, partition
            try:
                swaps.append(roll_task.run_roll(handle.log.store_at, work, handle.log.environment))
            except (CorruptObject, ObjectMissing) as error:
                failures.note(
                    what,
                    error,
                    "topic %(topic)r, partition %(partition)d is past its cap of unrolled chunks and cannot be rolled, "
                    "so it grows; find the damage with pyspark-log verify and repair it: %(error)s",
                    topic=topic,
                    partition=partition,
                )
            else:
                message = "topic %(topic)r, partition %(partition)d can be rolled again"
                failures.end(what, message, topic=topic, partition=partition)
        # Chunks above the HW cannot be rolled: then there is no work.
        if not swaps or not handle.submit(MaintainSegments(isr_copies.with_copies(handle, swaps))).events:
            return


def _due(handle: TopicHandle) -> list[roll_plan.RollJob]:
    known = _due_times.setdefault(handle, roll_plan.DueTimes())
    away = handle.log.missing_nodes
    return roll_plan.plan(handle.journal.state, handle.now_ms(), known=known, away=away)


_due_times: weakref.WeakKeyDictionary[TopicHandle, roll_plan.DueTimes] = weakref.WeakKeyDictionary()


def run_inline(handle: TopicHandle, first: int) -> None:
    """Clean up at every 64th entry of the journal.

    A cleanup describes the topic; without one that is done after a minute. `first` is the number of the batch's entry:
    others may follow, with which replicas caught up.
    """
    if has_multiple(CLEAN_UP_EVERY_ENTRIES, first, handle.journal.number):
        clean_up(handle, first)
    elif handle.log.environment.monotonic() - handle.described_at >= DESCRIBE_SECONDS:
        _describe(handle)


def _describe(handle: TopicHandle) -> None:
    what, topic = ("description", handle.topic_id), handle.name
    try:
        descriptions.write_on_nodes(handle)
    except LogError as error:
        message = "topic %(topic)r was not described, which is left for later: %(error)s"
        handle.log.failures.note(what, error, message, topic=topic)
    else:
        handle.log.failures.end(what, "topic %(topic)r is described again", topic=topic)


def has_multiple(of: int, first: int, last: int) -> bool:
    """Return whether there is a multiple of a number from `first` to `last`."""
    return last // of > (first - 1) // of


def clean_up(handle: TopicHandle, first: int) -> None:
    """Clean up the topic, and what belongs to no topic if that is due in the entries from `first` on."""
    from pyspark_log_coordinator.maintenance import cluster_cleanup, topic_cleanup

    log, failures, left = handle.log, handle.log.failures, set()

    def failed(node: NodeId, error: LogError) -> None:
        left.add(node)
        message = "cleanup of topic %(topic)r on node %(node)r was left for later: %(error)s"
        failures.note(("cleanup", handle.topic_id, node), error, message, topic=handle.name, node=node)

    is_clusters_turn = has_multiple(CLUSTER_CLEAN_UP_EVERY_ENTRIES, first, handle.journal.number)
    try:
        topic_cleanup.clean_up_topic(handle, thorough=False, failed=failed)
        if is_clusters_turn:
            cluster_cleanup.clean_up_cluster(log, objects_max=CLUSTER_CLEAN_UP_OBJECTS_MAX)
    except LogError as error:
        message = "cleanup of topic %(topic)r was left for later: %(error)s"
        failures.note(("cleanup", handle.topic_id), error, message, topic=handle.name)
        return
    failures.end(("cleanup", handle.topic_id), "cleanup of topic %(topic)r goes on", topic=handle.name)
    for node in handle.state.incarnations.keys() - left - log.missing_nodes.keys():
        message = "cleanup of topic %(topic)r on node %(node)r goes on"
        failures.end(("cleanup", handle.topic_id, node), message, topic=handle.name, node=node)
