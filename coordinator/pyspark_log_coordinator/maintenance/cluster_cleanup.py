"""Cleans up a cluster outside its present topics. Any process may do this, many at once.

deleted topics     their files, `file.delete.delay.ms` after the deletion
temporary files    what killed writers left (`Store.delete_unfinished`)
cluster journal    entries and snapshots that no process needs (`trimming.trim`)
groups             the same in their journals, and what former members and deleted topics left (`clean_up_groups`)

The delay gives running readers of a deleted topic time to finish; after it they get an error. Each run looks at the
folders of all topics whose deletion the cluster's state has as unfinished, so files that a slow writer adds later, or
that are on an unreachable store, are deleted by a later run. A deletion is finished when every store was looked at and
has no files to delete, `orphan.retention.ms` after the topic was deleted; from then on it costs nothing. What comes
later, as from a writer that slept for longer, a thorough run finds, which lists the folders of all topics. A store that
fails does not prevent the cleanup of the others. Fenced nodes are left out.

Some objects stay. The last entry and snapshot of a deleted topic's journal stay forever, for processes that slept.
Folders of names stay, because a topic of the same name may be created at any moment; empty folders of ids are deleted,
because ids are never used twice. Files that pyspark_log did not create stay, with their folders.

A folder belongs to a deleted topic only if the cluster does not know the id (read after the folder was listed) and the
journal in the folder has ended. So a cluster whose own journal was restored from an old backup loses nothing.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.group.offsets import OffsetDelete
from pyspark_log_coordinator.journal import journal_entry, snapshot, trimming
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.log.reachable_stores import ReachableStores, delete_all, reachable_stores
from pyspark_log_coordinator.membership.heartbeats import Heartbeats
from pyspark_log_storage import layout
from pyspark_log_storage.errors import LogError, ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.group_handle import GroupHandle
    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_storage.stores.store import Store

T = TypeVar("T")

_END_OBJECTS_MAX = 64
"""At most so many objects form the end of a journal: with several stores an entry has some for each ballot."""


class DeletedTopic(msgspec.Struct, frozen=True):
    """The number and bytes of the objects of a deleted topic that were deleted, or would be."""

    topic: str
    topic_id: str
    objects: int
    bytes: int


class ClusterCleanup(msgspec.Struct, frozen=True):
    deleted_topics: tuple[DeletedTopic, ...]
    temporary_files: tuple[str, ...]
    trimmed: int
    """Objects of the cluster's journal; 0 in a dry run."""


def clean_up_cluster(
    log: Log,
    *,
    dry_run: bool = False,
    thorough: bool = False,
    objects_max: int | None = None,
    failed: Callable[[str, LogError], object] | None = None,
) -> ClusterCleanup:
    """Delete what is due; return what was deleted, or would be in a dry run.

    `thorough`: look at the folders of all deleted topics that there are, also of those whose deletion is finished.
    `objects_max` limits, roughly, the objects of deleted topics. `failed` gets the folder of each deleted topic that
    cannot be read, and the address of each store that fails; the others continue. Without it the error is raised, that
    of a store at the end.
    """
    stores = reachable_stores(log)
    deleted: list[DeletedTopic] = []
    finished: list[str] = []
    unfinished = log.cluster.refresh().deletions
    listed = deleted_topics(log, stores) if thorough else []
    for name, topic_id in sorted({*((name, each) for each, name in unfinished.items()), *listed}):
        left = None if objects_max is None else objects_max - sum(each.objects for each in deleted)
        if left is not None and left <= 0:
            break
        try:
            delete = partial(_delete_topic_files, log, stores, name, topic_id, left, dry_run=dry_run)
            found = delete() if dry_run else log.with_reserves(delete)
            if found is None and topic_id in unfinished and _has_no_writers(log, name, topic_id):
                finished.append(topic_id)
        except LogError as error:
            if failed is None:
                raise
            failed(layout.topic_folder(name, topic_id), error)
        else:
            deleted += [found] if found is not None and found.objects > 0 else []
    if finished and not dry_run and _has_every_store(log, stores):
        log.cluster.submit(cluster.FinishDeletions(tuple(finished)))
    temporary = tuple(temporary_files(stores, dry_run=dry_run))
    trimmed = 0 if dry_run else trimming.trim(log.cluster)
    if not dry_run:
        log.journals.announce()
        log.fill_reserves()
    for url, why in stores.failures.items():
        if failed is None:
            raise why
        failed(url, why)
    return ClusterCleanup(tuple(deleted), temporary, trimmed)


def clean_up_groups(log: Log, failed: Callable[[str, LogError], object]) -> int:
    """Clean up after all groups; return the number of objects deleted. `failed` gets each group that fails.

    It does what a process that commits offsets does from time to time for its group (`GroupHandle.clean_up`), and
    deletes the heartbeats of former members, and the committed offsets of deleted topics.
    """
    count = 0
    for record in log.groups().values():
        handle = log.group_handle(record)
        try:
            _forget_deleted_topics(log, handle)
            count += handle.clean_up()
            count += Heartbeats(handle, log.environment).delete_left_over(handle.journal.state.members)
        except LogError as error:
            failed(record.group_id, error)
    return count


def _forget_deleted_topics(log: Log, handle: GroupHandle) -> None:
    """Delete the committed offsets of topics that were deleted, unless the group has members."""
    state = handle.refresh()
    # Read after the group's state: a topic with committed offsets that is not there any more was deleted.
    present = {each.topic_id for each in log.topics().values()}
    gone = {topic_id: tuple(offsets) for topic_id, offsets in state.offsets.items() if topic_id not in present}
    if gone and not state.members:
        handle.submit(OffsetDelete(gone))


def temporary_files(stores: ReachableStores, *, dry_run: bool) -> list[str]:
    """Delete the temporary files that killed writers left, and return them; `dry_run` only returns them."""
    found = stores.each(lambda _, store: store.delete_unfinished(dry_run=dry_run))
    return [name for names in found.values() for name in names]


def deleted_topics(log: Log, stores: ReachableStores) -> list[tuple[str, str]]:
    """Return name and id of every topic that has a folder but is unknown to the cluster.

    There is a list for each name, and the end of a deleted topic's journal stays for ever: not for frequent use.
    """

    def incarnations(_: str, store: Store) -> list[tuple[str, str]]:
        names = store.folders(layout.TOPICS)
        return [(name, each) for name in names for each in store.folders(f"{layout.TOPICS}{name}/")]

    found = {each for some in stores.each(incarnations).values() for each in some}
    known = {(record.name, record.topic_id) for record in log.topics().values()}
    return sorted(found - known)


def _delete_topic_files(
    log: Log, stores: ReachableStores, name: str, topic_id: str, objects_max: int | None, *, dry_run: bool
) -> DeletedTopic | None:
    """Delete the files of a topic if its deletion is long enough ago. None if there is nothing to delete any more."""
    nothing = DeletedTopic(name, topic_id, 0, 0)
    folder = layout.topic_folder(name, topic_id)
    if all(stores.each(lambda _, store: _has_only_the_end(log, store, name, topic_id)).values()):
        if not dry_run:
            stores.each(lambda _, store: store.remove_folders(folder))  # in case an earlier run was interrupted
        return None
    journal = log.journals.of_topic(name, topic_id)
    state = journal.refresh()
    if state.deleted_ms is None or not log.clock.maintains():
        return nothing
    if log.clock.now_ms() < state.deleted_ms + state.config.file_delete_delay_ms:
        return nothing
    left = objects_max
    sizes: list[int] = []

    def unneeded(_: str, store: Store) -> list[str]:
        nonlocal left
        ours = (key for key in store.list(folder) if layout.is_of_topic(key, folder))
        listed = (key for key in ours if not _is_of_the_end(journal, key))
        keys = list(itertools.islice(listed, left))
        sizes.extend(_size(store, key) for key in keys)
        left = None if left is None else left - len(keys)
        return keys

    found = stores.each(unneeded)
    if not dry_run:
        # First, so that a process that reads the journal from now on begins at its end and misses nothing.
        trimming.delete_history(journal)
        if journal.place.generation > 1:
            # A process that slept looks for the journal on stores that it has left: the end must be there, too.
            key, end = journal.encoded_snapshot()
            stores.each(lambda _, store: any(store.list(f"{folder}journal/")) and store.create(key, end))
        stores.each(lambda url, store: delete_all(store, found[url]))
        stores.each(lambda _, store: store.remove_folders(folder))
    return DeletedTopic(name, topic_id, len(sizes), sum(sizes))


def _has_no_writers(log: Log, name: str, topic_id: str) -> bool:
    """Return whether a topic was deleted so long ago that nobody is believed to write a file for it any more."""
    state = log.journals.of_topic(name, topic_id).refresh()
    if state.deleted_ms is None or not log.clock.maintains():
        return False
    return log.clock.now_ms() >= state.deleted_ms + state.config.orphan_retention_ms


def _has_every_store(log: Log, stores: ReachableStores) -> bool:
    """Return whether these are all stores of the cluster, none of which has failed."""
    is_fenced = any(each.fenced for each in log.cluster.state.nodes.values())
    return not (stores.failures or log.missing_nodes or is_fenced)


def _is_of_the_end(journal: Journal[Any, Any], key: str) -> bool:
    """Return whether an object is of the journal's last entry, or newer: even that of a deleted topic may migrate."""
    part, _, name = key.removeprefix(journal.folder).partition("/")
    if part == "snapshots":
        return (snapshot.number_of(name) or 0) >= journal.number
    if part == layout.entries("", journal.place.generation).rstrip("/"):
        return journal_entry.slot_of(name) == journal.number
    return part.startswith("entries.") and int(part.removeprefix("entries.")) > journal.place.generation


def _size(store: Store, key: str) -> int:
    try:
        return store.size(key)
    except ObjectMissing:
        return 0  # another process deleted it


def _has_only_the_end(log: Log, store: Store, name: str, topic_id: str) -> bool:
    """Return whether a store has at most the end of the topic's journal left, without reading it."""
    journal = layout.topic_journal(name, topic_id)
    folder = layout.topic_folder(name, topic_id)
    ours = (key for key in store.list(folder) if layout.is_of_topic(key, folder))
    found = list(itertools.islice(ours, _END_OBJECTS_MAX + 1))
    entries = layout.entries(journal, log.journals.place.generation)
    slots = {journal_entry.slot_of(key.removeprefix(entries)) for key in found[:-1]}
    if not found or len(slots) > 1:
        return not found
    end = slots.pop() if slots else next(snapshot.numbers(store, journal), None)
    return end is not None and found[-1] == snapshot.key(journal, end)
