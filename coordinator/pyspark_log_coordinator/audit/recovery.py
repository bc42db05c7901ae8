"""Recovery of one node: up to which offset the files in its folder are undamaged.

Segments are checked from their folder alone (`segments/recovery`). Unrolled rows, which are after a partition's
recovery point, are in append files. These do not contain the offsets of their chunks: the topic's journal does, or its
description, which may be older. Every chunk has a checksum, so a damaged file is found without either.

`verify` instead checks what the journals name, on every node, and needs them.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.rebuild.folder_scan import NodeFolder, TopicFolder
from pyspark_log_storage import layout
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing
from pyspark_log_storage.objects.node import read_marker
from pyspark_log_storage.segments import recovery
from pyspark_log_storage.segments.recovery import BadFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.model.partition import NodeId
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
    for topic_id in store.folders(f"{layout.TOPICS}{topic}/"):
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
