"""The scan of a topic's folder on one node, without any journal.

Every segment is read and checked, because the new journal will name its holders. Append files are only listed: without
a journal or a description (`topic_description`) the offsets of their rows are not known.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from pyspark_log_coordinator.journal import snapshot
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.place import OneStore
from pyspark_log_coordinator.journal.registers import slot_of as register_slot_of
from pyspark_log_coordinator.maintenance import topic_description
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing, StoreError
from pyspark_log_storage.files import append_file
from pyspark_log_storage.files.row_files import EpochStarts, SegmentFile
from pyspark_log_storage.names import is_topic
from pyspark_log_storage.objects import checkpoints, spare
from pyspark_log_storage.segments import recovery, segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.maintenance.topic_description import Description
    from pyspark_log_storage.files.index import IndexEntry
    from pyspark_log_storage.stores.store import Store

T = TypeVar("T")


class TopicFolder(NamedTuple):
    """The folder of one topic incarnation: the topic's name and id."""

    topic: str
    topic_id: str

    @property
    def prefix(self) -> str:
        """The prefix of its keys on each node; ends with "/"."""
        return layout.topic_folder(self.topic, self.topic_id)


class FoundSegment(msgspec.Struct, frozen=True):
    """A copy of a segment. If it is damaged, `file` describes the good chunks at its beginning."""

    partition: int
    file: SegmentFile
    epochs: EpochStarts
    """The leader epochs of the log when it was made."""
    why: str | None = None
    """What is damaged, or None if it is whole."""
    indexed: bool = True
    """Whether its index exists and is right."""


class FolderContents(msgspec.Struct, frozen=True):
    """What a store holds of a topic incarnation."""

    segments: tuple[FoundSegment, ...]
    append_files: tuple[str, ...]
    """Their names."""
    high_watermarks: dict[int, int]
    """By partition, as the node knew them."""
    epochs: dict[int, EpochStarts]
    """By partition, as the node knew them."""
    description: Description | None
    """The newest of the stored description and the state in the remains of the topic's journal."""
    newest: int
    """The largest number of a journal entry that any file names."""
    damaged: tuple[str, ...]
    """Errors of checkpoints and descriptions; these are not used."""

    @property
    def partitions(self) -> int:
        """How many partitions the folder shows."""
        known = {*self.high_watermarks, *self.epochs, *(each.partition for each in self.segments)}
        return max(known, default=-1) + 1


def topic_folders(store: Store) -> Iterator[TopicFolder]:
    """Yield the folder of every topic incarnation. Folders whose names no topic can have are not the product's."""
    for name in filter(is_topic, store.folders(layout.TOPICS)):
        for topic_id in filter(layout.is_id, store.folders(f"{layout.TOPICS}{name}/")):
            yield TopicFolder(name, topic_id)


def scan(
    store: Store, folder: TopicFolder, environment: Environment, progress: Callable[[int], object] = bool
) -> FolderContents:
    """Read a topic's folder. Call `progress` with the number of bytes read since the last call.

    Raises `NewerFormat`, `StoreError`.
    """
    reading = _Reading(store, folder)
    keys = list(store.list(folder.prefix))
    names = [key.removeprefix(folder.prefix) for key in keys]
    found = [reading.segment(name, progress) for name in names if _is_segment(name)]
    appended = [name.removeprefix("append/") for name in names if name.startswith("append/")]
    journal = layout.topic_journal(*folder)
    remains = tuple(key for key in keys if key.startswith(journal))
    described, of_journal = reading.description(), _of_journal(store, folder, environment) if remains else None
    known = [each for each in (described, of_journal) if each is not None]
    numbers = [layout.born_of(name) for name in appended if layout.is_born_name(name)]
    numbers += [layout.born_of(each.file.name) for each in found]
    numbers += [each.number for each in known]
    return FolderContents(
        segments=tuple(found),
        append_files=tuple(name for name in appended if layout.is_born_name(name)),
        high_watermarks=reading.high_watermarks(),
        epochs=reading.epochs(names),
        description=max(known, key=lambda each: each.number, default=None),
        newest=max([*numbers, newest_in(store, journal, remains)], default=0),
        damaged=tuple(reading.damaged),
    )


def newest_in(store: Store, journal: str, remains: tuple[str, ...]) -> int:
    """Return the largest number of an entry or a snapshot in the remains of a journal, or 0 if there are none."""
    numbers = [next(snapshot.numbers(store, journal), 0)]
    for key in remains:
        folder, _, name = key.removeprefix(journal).removeprefix(spare.FOLDER).rpartition("/")
        if folder.partition(".")[0] != "entries":
            continue
        slot = int(name) if _is_number(name) else register_slot_of(name)
        numbers += [] if slot is None else [slot]
    return max(numbers)


def rows_in(store: Store, key: str) -> int:
    """Return the number of rows in the good chunks at the beginning of an append file."""
    rows = 0
    with contextlib.suppress(CorruptObject):
        for _, header, _ in append_file.scan(store, key):
            rows += header.rows
    return rows


def _summary(name: str, base_offset: int, log_bytes: int, entries: list[IndexEntry]) -> SegmentFile:
    """Return the description of a segment of these chunks, possibly none."""
    return SegmentFile(
        name,
        base_offset,
        entries[-1].end_offset if entries else base_offset,
        len(entries),
        log_bytes,
        min((each.min_timestamp for each in entries), default=0),
        max((each.max_timestamp for each in entries), default=0),
    )


class _Reading:
    """Reads the files of a folder, and collects errors of checkpoints and descriptions."""

    def __init__(self, store: Store, folder: TopicFolder) -> None:
        self._store = store
        self._prefix = folder.prefix
        self.damaged: list[str] = []

    def segment(self, name: str, progress: Callable[[int], object]) -> FoundSegment:
        """Read the segment in the file `name` of the topic's folder."""
        partition, stem = (layout.segment_in(name) or name).split("/")
        key = f"{self._prefix}{partition}/{stem}"
        named = layout.base_offset_of(stem)
        size = self._store.size(layout.segment_file(key))
        epochs: EpochStarts = ()
        try:
            begin, epochs = segment.epochs_of(self._store, key)
            if begin != named:
                name = f"segment {self._store.url}/{layout.segment_file(key)}"
                raise CorruptObject(name, f"it begins at offset {begin}, not {named} as its name says")
            entries, why = recovery.good_chunks(self._store, key)
        except CorruptObject as error:
            epochs, entries, why = (), [], str(error)
        progress(size)
        base_offset = entries[0].base_offset if entries else named
        indexed = why is None and segment.index_is_right(self._store, key, entries)
        return FoundSegment(int(partition), _summary(stem, base_offset, size, entries), epochs, why, indexed)

    def description(self) -> Description | None:
        return self._decoded(topic_description.NAME, topic_description.decode)

    def high_watermarks(self) -> dict[int, int]:
        offsets = self._decoded(checkpoints.REPLICATION, checkpoints.decode_offsets) or {}
        return {partition: offset for (_, partition), offset in offsets.items()}

    def epochs(self, names: list[str]) -> dict[int, EpochStarts]:
        found = {}
        for name in names:
            number, _, last = name.partition("/")
            if last == checkpoints.LEADER_EPOCH and _is_number(number):
                epochs = self._decoded(name, checkpoints.decode_epochs)
                if epochs is not None:
                    found[int(number)] = epochs
        return found

    def _decoded(self, name: str, decode: Callable[[bytes, str], T]) -> T | None:
        """Return a file of the folder, decoded, or None if it is missing or damaged."""
        key = f"{self._prefix}{name}"
        try:
            return decode(self._store.read(key), f"{self._store.url}/{key}")
        except ObjectMissing:
            return None
        except CorruptObject as error:
            self.damaged.append(str(error))
            return None


def _is_segment(name: str) -> bool:
    number, _, last = name.partition("/")
    return _is_number(number) and "/" not in last and layout.segment_in(last) is not None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _of_journal(store: Store, folder: TopicFolder, environment: Environment) -> Description | None:
    """Return the state in the remains of the topic's journal as a description, or None if it cannot be read."""
    journal = Journal(OneStore(store), layout.topic_journal(*folder), topic.MACHINE, environment)
    try:
        with contextlib.suppress(CorruptObject, StoreError):
            journal.refresh()
    except LogError:
        return None
    state = journal.state
    # The first entry of a rebuild that was cut short adds nothing to what the folders show.
    if not state.started or state.restored == journal.number:
        return None
    return topic_description.describe(state, journal.number, 0, ())
