"""A topic's folder on one node, as it is found: its segments, append files, checkpoints and description.

Whoever reads a folder without asking a journal what is in it uses `NodeFolder`: the rebuild, the recovery of a node,
and the check of a node that returns. The files that a journal names are those of `sync/replica_file`.

For a rebuild `scan` reads and checks every segment, because the new journal will name its holders. Append files are
only listed: without a journal or a description (`topic_description`) the offsets of their rows are not known.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from pyspark_log_coordinator.cluster.machine import PARTITIONS_MAX
from pyspark_log_coordinator.journal import snapshot
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.place import OneStore
from pyspark_log_coordinator.journal.registers import slot_of as register_slot_of
from pyspark_log_coordinator.journal.single_store import slot_of
from pyspark_log_coordinator.maintenance import topic_description
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, ObjectMissing
from pyspark_log_storage.files import append_file
from pyspark_log_storage.files.row_files import EpochStarts, KeyedCounts, SegmentFile
from pyspark_log_storage.names import is_topic
from pyspark_log_storage.objects import checkpoints
from pyspark_log_storage.segments import recovery, segment
from pyspark_log_storage.stores.failover import reread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.maintenance.topic_description import Description
    from pyspark_log_coordinator.model.partition import ChunkRef
    from pyspark_log_storage.files.index import IndexEntry
    from pyspark_log_storage.stores.store import Store

T = TypeVar("T")

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
    """By partition, by the checkpoint; none if the node has a description, which says the same with a checksum."""
    epochs: dict[int, EpochStarts]
    """By partition, by the checkpoints; if the node has a description, only those that continue its leader epochs."""
    description: Description | None
    """The stored one, or of one folder the state in the remains of the topic's journal, if that is newer."""
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


class NodeFolder:
    """A topic's folder on one node. It is listed once, and its files are read when they are asked for.

    What reads checkpoints and the description raises `CorruptObject`, `NewerFormat`, `StoreError`.
    """

    def __init__(self, store: Store, folder: TopicFolder) -> None:
        self.store = store
        self.folder = folder

    @functools.cached_property
    def keys(self) -> tuple[str, ...]:
        """The keys of all its objects. Raises `StoreError`."""
        return tuple(self.store.list(self.folder.prefix))

    @property
    def segments(self) -> list[tuple[int, str]]:
        """The partition and the key, without ending, of each segment."""
        found = []
        for key in self.keys:
            number, name = self._in_partition(key)
            if number is not None and "/" not in name and (segment_key := layout.segment_in(key)) is not None:
                found.append((number, segment_key))
        return found

    @property
    def with_epochs(self) -> list[int]:
        """The partitions that have a checkpoint of leader epochs."""
        parts = map(self._in_partition, self.keys)
        return [number for number, name in parts if number is not None and name == checkpoints.LEADER_EPOCH]

    @property
    def append_files(self) -> tuple[str, ...]:
        """The names of its append files."""
        prefix = layout.append_file(*self.folder, "")
        names = [key.removeprefix(prefix) for key in self.keys if key.startswith(prefix)]
        return tuple(filter(layout.is_born_name, names))

    def description(self) -> Description | None:
        """Return the stored description, or None if there is none."""
        found = self._decoded(topic_description.NAME, topic_description.decode, None)
        if found is not None and (found.topic.name, found.topic.topic_id) != self.folder:
            raise CorruptObject(
                f"{self.store.url}/{self.folder.prefix}{topic_description.NAME}",
                f"it describes topic {found.topic.name!r} with the id {found.topic.topic_id}",
            )
        return found

    def recovery_points(self) -> dict[int, int]:
        """Return the offset of each partition up to which the node had its rows in segments."""
        return self._offsets(checkpoints.RECOVERY_POINT, "checkpoint ")

    def high_watermarks(self) -> dict[int, int]:
        """Return the high watermark of each partition, as the node knew it."""
        return self._offsets(checkpoints.REPLICATION)

    def epochs(self, number: int) -> EpochStarts:
        """Return the leader epochs of a partition, as the node knew them."""
        return self._decoded(f"{number}/{checkpoints.LEADER_EPOCH}", checkpoints.decode_epochs, ())

    def journal(self, environment: Environment) -> Journal[topic.Topic, Any]:
        """Return the topic's journal, as far as it is on this store."""
        return Journal(OneStore(self.store), layout.topic_journal(*self.folder), topic.MACHINE, environment)

    def chunks(
        self,
        state: topic.Topic,
        number: int,
        chunks: Iterable[ChunkRef],
        schemas: Sequence[pa.Schema] | None = None,
        where: str = "",
    ) -> Iterator[tuple[ChunkRef, str, CorruptObject | ObjectMissing | None]]:
        """Read chunks of a partition in append files, as `state` names them; with `schemas` decode their rows, too.

        Yield each with the key of its file, and what is wrong with it. `where` precedes the offset in errors. Raises
        `NewerFormat`, `StoreError`.
        """
        for chunk in chunks:
            key = layout.append_file(*self.folder, state.file(chunk.file).name)
            name = f"{where}offset {chunk.base_offset}"
            wrong: CorruptObject | ObjectMissing | None = None
            try:
                if schemas is None:
                    append_file.read_bytes(self.store, key, chunk.place(number), name)
                else:
                    append_file.read_chunk(self.store, key, chunk.place(number), schemas, name)
            except (CorruptObject, ObjectMissing) as error:
                wrong = error
            yield chunk, key, wrong

    def read_append_file(self, name: str) -> tuple[int, CorruptObject | None]:
        """Return how many rows the good chunks at the beginning of an append file have, and what is wrong after them.

        Raises `ObjectMissing`, `NewerFormat`, `StoreError`.
        """
        rows = 0
        try:
            for _, header, _ in append_file.scan(self.store, layout.append_file(*self.folder, name)):
                rows += header.rows
        except CorruptObject as error:
            return rows, error
        return rows, None

    def _in_partition(self, key: str) -> tuple[int | None, str]:
        """Return the partition in whose folder a key is, or None, and the rest of the key."""
        number, _, name = key.removeprefix(self.folder.prefix).partition("/")
        # Other folders, such as "00" and "20260131", are not the product's.
        is_partition = _is_number(number) and number == str(int(number)) and int(number) < PARTITIONS_MAX
        return (int(number) if is_partition else None), name

    def _offsets(self, name: str, kind: str = "") -> dict[int, int]:
        none: dict[tuple[str, int], int] = {}
        offsets = self._decoded(name, checkpoints.decode_offsets, none, kind)
        where = f"{kind}{self.store.url}/{self.folder.prefix}{name}"
        for named, number in offsets:
            if named != self.folder.topic or number >= PARTITIONS_MAX:
                raise CorruptObject(where, f"it names {named}-{number}, which topic {self.folder.topic!r} cannot have")
        return {number: offset for (_, number), offset in offsets.items()}

    def _decoded(self, name: str, decode: Callable[[bytes, str], T], default: T, kind: str = "") -> T:
        """Return a file of the folder, decoded, or `default` if it is missing. `kind` is what errors call it."""
        key = f"{self.folder.prefix}{name}"
        try:
            return reread(self.store, lambda: decode(self.store.read(key), f"{kind}{self.store.url}/{key}"))
        except ObjectMissing:
            return default


def scan(store: Store, folder: TopicFolder, progress: Callable[[int], object] = lambda _: None) -> FolderContents:
    """Read a topic's folder. Call `progress` with the number of bytes read since the last call.

    Raises `NewerFormat`, `StoreError`.
    """
    here = NodeFolder(store, folder)
    damaged: list[str] = []

    def undamaged(read: Callable[[], T], default: T) -> T:
        try:
            return read()
        except CorruptObject as error:
            damaged.append(str(error))
            return default

    found = [_read_segment(store, number, key, progress) for number, key in here.segments]
    journal = layout.topic_journal(*folder)
    remains = tuple(key for key in here.keys if key.startswith(journal))
    described = undamaged(here.description, None)
    none: dict[int, int] = {}
    high_watermarks = undamaged(here.high_watermarks, none)
    epochs = {
        number: starts
        for number in here.with_epochs
        if (starts := undamaged(functools.partial(here.epochs, number), None)) is not None
    }
    numbers = [layout.born_of(name) for name in here.append_files]
    numbers += [layout.born_of(each.file.name) for each in found]
    numbers += [] if described is None else [described.number]
    return FolderContents(
        segments=tuple(found),
        append_files=here.append_files,
        high_watermarks=high_watermarks if described is None else none,
        epochs={
            number: starts
            for number, starts in epochs.items()
            if described is None or _continues(starts, number, described.topic)
        },
        description=described,
        newest=max([*filter(_is_entry, numbers), newest_in(store, journal, remains)]),
        damaged=tuple(damaged),
    )


def _continues(starts: EpochStarts, number: int, described: topic.Topic) -> bool:
    """Return whether a checkpoint has the newest leader epoch of a description, and a later one.

    So a process with an older state wrote the description last, or one was killed before it did. A changed digit in a
    checkpoint of the same state does not add an epoch.
    """
    known = described.partitions
    return number < len(known) and known[number].epoch_starts[-1][0] in dict(starts[:-1])


def newest_in(store: Store, journal: str, remains: tuple[str, ...]) -> int:
    """Return the largest number of an entry or a snapshot in the remains of a journal, or 0 if there are none."""
    numbers = [next(filter(_is_entry, snapshot.numbers(store, journal)), 0)]
    for key in remains:
        folder, _, name = key.removeprefix(journal).rpartition("/")
        if folder.partition(".")[0] != "entries":
            continue
        numbers += [slot for slot in (slot_of(name), register_slot_of(name)) if slot is not None]
    return max(filter(_is_entry, numbers))


def _is_entry(number: int) -> bool:
    return number <= _ENTRY_MAX


def _summary(
    name: str, base_offset: int, log_bytes: int, entries: list[IndexEntry], keyed: KeyedCounts | None = None
) -> SegmentFile:
    """Return the description of a segment of these chunks, possibly none."""
    return SegmentFile(
        name,
        base_offset,
        entries[-1].end_offset if entries else base_offset,
        len(entries),
        log_bytes,
        min((each.min_timestamp for each in entries), default=0),
        max((each.max_timestamp for each in entries), default=0),
        keyed,
    )


def _read_segment(store: Store, number: int, key: str, progress: Callable[[int], object]) -> FoundSegment:
    """Read the segment of a partition at `key`. A damaged one has no leader epochs if its header is."""
    stem = key.rpartition("/")[2]
    size = store.size(layout.segment_file(key))
    epochs: EpochStarts = ()
    keyed = None
    named = layout.base_offset_of(stem)
    try:
        begin, epochs = segment.epochs_of(store, key)
        if begin != named:
            name = f"segment {store.url}/{layout.segment_file(key)}"
            raise CorruptObject(name, f"it begins at offset {begin}, not {named} as its name says")
        keyed = segment.keyed_counts(store, key)
        read = recovery.read_segment(store, key)
    except CorruptObject as error:
        epochs, read = (), recovery.ReadSegment(key, named, [], str(error), is_indexed=False)
    progress(size)
    return FoundSegment(number, _summary(stem, named, size, read.entries, keyed), epochs, read.why, read.is_indexed)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
