"""Upkeep of a cluster: what belongs to no topic that is there. Any process may do it, many at once.

deleted topics     their bytes, `file.delete.delay.ms` after the deletion
temporary files    what killed writers left half-written (`Store.sweep`)
cluster journal    entries and snapshots that nobody needs

Nothing in a deleted topic's folder is named by anybody any more, and nothing ever will be: its journal has ended. The
delay is for readers that are under way; they meet an error afterwards. What a slow writer adds later goes the next
time, for every folder is looked at; so does what lies on a store that is away, or that fails: it keeps nobody else's
from being tidied up. Fenced nodes are left out. The journal's last entry and its snapshot stay for ever, for whoever
still sleeps. So do folders of names: a topic may be made again under one at any moment. Folders of ids go when they are
empty, for ids are never used twice. Files that the product does not make stay, and the folders that they are in.

A folder is of a deleted topic where both say so: the cluster does not know the id (it is asked after the folder was
listed, and ids are never used twice), and the journal in the folder has ended. So a cluster whose own journal was
restored from an old backup loses nothing by this.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pyspark_log_coordinator.journal import snapshot
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage import layout, spare
from pyspark_log_storage.errors import LogError, ObjectMissing, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_storage.store import Store

T = TypeVar("T")

_END_OBJECTS_MAX = 64
"""How many objects the end of a journal has at most: on several stores an entry has some for each ballot."""


class DeletedTopic(msgspec.Struct, frozen=True):
    """How much of a deleted topic was removed, or would be: objects, and their bytes."""

    topic: str
    topic_id: str
    objects: int
    bytes: int


class ClusterCleanup(msgspec.Struct, frozen=True):
    """What was removed, or would be."""

    deleted_topics: tuple[DeletedTopic, ...]
    temporary_files: tuple[str, ...]
    trimmed: int
    """Objects of the cluster's journal; 0 in a dry run."""


def clean_up_cluster(
    log: Log,
    *,
    dry_run: bool = False,
    objects_max: int | None = None,
    failed: Callable[[str, LogError], object] | None = None,
) -> ClusterCleanup:
    """Remove what is due; return what went, or would go.

    Of deleted topics about `objects_max` objects, all where it is None. `failed` is told of a deleted topic that cannot
    be read, by its folder, and the others go on; and of a store that fails, by its address. Without it the error is
    raised, of a store after the others were tidied up.
    """
    stores = _Stores(log)
    deleted: list[DeletedTopic] = []
    for name, topic_id in _former_lives(log, stores):
        left = None if objects_max is None else objects_max - sum(each.objects for each in deleted)
        if left is not None and left <= 0:
            break
        try:
            found = _remove(log, stores, name, topic_id, left, dry_run=dry_run)
        except LogError as error:
            if failed is None:
                raise
            failed(layout.topic_folder(name, topic_id), error)
        else:
            deleted += [found] if found.objects > 0 else []
    swept = tuple(name for names in stores.each(lambda store: store.sweep(dry_run=dry_run)) for name in names)
    trimmed = 0 if dry_run else log.cluster.trim()
    if not dry_run:
        log.cluster.mend()
        log.journals.announce()
    for url, why in stores.failures.items():
        if failed is None:
            raise why
        failed(url, why)
    return ClusterCleanup(tuple(deleted), swept, trimmed)


def deleted_topics(log: Log) -> list[tuple[str, str]]:
    """Return name and id of every topic that has a folder and that the cluster does not know.

    Stores that fail are passed over.
    """
    return _former_lives(log, _Stores(log))


def abandoned_temporary_files(log: Log) -> list[str]:
    """Return what killed writers left half-written. Stores that fail are passed over."""
    return [name for names in _Stores(log).each(lambda store: store.sweep(dry_run=True)) for name in names]


def _former_lives(log: Log, stores: _Stores) -> list[tuple[str, str]]:
    def lives(store: Store) -> list[tuple[str, str]]:
        names = store.folders(layout.TOPICS)
        return [(name, each) for name in names for each in store.folders(f"{layout.TOPICS}{name}/")]

    found = {life for each in stores.each(lives) for life in each}
    known = {(record.name, record.topic_id) for record in log.topics().values()}
    return sorted(life for life in found if life not in known)


class _Stores:
    """The stores of the journals and the nodes. A single one raises; of several, one that fails is left out."""

    def __init__(self, log: Log) -> None:
        found = log.stores()
        self._is_single = len(found) == 1 and not log.missing_nodes
        fenced = {log.node_store(name).url for name, each in log.cluster.state.nodes.items() if each.fenced}
        # The root is in use even where its node is fenced: the journals are there.
        self._left = [each for each in found if each.url not in fenced or each is log.store]
        self.failures: dict[str, LogError] = {}

    def each(self, ask: Callable[[Store], T]) -> list[T]:
        """Ask every store that is left; return the answers. `ask` touches nothing else."""
        answers = []
        for store in tuple(self._left):
            try:
                answers.append(ask(store))
            except StoreError as error:
                if self._is_single:
                    raise
                self.failures[store.url] = error
                self._left.remove(store)
        return answers


def journal_of(log: Log, name: str, topic_id: str) -> Journal[topic.Topic, topic.Command]:
    """Return the journal of a life of a topic, which is not begun where nobody has."""
    journal = log.journals.of_topic(name, topic_id)
    if journal.place is not log.journals.place and not journal.refresh().started:
        return log.journals.of_new_topic(name, topic_id)  # it came and went while the journals are on their way
    return journal


def _remove(
    log: Log, stores: _Stores, name: str, topic_id: str, objects_max: int | None, *, dry_run: bool
) -> DeletedTopic:
    nothing = DeletedTopic(name, topic_id, 0, 0)
    folder = layout.topic_folder(name, topic_id)
    if all(stores.each(lambda store: _is_buried(log, store, name, topic_id))):
        if not dry_run:
            stores.each(lambda store: store.remove_folders(folder))  # which an earlier one may not have come to
        return nothing
    journal = journal_of(log, name, topic_id)
    state = journal.refresh()
    if state.deleted_ms is None or log.environment.now_ms() < state.deleted_ms + state.config.file_delete_delay_ms:
        return nothing
    kept = journal.end_keys()
    left = objects_max
    sizes: list[int] = []

    def doomed(store: Store) -> list[str]:
        nonlocal left
        ours = (key for key in store.list(folder) if layout.is_of_topic(key, folder) and key not in kept)
        listed = (key for key in ours if not _has_come_since(journal, key, folder))
        keys = list(itertools.islice(listed, left))
        sizes.extend(_size(store, key) for key in keys)
        left = None if left is None else left - len(keys)
        return keys

    found: dict[str, list[str]] = {}
    stores.each(lambda store: found.update({store.url: doomed(store)}))
    if not dry_run:
        # First: whoever reads the journal from now on begins at its end, and misses nothing that goes.
        journal.bury()
        if journal.place.generation > 1:
            # Whoever slept looks for the journal on stores that it has left: these must tell of its end, too.
            key, end = journal.newest_snapshot()
            stores.each(lambda store: any(store.list(f"{folder}journal/")) and store.create(key, end))
        stores.each(lambda store: _delete(store, found[store.url]))
        stores.each(lambda store: store.remove_folders(folder))
    return DeletedTopic(name, topic_id, len(sizes), sum(sizes))


def _has_come_since(journal: Journal[Any, Any], key: str, folder: str) -> bool:
    """Return whether an object belongs to what the journal has become since, on other stores: it may move, deleted."""
    part, _, name = key.removeprefix(f"{folder}journal/").removeprefix(spare.FOLDER).partition("/")
    if part == "snapshots":
        with contextlib.suppress(ValueError):
            return layout.number_of_newest_first(name) > journal.number
    return part.startswith("entries.") and int(part.removeprefix("entries.")) > journal.place.generation


def _delete(store: Store, keys: list[str]) -> None:
    for key in keys:
        store.delete(key)


def _size(store: Store, key: str) -> int:
    try:
        return store.size(key)
    except ObjectMissing:
        return 0  # another removed it


def _is_buried(log: Log, store: Store, name: str, topic_id: str) -> bool:
    """Return whether a store has only the end of the journal left, or nothing, without reading it."""
    journal = layout.topic_journal(name, topic_id)
    folder = layout.topic_folder(name, topic_id)
    ours = (key for key in store.list(folder) if layout.is_of_topic(key, folder))
    listed = list(itertools.islice(ours, _END_OBJECTS_MAX + 1))
    spares = {key for key in listed if key.startswith(f"{journal}{spare.FOLDER}")}
    found = [key for key in listed if key not in spares]
    if not spares.issubset(spare.key(journal, key) for key in found if key.startswith(journal)):
        return False
    entries = layout.entries(journal, log.journals.place.generation)
    slots = {log.journals.place.slot_of(key.removeprefix(entries)) for key in found[:-1]}
    if not found or len(slots) > 1:
        return not found
    end = slots.pop() if slots else next(snapshot.numbers(store, journal), None)
    return end is not None and found[-1] == snapshot.key(journal, end)
