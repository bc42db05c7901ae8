"""Which rows of a batch read are in files that an engine reads by itself: Parquet segments on a file system.

The rows of a partition are cut in two at one offset: the first are in such files, one after the other, and the rest is
for the source. Rows below the high watermark never change, so the cut needs no lock, whatever rolls, merges or commits
in the meantime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log.client.read.planning import Range
from pyspark_log_coordinator.log.nearest_holders import nearest_first, reachable_holders
from pyspark_log_storage import layout
from pyspark_log_storage.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_log.client.read.positions import Subscribed
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import SegmentRef

_GLOB = set("*?[]{}\\")
"""Characters of a path that Hadoop would take for a pattern."""


class NativeRows(msgspec.Struct, frozen=True):
    """Rows of a partition, and the files that hold them; the first file may begin before them, the last end after."""

    rows: Range
    files: tuple[str, ...]
    """Absolute paths."""
    is_cut: bool
    """Whether the files hold other rows, too."""


def divide(now: Subscribed, ranges: Iterable[Range]) -> tuple[list[NativeRows], list[Range]]:
    """Return what of the ranges an engine can read from files, and the ranges of the rest. None of them is empty."""
    native, rest = [], []
    for each in ranges:
        found = _native(now.handles[each.topic], each, now.rack)
        if found is not None:
            native.append(found)
        begin = each.start if found is None else found.rows.end
        if begin < each.end:
            rest.append(Range(each.topic, each.partition, begin, each.end))
    return native, rest


def _native(handle: TopicHandle, wanted: Range, rack: str) -> NativeRows | None:
    """Return the first rows of a range, as far as they are in files, or None if the first row is not."""
    partition = handle.journal.state.partitions[wanted.partition]
    files: list[str] = []
    segments = partition.segments_between(wanted.start, wanted.end)
    end = wanted.start
    for segment in segments:
        path = _path(handle, wanted.partition, segment, rack) if segment.is_parquet else None
        if path is None:
            break
        files.append(path)
        end = segment.end_offset
    if not files:
        return None
    is_cut = segments[0].base_offset < wanted.start or end > wanted.end
    return NativeRows(Range(wanted.topic, wanted.partition, wanted.start, min(end, wanted.end)), tuple(files), is_cut)


def _path(handle: TopicHandle, partition: int, segment: SegmentRef, rack: str) -> str | None:
    """Return the path of a segment's file on the nearest node that is a folder and holds it, or None."""
    log, state = handle.log, handle.journal.state
    nodes = nearest_first(log, rack=rack, leader=state.partitions[partition].leader)
    key = layout.segment_file(handle.segment(partition, segment.name))
    for node in reachable_holders(log, state, nodes, segment.holders):
        store = log.node_store(node)
        if isinstance(store, LocalStore) and not _GLOB & set(store.url):
            return f"{store.url}/{key}"
    return None
