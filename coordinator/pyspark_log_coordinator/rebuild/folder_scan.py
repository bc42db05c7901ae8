"""A topic's folder on one node, as it is found: its segments, append files and description.

Whoever reads a folder without asking a journal what is in it uses `NodeFolder`: the rebuild, the recovery of a node,
and the check of a node that returns. The files that a journal names are those of `sync/replica_file`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_log_coordinator.cluster.machine import PARTITIONS_MAX
from pyspark_log_coordinator.journal import snapshot
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.journal_entry import slot_of
from pyspark_log_coordinator.journal.place import OneStore
from pyspark_log_coordinator.log import topic_description
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage import layout
from pyspark_log_storage.errors import ObjectMissing
from pyspark_log_storage.names import is_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.log.topic_description import Description
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_storage.stores.store import Store

_ENTRY_MAX = 2**62
"""No journal has as many entries: a file that names a later one is not the product's."""


class TopicFolder(NamedTuple):
    """The folder of one topic incarnation: the topic's name and id."""

    topic: str
    topic_id: str

    @property
    def prefix(self) -> str:
        """The prefix of its keys on each node; ends with "/"."""
        return layout.topic_folder(self.topic, self.topic_id)


def topic_folders(store: Store) -> Iterator[TopicFolder]:
    """Yield the folder of every topic incarnation. Folders whose names no topic can have are not the product's."""
    for name in filter(is_topic, store.folders(layout.TOPICS)):
        for topic_id in filter(layout.is_id, store.folders(f"{layout.TOPICS}{name}/")):
            yield TopicFolder(name, topic_id)


class NodeFolder:
    """A topic's folder on one node. It is listed once, and its files are read when they are asked for.

    What reads the description raises `CorruptObject`, `NewerFormat`, `StoreError`.
    """

    def __init__(self, store: Store, folder: TopicFolder) -> None:
        self.store = store
        self.folder = folder

    @functools.cached_property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.store.list(self.folder.prefix))

    @property
    def segments(self) -> list[tuple[int, str]]:
        """The partition and the key, without ending, of each segment."""
        found = []
        for key in self.keys:
            number, _, name = key.removeprefix(self.folder.prefix).partition("/")
            is_number = number.isascii() and number.isdigit()
            # Other folders, such as "00" and "20260131", are not the product's.
            if is_number and number == str(int(number)) and int(number) < PARTITIONS_MAX and "/" not in name:
                segment_key = layout.segment_in(key)
                found += [] if segment_key is None else [(int(number), segment_key)]
        return found

    @property
    def append_files(self) -> tuple[str, ...]:
        prefix = layout.append_file(*self.folder, "")
        names = [key.removeprefix(prefix) for key in self.keys if key.startswith(prefix)]
        return tuple(filter(layout.is_born_name, names))

    def description(self) -> Description | None:
        """Return the stored description, or None if there is none."""
        try:
            return topic_description.read(self.store, *self.folder)
        except ObjectMissing:
            return None

    @property
    def newest(self) -> int:
        """The largest number of a journal entry that any file in it names, 0 if none does. Raises `StoreError`."""
        born = [layout.born_of(name) for name in self.append_files]
        born += [layout.born_of(key.rpartition("/")[2]) for _, key in self.segments]
        journal = layout.topic_journal(*self.folder)
        remains = (key for key in self.keys if key.startswith(journal))
        return max([newest_in(journal, remains), *filter(_is_entry, born)])

    def journal(self, environment: Environment) -> Journal[Topic, Any]:
        """Return the topic's journal, as far as it is on this store."""
        return Journal(OneStore(self.store, environment), layout.topic_journal(*self.folder), topic.MACHINE)


def newest_in(journal: str, remains: Iterable[str]) -> int:
    """Return the largest number of an entry or a snapshot in the remains of a journal, or 0 if there are none."""
    numbers: list[int] = []
    for key in remains:
        folder, _, name = key.removeprefix(journal).rpartition("/")
        number_of = {"snapshots": snapshot.number_of, "entries": slot_of}.get(folder.partition(".")[0])
        if number_of is not None and (number := number_of(name)) is not None:
            numbers.append(number)
    return max(filter(_is_entry, numbers), default=0)


def _is_entry(number: int) -> bool:
    return number <= _ENTRY_MAX
