"""Compaction tasks: they write a keyed segment, which has the newest row of each key of its range.

A fold reads its rows twice: their keys, to find the newest row of each, and then all columns of these, in order. It
looks its keys up in the key indexes of the keyed segments before it, and writes the offsets of the rows that it finds
there: they are superseded. With a version column it is the other way round for rows whose version is smaller than that
of the row that is there: they are left out. A merge reads keyed segments, without their superseded rows. It looks up
the keys of rows that delete theirs, and whose time is past, in the key indexes before it: they stay while an older row
is left. Both keep some 70 bytes of each row in memory, with versions 86, and the rows of a row group; of the
segments that are looked up one key index at a time.

Keys are compared by 96 bits of two hashes, see `pyspark_log_storage.columns.key_hash`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyspark_log_coordinator.model.partition import Keyed
from pyspark_log_storage.columns import key_index
from pyspark_log_storage.columns.column_conversion import as_newest
from pyspark_log_storage.columns.key_index import NONE, Keys, deletes, is_in, keys_in
from pyspark_log_storage.files import chunk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pyspark_log_coordinator.maintenance.roll_input import RollInput, RollTask
    from pyspark_log_coordinator.model.partition import SegmentRef
    from pyspark_log_coordinator.segments.compaction_plan import Compaction
    from pyspark_log_storage.files.row_files import SegmentFile
    from pyspark_log_storage.parquet.keyed_segment import KeyedSegmentWriter

    Offsets = NDArray[np.int64]


def compact(rows: RollInput, work: RollTask, writer: KeyedSegmentWriter) -> tuple[SegmentFile, Keyed]:
    """Write the rows of a job; return the segment, and what the journal has to know of it.

    Raises `CorruptObject`, `StoreError`, `NotAsParquet`.
    """
    job = work.job
    is_merge = bool(job.segments) and job.segments[0].keyed is not None
    return _merge(rows, work, writer) if is_merge else _fold(rows, work, writer)


def _fold(rows: RollInput, work: RollTask, writer: KeyedSegmentWriter) -> tuple[SegmentFile, Keyed]:
    job, compaction = work.job, work.job.compaction
    assert compaction is not None
    keys = _keys_of(rows, work)
    last = keys.chosen(keys.offsets == job.end_offset - 1)
    newest = key_index.newest(keys)
    del keys
    known = np.sort(np.concatenate([NONE, *(rows.superseded(each) for each in range(len(compaction.others)))]))
    found = []
    supersedes = []
    is_newest = np.ones(len(newest.offsets), bool)
    for number, other in enumerate(compaction.others):
        theirs, older = key_index.compared(rows.found_keys(number, newest), newest, known, compaction.log_start)
        is_newest[older] = False
        found.append(theirs)
        if len(theirs):
            supersedes.append((other.name, len(theirs)))
    newest = newest.chosen(is_newest)
    if not len(newest.offsets):  # a segment has rows: the last one stays, and is superseded by what is there
        newest = last
        found.append(np.array([job.end_offset - 1], np.int64))
    kept = np.sort(newest.offsets) if len(newest.offsets) else found[-1]
    tombstones = 0
    for batch, offsets, schema_id, epoch in _dense_rows(rows, work):
        is_kept = is_in(offsets, kept)
        if is_kept.any():
            chosen = batch.filter(pa.array(is_kept))
            tombstones += int(deletes(chosen, compaction.columns).sum())
            writer.append_at(chosen, offsets[is_kept], schema_id, epoch)
    superseded = np.sort(np.concatenate([NONE, *found]))
    done = writer.close_at(job.end_offset, superseded, newest, tombstones)
    return done, Keyed(len(kept), tombstones, compaction.at_ms, supersedes=tuple(supersedes))


def _merge(rows: RollInput, work: RollTask, writer: KeyedSegmentWriter) -> tuple[SegmentFile, Keyed]:
    job, compaction = work.job, work.job.compaction
    assert compaction is not None
    own = [rows.superseded(number, of_others=False) for number in range(len(job.segments))]
    dead = np.sort(np.concatenate([NONE, *own, *(rows.superseded(each) for each in range(len(compaction.others)))]))
    needed = _with_older_rows(rows, work, dead)
    keys: list[Keys] = []
    count = tombstones = 0
    last = None

    def write(batch: pa.RecordBatch, offsets: Offsets, schema_id: int, epoch: int) -> None:
        nonlocal count, tombstones
        writer.append_at(batch, offsets, schema_id, epoch)
        count += batch.num_rows
        tombstones += int(deletes(batch, compaction.columns).sum())
        keys.append(keys_in(batch, offsets, compaction.columns))

    for segment, batch, offsets, schema_id, epoch in rows.keyed_rows():
        is_kept = ~is_in(offsets, dead)
        if _is_past(segment, compaction):
            is_kept &= ~deletes(batch, compaction.columns) | is_in(offsets, needed)
        last = batch.slice(batch.num_rows - 1), offsets[-1:], schema_id, epoch
        if is_kept.any():
            write(batch.filter(pa.array(is_kept)), offsets[is_kept], schema_id, epoch)
    older = key_index.union(*own)
    is_of_others = older < job.base_offset
    if not count:
        assert last is not None
        write(*last)  # a segment has rows, as a batch in Kafka's log keeps its last offset
        is_of_others |= older == last[1]
    index = key_index.newest(key_index.joined(keys, is_versioned=bool(compaction.columns.version)))
    done = writer.close_at(job.end_offset, older[is_of_others], index, tombstones)
    cleaned = max(each.keyed.cleaned_ms for each in job.segments if each.keyed is not None)
    return done, Keyed(count, tombstones, cleaned)


def _with_older_rows(rows: RollInput, work: RollTask, dead: Offsets) -> Offsets:
    """Return the offsets, ascending, of rows of a merge whose keys have rows in the keyed segments before it, too.

    Only those are looked up that may delete their key, whose time is past, and that are not superseded, which `dead`
    are.
    """
    compaction = work.job.compaction
    assert compaction is not None
    past = [
        number
        for number, each in enumerate(work.job.segments)
        if _is_past(each, compaction) and _may_delete_keys(each, compaction)
    ]
    if not past or not work.older:
        return NONE
    keys = key_index.joined(rows.keys(number, of_older=False) for number in past)
    own = key_index.newest(keys.chosen(~is_in(keys.offsets, dead)))
    found = (key_index.found_in(own, rows.keys(number, of_older=True)).offsets for number in range(len(work.older)))
    return key_index.union(*found)


def _is_past(segment: SegmentRef, compaction: Compaction) -> bool:
    """Return whether delete.retention.ms has passed since the rows of a keyed segment were compacted."""
    return segment.keyed is not None and segment.keyed.cleaned_ms <= compaction.kept_from_ms


def _may_delete_keys(segment: SegmentRef, compaction: Compaction) -> bool:
    """Return whether rows of a keyed segment may delete their keys. They were counted, maybe by another delete.when."""
    return bool(compaction.columns.delete_when) or (segment.keyed is not None and segment.keyed.tombstones > 0)


def _dense_rows(rows: RollInput, work: RollTask) -> Iterator[tuple[pa.RecordBatch, Offsets, int, int]]:
    """Yield the rows of a fold, chunk by chunk, with their offsets, schema and leader epoch."""
    reached = work.job.base_offset
    for epoch, header, data, name in rows.chunks():
        batch = as_newest(chunk.decode(data, header, work.schemas, name), work.schemas[-1])
        yield batch, np.arange(reached, reached + header.rows, dtype=np.int64), header.schema_id, epoch
        reached += header.rows


def _keys_of(rows: RollInput, work: RollTask) -> Keys:
    """Return the keys of all rows that have one, and were not deleted."""
    assert work.job.compaction is not None
    columns = work.job.compaction.columns
    found = []
    reached = work.job.base_offset
    for _, header, data, name in rows.chunks():
        known = work.schemas[header.schema_id].names
        names = tuple(each for each in (*columns.keys, columns.version) if each in known)
        if names:
            batch = chunk.decode(data, header, work.schemas, name, names)
            offsets = np.arange(reached, reached + header.rows, dtype=np.int64)
            found.append(keys_in(batch, offsets, columns))
        reached += header.rows
    keys = key_index.joined(found, is_versioned=bool(columns.version))
    return keys.chosen(keys.offsets >= work.job.compaction.log_start)
