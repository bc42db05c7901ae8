"""Recovery of one node: up to which offset the files in its folder are undamaged.

Segments are checked from their folder alone (`segments/recovery`). Unrolled rows, which are after a partition's
recovery point, are in append files. These do not contain the offsets of their chunks: the topic's journal does, or its
description, which may be older. Every chunk has a checksum, so a damaged file is found without either.

`verify` instead checks what the journals name, on every node, and needs them.

If the journals can be read, the folder of a node that returns is compared with them, by leader epochs (`inspect`).
While the node was missing, an election may have cut rows that it has, or a slow process may have finished a segment
that is no longer needed. Readers never see such a segment, because no entry names it, but a rebuild from the folder
would take its rows for the log's.

Such a stray is never swapped in later, because a swap under another leader epoch is refused (`swap`). So it may be
deleted at once, without waiting for the orphan floor. The folder is listed before the journal is read: what is newer
than the journal's leader epochs must not look like a stray.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.log.reachable_stores import ReachableStores
from pyspark_log_coordinator.maintenance.topic_cleanup import delete_files
from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_coordinator.rebuild.folder_scan import NodeFolder, TopicFolder
from pyspark_log_coordinator.replication import truncation
from pyspark_log_storage import layout
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing, UnknownTopic
from pyspark_log_storage.files.index import Index
from pyspark_log_storage.files.row_files import EpochStarts
from pyspark_log_storage.objects.node import read_marker, require_marker
from pyspark_log_storage.segments import recovery, segment
from pyspark_log_storage.segments.recovery import BadFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import Partition
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_storage.stores.store import Store


class RecoveredPartition(msgspec.Struct, frozen=True):
    """The result for a partition in a node's folder."""

    topic: str
    topic_id: str
    partition: int
    recovery_point: int
    good_up_to: int
    """The rows from the recovery point to this offset are good."""
    checked: tuple[str, ...]
    """The keys of the files that were read, without ending for segments."""
    rebuilt: tuple[str, ...]
    """The segments whose index was missing or damaged."""
    damage: BadFile | None
    """Why later rows are lost; None if there are none."""


class UnplacedFile(msgspec.Struct, frozen=True):
    """A damaged append file whose rows have no known offsets."""

    topic: str
    topic_id: str
    partition: None
    damage: BadFile


class _KnownTopic(msgspec.Struct, frozen=True):
    """The state of a topic, from its journal or its description."""

    topic: Topic
    is_newest: bool
    """Whether it is from the journal. Otherwise the topic may have newer rows."""


class _BadChunk(msgspec.Struct, frozen=True):
    """Rows `[base_offset, end_offset)`, which cannot be read."""

    base_offset: int
    end_offset: int
    damage: BadFile


class _Unrolled(msgspec.Struct, frozen=True):
    """The result for a partition's unrolled rows, in order."""

    files: tuple[str, ...] = ()
    """The keys of the checked append files."""
    good: tuple[tuple[int, int], ...] = ()
    """The first offset and the end of each good chunk."""
    bad: tuple[_BadChunk, ...] = ()

    def damage_behind(self, reached: int) -> _BadChunk | None:
        """Return the first bad chunk with rows from `reached` on. Earlier rows are also in good segments."""
        return next((each for each in self.bad if each.end_offset > reached), None)


def recover(
    store: Store,
    topic: str,
    environment: Environment,
    log: Log | None = None,
    *,
    everything: bool = False,
    dry_run: bool = False,
) -> Iterator[RecoveredPartition | UnplacedFile]:
    """Check the files of a topic on one node, and rebuild lost indexes unless it is a dry run.

    Yield the partitions of each incarnation of the topic, and its damaged append files whose rows have no known
    offsets. What is in append files is known from the journals of `log` or, without it, from the node's folder alone:
    the journals may be lost. With `everything` segments before the recovery points are checked, too. Raises
    `CorruptObject` for a damaged recovery point, `NewerFormat`, `StoreError`.
    """
    marker = read_marker(store)
    node = None if marker is None else marker.node
    for topic_id in filter(layout.is_id, store.folders(f"{layout.TOPICS}{topic}/")):
        folder = NodeFolder(store, TopicFolder(topic, topic_id))
        known = _known(folder, environment, log)
        partitions = known.topic.partitions if known is not None else ()
        # Without a description nobody knows whether the topic is typed.
        schemas = None if known is None else schema.decode_all(known.topic.schemas, f"topic {topic!r}")
        points = folder.recovery_points()
        with_rows = [number for number, each in enumerate(partitions) if each.chunks]
        for number in sorted({*points, *with_rows}):
            where, point = f"{folder.folder.prefix}{number}/", points.get(number, 0)
            newer = _Unrolled()
            if known is not None and schemas is not None and number in with_rows:
                newer = _unrolled(folder, known.topic, number, point, node, schemas)
            begin = recovery.first_offset(store, where, point) if everything else point
            one = recovery.recover(store, where, begin, schemas=schemas, unrolled=newer.good, dry_run=dry_run)
            bad = newer.damage_behind(one.end_offset)
            # A damaged chunk at the end of the intact rows is the cause; a later segment only lacks the rows before it.
            damage = bad.damage if bad is not None and bad.base_offset <= one.end_offset else one.damage
            damage = damage or (None if bad is None else bad.damage)
            checked = (*one.checked, *newer.files)
            yield RecoveredPartition(topic, topic_id, number, point, one.end_offset, checked, one.rebuilt, damage)
        for each in _damaged_unplaced(folder, known):
            yield UnplacedFile(topic, topic_id, None, each)


def _known(here: NodeFolder, environment: Environment, log: Log | None) -> _KnownTopic | None:
    """Return a topic's state from the journals or, if they do not have this incarnation, from its folder alone.

    That is from its journal if it is stored there, or from its description.
    """
    if log is not None:
        record = log.topics().get(here.folder.topic)
        if record is not None and record.topic_id == here.folder.topic_id:
            with contextlib.suppress(UnknownTopic):  # its deletion was interrupted, or came meanwhile
                return _KnownTopic(log.topic(here.folder.topic).state, is_newest=True)
    journal = here.journal(environment)
    try:
        if journal.refresh().started:
            return _KnownTopic(journal.state, is_newest=True)
    except LogError:
        pass
    try:
        described = here.description()
    except CorruptObject:
        return None
    return None if described is None else _KnownTopic(described.topic, is_newest=False)


def _unrolled(
    here: NodeFolder, topic: Topic, number: int, start: int, node: NodeId | None, schemas: Sequence[pa.Schema]
) -> _Unrolled:
    """Read the unrolled rows of a partition that a node holds, from offset `start` on.

    If `node` is None, missing files are no damage, because the node is not known. Raises `NewerFormat`, `StoreError`.
    """
    files: dict[str, None] = {}
    good, bad = [], []
    wanted = [
        each
        for each in topic.partitions[number].chunks
        if each.end_offset > start
        and (node is None or any(holder.node == node for holder in topic.file(each.file).holders))
    ]
    for chunk, key, wrong in here.chunks(topic, number, wanted, schemas):
        files[key] = None
        if wrong is None:
            good.append((chunk.base_offset, chunk.end_offset))
        elif isinstance(wrong, CorruptObject) or node is not None:
            why = str(wrong) if isinstance(wrong, CorruptObject) else "it is missing"
            bad.append(_BadChunk(chunk.base_offset, chunk.end_offset, BadFile(key, why)))
    return _Unrolled(tuple(files), tuple(good), tuple(bad))


def _damaged_unplaced(here: NodeFolder, known: _KnownTopic | None) -> Iterator[BadFile]:
    """Yield the damaged append files whose rows have no known offsets.

    None if the newest state of the topic is known: a file that it does not name is not in the log. Raises
    `NewerFormat`, `StoreError`.
    """
    if known is not None and known.is_newest:
        return
    placed = set() if known is None else {file.name for file in known.topic.files}
    for name in here.append_files:
        if name not in placed:
            with contextlib.suppress(ObjectMissing):  # deleted since it was listed
                _, wrong = here.read_append_file(name)
                if wrong is not None:
                    yield BadFile(layout.append_file(*here.folder, name), str(wrong))


class Stray(msgspec.Struct, frozen=True):
    """A segment that no entry names, whose rows from `cut` on are not in the log."""

    key: str
    """Without ending."""
    base_offset: int
    end_offset: int
    cut: int


class ReturnedNode(msgspec.Struct, frozen=True):
    """A partition in a node's folder, compared with the journal."""

    topic: str
    partition: int
    known_end: int
    """The end of the node's rows, by its folder."""
    belongs_to: int
    """The node's rows before this offset are in the log; later ones were cut."""
    log_end: int
    strays: tuple[Stray, ...]
    lacking: tuple[str, ...]
    """The segments that the node should hold and has not: its disk was restored from a backup."""


class _Local(msgspec.Struct, frozen=True):
    """A partition in a node's folder."""

    node_id: NodeId
    segments: dict[str, tuple[EpochStarts, int]]
    """By key without ending: the leader epochs in the header, and the end."""
    high_watermark: int
    epochs: EpochStarts


def inspect(handle: TopicHandle, node_id: NodeId) -> list[ReturnedNode]:
    """Return each partition of a topic that is in a node's folder or should be. Changes nothing.

    Raises `NodeMissing`, `NewerFormat`, `StoreError`.
    """
    store = handle.log.node_store(node_id)
    require_marker(store, node_id, handle.log.member(node_id).incarnation)
    folder = NodeFolder(store, TopicFolder(handle.name, handle.topic_id))
    stored: dict[int, list[str]] = defaultdict(list)
    for number, key in folder.segments:
        stored[number].append(key)
    state = handle.refresh()
    marks: dict[int, int] = {}
    with contextlib.suppress(CorruptObject):
        marks = folder.high_watermarks()
    found = []
    for number, partition in enumerate(state.partitions):
        if stored[number] or node_id in partition.replicas:
            segments = {key: _epochs_and_end(store, key) for key in stored[number]}
            epochs: EpochStarts = ()
            with contextlib.suppress(CorruptObject):
                epochs = folder.epochs(number)
            local = _Local(node_id, segments, marks.get(number, 0), epochs)
            found.append(_compare(handle, number, partition, local))
    return found


def remove_strays(handle: TopicHandle, node_id: NodeId, found: list[ReturnedNode]) -> int:
    """Delete the strays of a topic that `inspect` found on a node; return how many. Raises `StoreError`."""
    node = ReachableStores({node_id: handle.log.node_store(node_id)}, is_single=True)
    strays = [stray for each in found for stray in each.strays]
    delete_files(handle, node, {node_id: [key for each in strays for key in layout.segment_files(each.key)]})
    return len(strays)


def _compare(handle: TopicHandle, number: int, partition: Partition, local: _Local) -> ReturnedNode:
    """Compare a partition in a node's folder with the journal."""
    named = {handle.segment(number, each.name): each for each in (*partition.segments, *partition.staged)}
    strays = []
    for key, (its_epochs, end) in local.segments.items():
        cut = truncation.divergence(its_epochs, end, partition.epoch_starts, partition.log_end)
        if its_epochs and key not in named and cut < end:
            strays.append(Stray(key, layout.base_offset_of(key), end, cut))
    known_end = max([local.high_watermark, *(end for _, end in local.segments.values())])
    lacking = tuple(
        each.name
        for key, each in named.items()
        if key not in local.segments and any(holder.node == local.node_id for holder in each.holders)
    )
    belongs_to = truncation.divergence(local.epochs, known_end, partition.epoch_starts, partition.log_end)
    return ReturnedNode(handle.name, number, known_end, belongs_to, partition.log_end, tuple(strays), lacking)


def _epochs_and_end(store: Store, key: str) -> tuple[EpochStarts, int]:
    """Return the leader epochs in a segment's header, and its end; no epochs if it is damaged."""
    base_offset = layout.base_offset_of(key)
    try:
        _, epochs = segment.epochs_of(store, key)
    except (CorruptObject, ObjectMissing):
        return (), base_offset  # `recover` reports it
    with contextlib.suppress(CorruptObject, ObjectMissing):
        return epochs, int(Index(store, f"{key}.index").end_offset)
    entries, _ = recovery.good_chunks(store, key)
    return epochs, entries[-1].end_offset if entries else base_offset
