"""Rolls, merges and converts the segments of a topic until nothing is left to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    between: Callable[[], object] = bool,
) -> dict[str, int]:
    """Roll, merge and convert until nothing is left to do; return the number of new segments and their bytes.

    Segments grow up to `segment.bytes`. `progress` gets the number of bytes read since its last call. `failed` gets
    each job that cannot be done; its partition stays as it is, and the others continue. Without it the error is raised.
    `between` is called whenever a job of each partition is done; it may delete replaced files.
    """
    log = handle.log
    made = size = 0
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
        between()
    return {"segments": made, "bytes": size}


def _due(handle: TopicHandle) -> list[RollJob]:
    state = handle.refresh()
    return roll_plan.plan(state, handle.now_ms(), state.config.segment_bytes)
