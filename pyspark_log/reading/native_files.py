"""Which rows of a batch read are in files that an engine reads by itself: Parquet segments on disks, or in S3.

Small segments that maintenance will merge are left to the source, which finds their rows again: a frame may be used
long after it was made.

The rows of a partition are split at the offsets where such files begin and end; the source reads the rows between
files. Rows below the high watermark never change, so these offsets need no lock, whatever rolls, merges or commits in
the meantime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log.reading.planning import Range
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, NewerFormat, StoreError
from pyspark_log_storage.stores.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_log.reading.positions import Subscribed
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import SegmentRef

_GLOB = set("*?[]{}\\")
"""Characters of a path that Hadoop would take for a pattern."""
_S3 = "s3://"

GAPS_MAX = 4
"""How many ranges of a partition may be left to the source: each is a scan of its own in Spark's plan."""


class NativeRows(msgspec.Struct, frozen=True):
    """Files with rows of a partition. Their rows within the range are to be read, and none is in two of them."""

    rows: Range
    files: tuple[str, ...]
    """URLs as Hadoop has them, in the order of their offsets: `file:///...`, `s3a://...`."""
    is_cut: bool
    """Whether the files hold other rows, too."""


def divide(
    now: Subscribed, ranges: Iterable[Range], *, in_s3: bool, all_files: bool = False
) -> tuple[list[NativeRows], list[Range]]:
    """Return what of the ranges an engine can read from files, and the ranges of the rest. None of them is empty.

    `in_s3`: whether it reads what is in S3, too. With `all_files` it also reads those that may be rewritten.
    """
    native, rest = [], []
    for each in ranges:
        found, gaps = _divided(now.handles[each.topic], each, now.rack, in_s3=in_s3, all_files=all_files)
        native += [found] if found.files else []
        rest += gaps
    return native, rest


def _divided(
    handle: TopicHandle, wanted: Range, rack: str, *, in_s3: bool, all_files: bool
) -> tuple[NativeRows, list[Range]]:
    """Return the files with rows of a range, and at most `GAPS_MAX` ranges of the rows between and after them."""
    partition = handle.partitions[wanted.partition]
    files: list[str] = []
    gaps: list[Range] = []
    is_cut, read = False, wanted.start
    for segment in partition.segments_between(wanted.start, wanted.end):
        if not segment.is_parquet or not (all_files or handle.will_stay(segment)):
            continue
        url = _url(handle, wanted.partition, segment, rack, in_s3=in_s3)
        if url is None:
            continue
        if read < segment.base_offset:
            if len(gaps) == GAPS_MAX - 1:
                break
            gaps.append(msgspec.structs.replace(wanted, start=read, end=segment.base_offset))
        files.append(url)
        is_cut |= segment.base_offset < wanted.start or segment.end_offset > wanted.end
        read = segment.end_offset
    if read < wanted.end:
        gaps.append(msgspec.structs.replace(wanted, start=read))
    return NativeRows(wanted, tuple(files), is_cut), gaps


def _url(handle: TopicHandle, partition: int, segment: SegmentRef, rack: str, *, in_s3: bool) -> str | None:
    """Return the URL of a segment's file on the nearest node that holds it and that an engine can read, or None.

    A file on a disk that is missing, cut, or another one than the journal says, by its footer, is left out: other
    readers turn to another node, or say what is wrong. In S3, where it would be a request for each segment, this is not
    checked.
    """
    log, state = handle.log, handle.state
    nodes = log.nearest_first(rack=rack, leader=state.partitions[partition].leader)
    key = layout.segment_file(handle.segment(partition, segment.name))
    for node in log.reachable_holders(state, nodes, segment.holders):
        store = log.node_store(node)
        if _GLOB & set(store.url):
            continue
        if isinstance(store, LocalStore) and _is_there(store, key, segment):
            return f"file://{store.url}/{key}"
        if in_s3 and store.url.startswith(_S3):
            return f"s3a://{store.url.removeprefix(_S3)}/{key}"
    return None


def _is_there(store: LocalStore, key: str, segment: SegmentRef) -> bool:
    """Return whether a file is that of a segment, by its footer."""
    from pyspark_log_storage.parquet import parquet_footer

    try:
        return parquet_footer.read(store, key).file_bytes == segment.log_bytes
    except (CorruptObject, NewerFormat, StoreError):
        return False
