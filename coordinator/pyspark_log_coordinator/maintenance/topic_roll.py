"""Rolls, merges and converts the segments of a topic until nothing is left to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.maintenance import topic_cleanup
from pyspark_log_coordinator.maintenance.roll_job import roll_task_of
from pyspark_log_coordinator.maintenance.roll_run import run_roll
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.segments.roll_plan import RollJob
from pyspark_log_coordinator.topic.machine import MaintainSegments
from pyspark_log_storage.errors import LogError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.log import TopicHandle


def roll_and_merge(
    handle: TopicHandle,
    progress: Callable[[int], object] = bool,
    failed: Callable[[RollJob, LogError], object] | None = None,
) -> dict[str, int]:
    """Roll, merge and convert until nothing is left to do; return the number of new segments and their bytes.

    Segments grow up to `segment.bytes`. Replaced files are deleted when their delay is over, also while there is more
    to do, so that a long run needs little room; `deleted` is their number. `progress` gets the number of bytes read
    since its last call. `failed` gets each job that cannot be done; its partition stays as it is, and the others go
    on. Without it the error is raised.
    """
    log = handle.log
    made = size = deleted = 0
    stuck: set[int] = set()
    while jobs := [job for job in _due(handle) if job.partition not in stuck]:
        # Plan all tasks before the first swap: the state after it no longer has what other processes changed meanwhile.
        for task in [roll_task_of(handle, job) for job in jobs]:
            try:
                swap = run_roll(log.store_at, task, log.environment)
            except LogError as error:
                if isinstance(error, StoreError) and task.job not in _due(handle):
                    continue  # another process did it, and the files are deleted
                if failed is None:
                    raise
                failed(task.job, error)
                stuck.add(task.job.partition)
                continue
            if not handle.submit(MaintainSegments((swap,))).events and task.job in _due(handle):
                stuck.add(task.job.partition)  # it would be refused again now; a later run may succeed
                continue
            made += 1
            size += task.job.bytes
            progress(task.job.bytes)
        deleted += len(topic_cleanup.delete_pending(handle, handle.now_ms()))
    return {"segments": made, "bytes": size, "deleted": deleted}


def _due(handle: TopicHandle) -> list[RollJob]:
    state = handle.refresh()
    return roll_plan.plan(state, handle.now_ms(), state.config.segment_bytes)
