"""Rolls and merges the segments of a topic until nothing is left to do."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyspark_log_coordinator.maintenance import isr_copies, topic_cleanup
from pyspark_log_coordinator.maintenance.roll_task import roll_task_of, run_roll
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.segments.roll_plan import RollJob
from pyspark_log_coordinator.segments.swap import MaintainSegments, SegmentsSwapped, SwapSegments
from pyspark_log_storage.errors import CorruptObject, LogError, NewerFormat, OutcomeUnknown, StoreError, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId

SWAPS_MAX = 64
SWAPPED_BYTES_MAX = 8 * 1024 * 1024
"""Small segments are swapped in together: an entry for each would take as long as its two files."""


def roll_and_merge(
    handle: TopicHandle,
    progress: Callable[[int], object] = lambda _: None,
    failed: Callable[[RollJob, LogError], object] | None = None,
    between: Callable[[], object] = lambda: None,
    *,
    at_once: bool = False,
    leader: NodeId | None = None,
) -> dict[str, int]:
    """Roll and merge until nothing is left to do; return the number of new segments and their bytes.

    Segments grow up to `segment.bytes`. `progress` gets the number of bytes read since its last call. `failed` gets
    each job that cannot be done; its partition stays as it is, and the others continue. Without it the error is raised.
    `between` is called whenever a job of each partition is done; it may delete replaced files. With `at_once` all rows
    that are committed now become Parquet, whatever their age, if the topic's format is that, and are cleaned if it is
    compacted. With `leader` only partitions are worked on that this node leads.
    """
    log = handle.log
    ends = [each.high_watermark for each in handle.refresh().partitions] if at_once else []

    def due() -> list[RollJob]:
        state = handle.refresh()
        jobs = roll_plan.plan(state, handle.now_ms(), state.config.segment_bytes, ends, away=log.missing_nodes)
        return [job for job in jobs if leader is None or state.partitions[job.partition].leader == leader]

    made = size = 0
    stuck: set[int] = set()
    done: list[tuple[RollJob, SwapSegments]] = []

    def swap_in() -> None:
        nonlocal made, size
        if not done:
            return
        handle.refresh()
        swaps = isr_copies.with_copies(handle, [swap for _, swap in done])
        events = handle.submit(MaintainSegments(swaps)).events
        swapped = {each.segment.name for each in events if isinstance(each, SegmentsSwapped)}
        refused = [job for job, swap in done if swap.segments[0].name not in swapped]
        taken = [job for job, swap in done if swap.segments[0].name in swapped]
        segments = sum(len(swap.segments) for _, swap in done if swap.segments[0].name in swapped)
        done.clear()
        if refused:
            planned = due()
            stuck.update(job.partition for job in refused if job.is_in(planned))  # a later run may succeed
        made += segments
        size += sum(job.bytes for job in taken)
        progress(sum(job.bytes for job in taken))

    while jobs := [job for job in due() if job.partition not in stuck]:
        # Plan all tasks before the first swap: the state after it no longer has what other processes changed meanwhile.
        for task in [roll_task_of(handle, job) for job in jobs]:
            try:
                done.append((task.job, run_roll(log.store_at, task, log.environment)))
            except LogError as error:
                if isinstance(error, StoreError) and not task.job.is_in(due()):
                    continue  # another process did it, and the files are deleted
                if failed is None:
                    swap_in()
                    raise
                failed(task.job, error)
                stuck.add(task.job.partition)
            if len(done) == SWAPS_MAX or sum(job.bytes for job, _ in done) >= SWAPPED_BYTES_MAX:
                swap_in()
        swap_in()
        between()
    return {"segments": made, "bytes": size}


def jobs_due(handle: TopicHandle, *, at_once: bool = False) -> list[RollJob]:
    """Return the rolls and merges that are due; with `at_once` also those of rows that could wait for more."""
    state = handle.state
    ends = [each.high_watermark for each in state.partitions] if at_once else []
    return roll_plan.plan(state, handle.now_ms(), state.config.segment_bytes, ends)


def roll_led_by(
    log: Log,
    node: NodeId,
    failed: Callable[[TopicHandle, RollJob, LogError], object],
    damaged: Callable[[str, LogError], object] | None = None,
) -> None:
    """Do what is due in those partitions that a node leads, of topics with segment.format=parquet or compaction.

    `damaged` gets the name of each topic whose journal is damaged, or may not have taken an entry; the others continue.
    Without it the error is raised. Raises `StoreError`.
    """
    for handle in log.topics_on(node, failed=damaged):
        if handle.config.segment_format == "parquet" or handle.config.is_compacted:
            try:
                roll_and_merge(handle, failed=partial(failed, handle), leader=node)
                topic_cleanup.delete_pending(handle, handle.now_ms())
            except UnknownTopic:
                continue  # deleted meanwhile
            except (CorruptObject, NewerFormat, OutcomeUnknown) as error:
                if damaged is None:
                    raise
                damaged(handle.name, error)
