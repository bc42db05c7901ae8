"""Folders: what a node's store holds of topics, found out without any journal.

Every segment is read and checked, for what is named as held afterwards must be there. Append files are listed: what is
in them says nobody but a journal, or a description (`topic_description`).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pyspark_log_coordinator.journal import snapshot
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.place import OneStore
from pyspark_log_coordinator.journal.registers import slot_of as register_slot_of
from pyspark_log_coordinator.maintenance import topic_description
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage import append_file, checkpoints, layout, recovery, segment, spare
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing, StoreError
from pyspark_log_storage.segment import EpochStarts, SegmentFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.maintenance.topic_description import Description
    from pyspark_log_storage.index import IndexEntry
    from pyspark_log_storage.store import Store

_LOG = ".log"


class TopicFolder(NamedTuple):
    """One life of a topic: its name and its id."""

    topic: str
    topic_id: str

    @property
    def folder(self) -> str:
        """Where its files lie on each node."""
        return layout.topic_folder(self.topic, self.topic_id)


class FoundSegment(msgspec.Struct, frozen=True):
    """A copy of a segment. Of a damaged one `file` ends with the chunks that are good, and `why` says what follows."""

    partition: int
    file: SegmentFile
    epochs: EpochStarts
    """The leader epochs of the log when it was made."""
    why: str | None = None
    indexed: bool = True
    """Whether its index is there and right."""


class Folder(msgspec.Struct, frozen=True):
    """What a store holds of a life of a topic."""

    segments: tuple[FoundSegment, ...]
    append_files: tuple[str, ...]
    """Their names."""
    high_watermarks: dict[int, int]
    """By partition, as far as the node knew."""
    epochs: dict[int, EpochStarts]
    """By partition, as far as the node knew."""
    description: Description | None
    """The newest that is there, of the folder's own or of what is left of a journal."""
    newest: int
    """The largest number of a journal entry that anything names."""
    remains: tuple[str, ...]
    """The keys of what is left of the topic's journal."""
    damaged: tuple[str, ...]
    """What is wrong with checkpoints and descriptions, which are done without then."""

    @property
    def partitions(self) -> int:
        """How many partitions the folder shows."""
        known = {*self.high_watermarks, *self.epochs, *(each.partition for each in self.segments)}
        return max(known, default=-1) + 1


def topic_folders(store: Store) -> Iterator[TopicFolder]:
    """Yield the lives of topics that have a folder."""
    for name in store.folders(layout.TOPICS):
        for topic_id in store.folders(f"{layout.TOPICS}{name}/"):
            yield TopicFolder(name, topic_id)


def look(store: Store, life: TopicFolder, environment: Environment, progress: Callable[[int], object] = bool) -> Folder:
    """Read what a store holds of a life of a topic. `progress` is told how many bytes were read since it was told last.

    Raises `NewerFormat`, `StoreError`.
    """
    reading = _Reading(store, life)
    keys = list(store.list(life.folder))
    names = [key.removeprefix(life.folder) for key in keys]
    found = [reading.segment(name, progress) for name in names if _is_segment(name)]
    appended = [name.removeprefix("append/") for name in names if name.startswith("append/")]
    journal = layout.topic_journal(*life)
    remains = tuple(key for key in keys if key.startswith(journal))
    described, of_journal = reading.description(), _of_journal(store, life, environment) if remains else None
    known = [each for each in (described, of_journal) if each is not None]
    numbers = [layout.born_of(name) for name in appended if layout.is_born_name(name)]
    numbers += [layout.born_of(each.file.name) for each in found]
    numbers += [each.number for each in known]
    return Folder(
        segments=tuple(found),
        append_files=tuple(name for name in appended if layout.is_born_name(name)),
        high_watermarks=reading.high_watermarks(),
        epochs=reading.epochs(names),
        description=max(known, key=lambda each: each.number, default=None),
        newest=max([*numbers, newest_in(store, journal, remains)], default=0),
        remains=remains,
        damaged=tuple(reading.damaged),
    )


def newest_in(store: Store, journal: str, remains: tuple[str, ...]) -> int:
    """Return the largest number of an entry or a snapshot in what is left of a journal, 0 for none."""
    numbers = [next(snapshot.numbers(store, journal), 0)]
    for key in remains:
        folder, _, name = key.removeprefix(journal).removeprefix(spare.FOLDER).rpartition("/")
        if folder.partition(".")[0] != "entries":
            continue
        slot = int(name) if _is_number(name) else register_slot_of(name)
        numbers += [] if slot is None else [slot]
    return max(numbers)


def rows_in(store: Store, key: str) -> int:
    """Return how many rows the good chunks at the beginning of an append file have."""
    rows = 0
    with contextlib.suppress(CorruptObject):
        for _, header, _ in append_file.scan(store, key):
            rows += header.rows
    return rows


def summary(name: str, base_offset: int, log_bytes: int, entries: list[IndexEntry]) -> SegmentFile:
    """Return what a segment of these chunks is, of which there may be none."""
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
    """Reads a folder, and notes what is damaged."""

    def __init__(self, store: Store, life: TopicFolder) -> None:
        self._store = store
        self._life = life
        self.damaged: list[str] = []

    def segment(self, name: str, progress: Callable[[int], object]) -> FoundSegment:
        partition, stem = name.removesuffix(_LOG).split("/")
        key = f"{self._life.folder}{partition}/{stem}"
        named = int(stem.split("-")[0])
        size = self._store.size(f"{key}{_LOG}")
        epochs: EpochStarts = ()
        try:
            name = f"segment {self._store.url}/{key}{_LOG}"
            begin, epochs, _ = segment.read_header(self._store, f"{key}{_LOG}", name)
            if begin != named:
                raise CorruptObject(name, f"it begins at offset {begin}, which its name does not say")
            entries, why = recovery.good_chunks(self._store, key)
        except CorruptObject as error:
            epochs, entries, why = (), [], str(error)
        progress(size)
        base_offset = entries[0].base_offset if entries else named
        indexed = why is None and segment.index_is_right(self._store, key, entries)
        return FoundSegment(int(partition), summary(stem, base_offset, size, entries), epochs, why, indexed)

    def description(self) -> Description | None:
        key = f"{self._life.folder}{topic_description.NAME}"
        try:
            return topic_description.decode(self._store.read(key), f"{self._store.url}/{key}")
        except ObjectMissing:
            return None
        except CorruptObject as error:
            self.damaged.append(str(error))
            return None

    def high_watermarks(self) -> dict[int, int]:
        key = f"{self._life.folder}{checkpoints.REPLICATION}"
        try:
            offsets = checkpoints.decode_offsets(self._store.read(key), f"{self._store.url}/{key}")
        except ObjectMissing:
            return {}
        except CorruptObject as error:
            self.damaged.append(str(error))
            return {}
        return {partition: offset for (_, partition), offset in offsets.items()}

    def epochs(self, names: list[str]) -> dict[int, EpochStarts]:
        found = {}
        for name in names:
            number, _, last = name.partition("/")
            if last == checkpoints.LEADER_EPOCH and _is_number(number):
                key = f"{self._life.folder}{name}"
                try:
                    found[int(number)] = checkpoints.decode_epochs(self._store.read(key), f"{self._store.url}/{key}")
                except CorruptObject as error:
                    self.damaged.append(str(error))
        return found


def _is_segment(name: str) -> bool:
    number, _, last = name.partition("/")
    return _is_number(number) and last.endswith(_LOG) and layout.is_segment_name(last.removesuffix(_LOG))


def _is_number(text: str) -> bool:
    """Return whether a text is a number, of plain digits."""
    return text.isascii() and text.isdigit()


def _of_journal(store: Store, life: TopicFolder, environment: Environment) -> Description | None:
    """Return what is left of the topic's journal says, as far as it can be read; None where that is nothing."""
    journal = Journal(OneStore(store), layout.topic_journal(*life), topic.MACHINE, environment)
    try:
        with contextlib.suppress(CorruptObject, StoreError):
            journal.refresh()
    except LogError:
        return None
    state = journal.state
    # One that begins with the end of a rebuild that was cut short knows no more than the folders do.
    if not state.started or state.restored == journal.number:
        return None
    return topic_description.describe(state, journal.number, 0, ())


__all__ = ["Folder", "FoundSegment", "TopicFolder", "look", "newest_in", "rows_in", "summary", "topic_folders"]
