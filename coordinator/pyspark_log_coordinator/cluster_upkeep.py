"""Upkeep of a cluster: what belongs to no topic that is there. Any process may do it, many at once.

deleted topics     their bytes, `file.delete.delay.ms` after the deletion
temporary files    what killed writers left half-written (`Store.sweep`)
cluster journal    entries and snapshots that nobody needs

Nothing in a deleted topic's folder is named by anybody any more, and nothing ever will be: its journal has ended. The
delay is for readers that are under way; they meet an error afterwards. What a slow writer adds later goes the next
time, for every folder is looked at. The journal's last entry and its snapshot stay for ever, for whoever still sleeps.

A folder is of a deleted topic where both say so: the cluster does not know the id (it is asked after the folder was
listed, and ids are never used twice), and the journal in the folder has ended. So a cluster whose own journal was
restored from an old backup loses nothing by this.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator import topic
from pyspark_log_coordinator.journal import Journal
from pyspark_log_storage import layout
from pyspark_log_storage.errors import LogError, ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log import Log
    from pyspark_log_storage.store import Store


class DeletedTopic(msgspec.Struct, frozen=True):
    """How much of a deleted topic was removed, or would be: objects, and their bytes."""

    topic: str
    topic_id: str
    objects: int
    bytes: int


class Tidied(msgspec.Struct, frozen=True):
    """What was removed, or would be."""

    deleted_topics: tuple[DeletedTopic, ...]
    temporary_files: tuple[str, ...]
    trimmed: int
    """Objects of the cluster's journal; 0 in a dry run."""


def tidy(
    log: Log,
    *,
    dry_run: bool = False,
    objects_max: int | None = None,
    failed: Callable[[str, LogError], object] | None = None,
) -> Tidied:
    """Remove what is due; return what went, or would go.

    Of deleted topics about `objects_max` objects, all where it is None. `failed` is told of a deleted topic that cannot
    be read, by its folder, and the others go on. Without it the error is raised.
    """
    deleted: list[DeletedTopic] = []
    for name, topic_id in former_lives(log):
        left = None if objects_max is None else objects_max - sum(each.objects for each in deleted)
        if left is not None and left <= 0:
            break
        try:
            found = _remove(log, name, topic_id, left, dry_run=dry_run)
        except LogError as error:
            if failed is None:
                raise
            failed(layout.topic_folder(name, topic_id), error)
        else:
            deleted += [found] if found.objects > 0 else []
    swept = tuple(log.store.sweep(dry_run=dry_run))
    return Tidied(tuple(deleted), swept, 0 if dry_run else log.cluster.trim())


def former_lives(log: Log) -> list[tuple[str, str]]:
    """Return name and id of every topic that has a folder and that the cluster does not know."""
    store = log.store
    found = [(name, each) for name in store.folders(layout.TOPICS) for each in store.folders(f"{layout.TOPICS}{name}/")]
    known = {(record.name, record.topic_id) for record in log.topics().values()}
    return [life for life in found if life not in known]


def journal_of(log: Log, name: str, topic_id: str) -> Journal[topic.Topic, topic.Command]:
    """Return the journal of a life of a topic, which is not begun where nobody has."""
    return Journal(log.store, layout.topic_journal(name, topic_id), topic.MACHINE, log.environment)


def _remove(log: Log, name: str, topic_id: str, objects_max: int | None, *, dry_run: bool) -> DeletedTopic:
    nothing = DeletedTopic(name, topic_id, 0, 0)
    folder = layout.topic_folder(name, topic_id)
    if _is_buried(log.store, name, topic_id):
        return nothing
    journal = journal_of(log, name, topic_id)
    state = journal.refresh()
    if state.deleted_ms is None or log.environment.now_ms() < state.deleted_ms + state.config.file_delete_delay_ms:
        return nothing
    kept = journal.end_keys()
    keys = list(itertools.islice((key for key in log.store.list(folder) if key not in kept), objects_max))
    size = sum(_size(log.store, key) for key in keys)
    if not dry_run:
        # First: whoever reads the journal from now on begins at its end, and misses nothing that goes.
        journal.bury()
        for key in keys:
            log.store.delete(key)
    return DeletedTopic(name, topic_id, len(keys), size)


def _size(store: Store, key: str) -> int:
    try:
        return store.size(key)
    except ObjectMissing:
        return 0  # another removed it


def _is_buried(store: Store, name: str, topic_id: str) -> bool:
    """Return whether only the end of the journal is left, without reading it."""
    journal = layout.topic_journal(name, topic_id)
    found = list(itertools.islice(store.list(layout.topic_folder(name, topic_id)), 3))
    number = found[0].removeprefix(f"{journal}entries/") if found else ""
    return number.isdigit() and found[1:] == [f"{journal}snapshots/{layout.newest_first(int(number))}"]
