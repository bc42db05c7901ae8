"""Cleans up a topic: expires rows, deletes unneeded files, trims the journal, publishes description and Delta table.

Many processes may do this at once. Each result is one journal entry, which has no effect if another process was first.
Files are deleted only after the entry that gives them up, on every reachable node. A node that fails is left out, and
the others continue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.journal import trimming
from pyspark_log_coordinator.journal.place import OneStore
from pyspark_log_coordinator.log.reachable_stores import ReachableStores, delete_all, reachable_nodes
from pyspark_log_coordinator.maintenance import descriptions
from pyspark_log_coordinator.maintenance.delta_table import publish_before_deletion, publish_on_nodes
from pyspark_log_coordinator.segments import retention
from pyspark_log_coordinator.segments.orphans import ConfirmDeletions, OrphanFloorRaised, RaiseOrphanFloor
from pyspark_log_coordinator.segments.retention import ApplyRetention, LogStartMoved
from pyspark_log_storage import layout
from pyspark_log_storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.model.topic_state import PendingDeletion, Topic
    from pyspark_log_storage.errors import LogError
    from pyspark_log_storage.stores.store import Store


class ExpiredRows(msgspec.Struct, frozen=True):
    """Rows `[log_start_before, log_start)` of a partition, which retention has expired."""

    partition: int
    log_start_before: int
    log_start: int
    rows: int
    """The number of these rows: of a compacted topic fewer than offsets."""


class TopicCleanup(msgspec.Struct, frozen=True):
    deleted: int
    """Objects."""
    expired: tuple[ExpiredRows, ...]
    scheduled: int
    """Files scheduled for deletion, which stay for `file.delete.delay.ms`."""


def clean_up_topic(
    handle: TopicHandle, *, thorough: bool = True, failed: Callable[[NodeId, LogError], object] | None = None
) -> TopicCleanup:
    """Do what is due to keep the cost of a topic flat; return what was done.

    Orphans are looked for among all files; with `thorough=False` only after the orphan floor has risen, so that the
    cost does not depend on the number of files. `failed` gets each node on which something failed, at the end. Without
    it the error is raised.
    """
    nodes = reachable_nodes(handle.log)
    count, expired = expire(handle, nodes)
    # From here on no entry can name a file below the floor, so the state of this entry is new enough for orphans.
    raised = handle.submit(RaiseOrphanFloor(handle.journal.number)).events if handle.log.clock.maintains() else []
    looks_at_all = thorough or any(isinstance(event, OrphanFloorRaised) for event in raised)
    if looks_at_all:
        count += delete_orphans(handle, nodes)
    count += _clean_up_inbox(handle, nodes)
    descriptions.write_on_nodes(handle, nodes)
    publish_on_nodes(handle, nodes)
    count += trimming.trim(handle.journal)
    for name, error in nodes.failures.items():
        if failed is None:
            raise error
        failed(name, error)
    scheduled = sum(len(_keys(handle, each.key)) for each in handle.journal.state.pending_deletions)
    return TopicCleanup(count, expired, scheduled)


def _clean_up_inbox(handle: TopicHandle, nodes: ReachableStores) -> int:
    """Delete what was left in the inbox; return how many objects. On journal nodes the first one may fail."""
    place = handle.journal.place
    try:
        return handle.inbox.delete_old(handle.journal.number)
    except StoreError as error:
        if isinstance(place, OneStore):
            raise
        first = place.members[0].node
        if first in handle.log.live_nodes and first not in handle.log.missing_nodes:
            nodes.failures.setdefault(first, error)
        return 0


def expire(handle: TopicHandle, nodes: ReachableStores | None = None) -> tuple[int, tuple[ExpiredRows, ...]]:
    """Apply retention and delete what is due; return the number of deleted objects, and the rows that expired now.

    Needs no room but for an entry or two, so `maintain` begins with it: rolling needs more. `nodes` are those found
    earlier, if any.
    """
    nodes = nodes or reachable_nodes(handle.log)
    now = handle.now_ms()
    handle.refresh()
    if not handle.log.clock.maintains():
        return 0, ()
    # Before the first entry: on a full disk this makes room for it.
    count = len(delete_pending(handle, now, nodes))
    before = handle.journal.state
    if not retention.decide_retention(before, now):
        return count, ()
    events = handle.submit(ApplyRetention()).events
    expired = expired_by(before, [event for event in events if isinstance(event, LogStartMoved)])
    # At a later time: with file.delete.delay.ms=0 what has just expired is due now.
    return count + len(delete_pending(handle, handle.now_ms(), nodes)), expired


def due_to_expire(handle: TopicHandle) -> tuple[ExpiredRows, ...]:
    """Return the rows that `expire` would let expire now."""
    return expired_by(handle.state, retention.decide_retention(handle.state, handle.now_ms()))


def expired_by(state: Topic, moved: Sequence[LogStartMoved]) -> tuple[ExpiredRows, ...]:
    """Return which rows expire with these events. `state` is the one before them."""

    def expired(number: int, end: int) -> ExpiredRows:
        partition = state.partitions[number]
        start = partition.log_start
        return ExpiredRows(number, start, end, partition.rows_between(start, end))

    return tuple(expired(each.partition, each.log_start) for each in moved)


def delete_pending(handle: TopicHandle, now: int, nodes: ReachableStores | None = None) -> list[str]:
    """Delete the files that were scheduled longer than `file.delete.delay.ms` before `now`; return their keys.

    By the known state, and on the `nodes` that were found earlier, if any.
    """
    if nodes is None:
        handle.refresh()
        nodes = reachable_nodes(handle.log)
    if not handle.log.clock.maintains():
        return []
    state = handle.journal.state
    due = _due_deletions(state, now)
    deleted = [key for each in due for key in _keys(handle, each.key)]
    delete_files(handle, nodes, dict.fromkeys(nodes.stores, deleted))
    # What stays on a missing or broken node becomes an orphan. A node that other processes may be able to use waits.
    if due and nodes.stores and nodes.others_are_unusable:
        handle.submit(ConfirmDeletions(due[-1].key))
    return deleted


def _due_deletions(state: Topic, now: int) -> list[PendingDeletion]:
    """Return which files are to be deleted now: those whose delay has passed, and all that were scheduled before them.

    So one that a clock in the future has scheduled holds nothing up: what was scheduled later shows that it is due.
    """
    delay, pending = state.config.file_delete_delay_ms, list(state.pending_deletions)
    due = [number for number, each in enumerate(pending) if each.at_ms + delay <= now]
    return pending[: due[-1] + 1] if due else []


def delete_orphans(handle: TopicHandle, nodes: ReachableStores) -> int:
    """Delete the files on these nodes that no entry names, nor ever will, by the known state; return their number."""
    orphaned = nodes.each(lambda _, store: orphans(store, handle))
    delete_files(handle, nodes, orphaned)
    return sum(len(orphaned[name]) for name in nodes.stores)


def delete_files(handle: TopicHandle, nodes: ReachableStores, keys: Mapping[NodeId, Sequence[str]]) -> None:
    """Delete files that the log lacks, by the known state; before, descriptions and Delta tables cease to name them.

    `keys` has those of each node. A table may name an orphan, too: an election may have cut it off the log. A full disk
    has no room for a description until files are deleted, so there it is written afterwards.
    """
    full = descriptions.write_before_deletion(handle, nodes, keys)
    publish_before_deletion(handle, nodes, keys)
    nodes.each(lambda name, store: delete_all(store, keys[name]))
    if full:
        descriptions.write_before_deletion(handle, nodes, keys)


def all_orphans(handle: TopicHandle) -> dict[NodeId, list[str]]:
    handle.refresh()
    return reachable_nodes(handle.log).each(lambda _, store: orphans(store, handle))


def orphans(store: Store, handle: TopicHandle) -> list[str]:
    """Return the keys of the files in a node's store that no entry names, nor ever will, by the known state."""
    state = handle.journal.state
    folder = layout.topic_folder(handle.name, handle.topic_id)
    named = {handle.append_file(file.name) for file in state.files}
    named |= {key for each in state.pending_deletions for key in _keys(handle, each.key)}
    for number, partition in enumerate(state.partitions):
        for each in partition.segments:
            named |= set(_keys(handle, f"{number}/{each.name}"))
    found, partitions = [], set(map(str, range(len(state.partitions))))
    for key in store.list(folder):
        part, _, name = key.removeprefix(folder).partition("/")
        is_ours = layout.is_born_name(name) if part == "append" else part in partitions and layout.is_segment_file(name)
        if is_ours and key not in named and layout.born_of(name.partition(".")[0]) < state.orphan_floor:
            found.append(key)
    return found


def _keys(handle: TopicHandle, name: str) -> list[str]:
    """Return the keys of the objects of a file, which is named by its key below the topic's folder."""
    key = f"{layout.topic_folder(handle.name, handle.topic_id)}{name}"
    return [key] if name.startswith("append/") else list(layout.segment_files(key))
