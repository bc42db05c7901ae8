"""Upkeep of a topic: carrying out what maintenance, retention and the removal of orphans decide.

Any process may do it, many at once: each result is one journal entry, and what another did first has gone stale.
Files are removed only after the entry that gives them up, on every node that is there. A node that fails is left out,
and the others go on.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.log.reachable_nodes import AvailableNodes
from pyspark_log_coordinator.maintenance import checkpoint_files, topic_description
from pyspark_log_coordinator.maintenance.roll_job import roll_task_of
from pyspark_log_coordinator.maintenance.roll_run import run_roll
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.segments.orphans import ConfirmDeletions, OrphanFloor, RaiseOrphanFloor
from pyspark_log_coordinator.segments.retention import ApplyRetention, LogStartMoved
from pyspark_log_coordinator.segments.roll_plan import RollJob
from pyspark_log_coordinator.topic.machine import MaintainSegments
from pyspark_log_storage import layout
from pyspark_log_storage.errors import LogError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_storage.store import Store


class Expired(msgspec.Struct, frozen=True):
    """Rows `[log_start_before, log_start)` of a partition, which retention has dropped."""

    partition: int
    log_start_before: int
    log_start: int

    @property
    def rows(self) -> int:
        """How many rows these are."""
        return self.log_start - self.log_start_before


class Housekept(msgspec.Struct, frozen=True):
    """What housekeeping did."""

    removed: int
    """How many objects were removed."""
    expired: tuple[Expired, ...]
    waiting: int
    """How many files the log does not need any more; they stay for `file.delete.delay.ms`."""


def roll_and_merge(
    handle: TopicHandle,
    progress: Callable[[int], object] = bool,
    failed: Callable[[RollJob, LogError], object] | None = None,
) -> dict[str, int]:
    """Roll and merge until nothing is left to do; return how many segments were made, and of how many bytes.

    Segments grow up to `segment.bytes`. `progress` is told how many bytes were read since it was told last. `failed` is
    told of a job that cannot be done: its partition stays as it is, and the others go on. Without it the error is
    raised.
    """
    made = size = 0
    stuck: set[int] = set()
    while jobs := [job for job in _due(handle) if job.partition not in stuck]:
        # All before the first is swapped in: what others did meanwhile is no longer in the state that follows.
        for work in [roll_task_of(handle, job) for job in jobs]:
            try:
                swap = run_roll(handle.log.store_at, work, handle.log.environment.nonce())
            except LogError as error:
                if isinstance(error, StoreError) and work.job not in _due(handle):
                    continue  # another did it, and the files are gone
                if failed is None:
                    raise
                failed(work.job, error)
                stuck.add(work.job.partition)
                continue
            if not handle.submit(MaintainSegments((swap,))).events and work.job in _due(handle):
                # Whatever keeps it from counting would do so again: a later run may have more luck.
                stuck.add(work.job.partition)
                continue
            made += 1
            size += work.job.bytes
            progress(work.job.bytes)
    return {"segments": made, "bytes": size}


def _due(handle: TopicHandle) -> list[RollJob]:
    state = handle.refresh()
    return roll_plan.plan(state, handle.now_ms(), state.config.segment_bytes)


def clean_up_topic(
    handle: TopicHandle,
    *,
    thorough: bool = True,
    failed: Callable[[NodeId, LogError], object] | None = None,
) -> Housekept:
    """Do what keeps a topic's cost flat, as far as it is due; return what was done.

    That is retention, removal of replaced and expired files and of orphans, trimming of the journal, and the
    checkpoints. Orphans are looked for among all files; `thorough=False` does that only when the floor has risen, so
    that it costs the same whatever the number of files. `failed` is told of a node on which something could not be
    done, after all was done on the others. Without it the error is raised.
    """
    nodes = AvailableNodes(handle.log)
    now = handle.now_ms()
    # Before the first entry: on a full disk this makes room for it.
    removed = delete_pending(handle, now, nodes)
    before = handle.journal.state
    retained = handle.submit(ApplyRetention())
    expired = expired_by(before, [event for event in retained.events if isinstance(event, LogStartMoved)])
    removed += delete_pending(handle, now, nodes)
    raised = handle.submit(RaiseOrphanFloor(handle.journal.number))
    risen = any(isinstance(event, OrphanFloor) for event in raised.events)
    count = len(removed)
    if thorough or risen:
        count += _remove_orphans(handle, nodes)
    write_checkpoints(handle, nodes)
    count += handle.journal.trim()
    handle.journal.mend()
    for name, error in nodes.failures.items():
        if failed is None:
            raise error
        failed(name, error)
    state = handle.journal.state
    return Housekept(count, expired, sum(len(_objects(handle, each.key)) for each in state.released))


def expired_by(state: Topic, moved: Sequence[LogStartMoved]) -> tuple[Expired, ...]:
    """Return which rows expire with these events. The log starts are those of `state`, before them."""
    starts = [each.log_start for each in state.partitions]
    return tuple(Expired(each.partition, starts[each.partition], each.log_start) for each in moved)


def write_checkpoints(handle: TopicHandle, nodes: AvailableNodes | None = None) -> None:
    """Write Kafka's checkpoints of the topic on its nodes, and its description, where they have changed.

    So each node is readable by itself. They are a copy for people and for recovery, and decide nothing: of two
    processes the one that knows less may write last. `nodes`, here and below: where somebody has looked already.
    """
    nodes = nodes or AvailableNodes(handle.log)
    state = handle.refresh()
    folder = layout.topic_folder(handle.name, handle.topic_id)
    described = {topic_description.NAME: topic_description.encode(topic_description.of(handle))}

    def write(name: NodeId, store: Store) -> None:
        wanted = checkpoint_files.contents(state, name)
        checkpoint_files.write(store, folder, wanted | described if wanted else {})

    nodes.each(write)


def delete_pending(handle: TopicHandle, now: int, nodes: AvailableNodes | None = None) -> list[str]:
    """Remove the files that were released longer ago than `file.delete.delay.ms`; return their keys."""
    nodes = nodes or AvailableNodes(handle.log)
    state = handle.refresh()
    # Clocks differ: what was released later goes later.
    delay = state.config.file_delete_delay_ms
    due = list(itertools.takewhile(lambda each: each.at_ms + delay <= now, state.released))
    removed = [key for each in due for key in _objects(handle, each.key)]
    nodes.each(lambda _, store: _delete(store, removed))
    # What a node keeps that is missing or broken is an orphan by and by. One that others may well use waits.
    if due and nodes.stores and nodes.others_are_away:
        handle.submit(ConfirmDeletions(due[-1].key))
    return removed


def _delete(store: Store, keys: list[str]) -> None:
    for key in keys:
        store.delete(key)


def all_orphans(handle: TopicHandle, nodes: AvailableNodes | None = None) -> dict[NodeId, list[str]]:
    """Return the orphans of each node that is there."""
    nodes = nodes or AvailableNodes(handle.log)
    state = handle.refresh()
    found: dict[NodeId, list[str]] = {}

    def look(name: NodeId, store: Store) -> None:
        found[name] = _orphans_in(store, handle, state)

    nodes.each(look)
    return found


def _remove_orphans(handle: TopicHandle, nodes: AvailableNodes) -> int:
    found = all_orphans(handle, nodes)
    nodes.each(lambda name, store: _delete(store, found[name]))
    return sum(len(found[name]) for name in nodes.stores)


def orphans(store: Store, handle: TopicHandle) -> list[str]:
    """Return the keys of the files in a node's store that no entry names and none ever will."""
    return _orphans_in(store, handle, handle.refresh())


def _orphans_in(store: Store, handle: TopicHandle, state: Topic) -> list[str]:
    folder = layout.topic_folder(handle.name, handle.topic_id)
    named = {f"{folder}append/{file.name}" for file in state.files}
    named |= {key for each in state.released for key in _objects(handle, each.key)}
    for number, partition in enumerate(state.partitions):
        rolled = (*partition.segments, *partition.staged)
        named |= {f"{folder}{number}/{each.name}{end}" for each in rolled for end in _ENDINGS}
    found = []
    folders = ["append", *(str(number) for number in range(len(state.partitions)))]
    for each in folders:
        is_ours = layout.is_born_name if each == "append" else layout.is_segment_file
        for key in store.list(f"{folder}{each}/"):
            name = key.removeprefix(f"{folder}{each}/")
            if key not in named and is_ours(name) and layout.born_of(name.partition(".")[0]) < state.orphan_floor:
                found.append(key)
    return found


_ENDINGS = (".log", ".index")


def _objects(handle: TopicHandle, key: str) -> list[str]:
    whole = f"{layout.topic_folder(handle.name, handle.topic_id)}{key}"
    return [whole] if key.startswith("append/") else [whole + ending for ending in _ENDINGS]
