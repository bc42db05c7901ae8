"""A check of a node that returns: which rows in its folder belong to the log, by leader epochs.

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
from pyspark_log_storage.errors import CorruptObject, ObjectMissing
from pyspark_log_storage.files.index import Index
from pyspark_log_storage.files.row_files import EpochStarts
from pyspark_log_storage.objects.node import require_marker
from pyspark_log_storage.segments import recovery, segment

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import Partition
    from pyspark_log_storage.stores.store import Store


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
