"""Compaction tasks: they clean the dense rows of a job, or write neighbouring segments of the head as one.

The dense rows are read twice: their keys, to find the newest row of each, and then all columns of these. Of the
segments of the head the keys are read, to find the rows that stay; those of which not all do are written again, a row
group at a time. In memory are the keys of the dense rows, as many keys of the head, and a bit for each row of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_log_coordinator.segments.compaction_plan import Output, Source, outputs
from pyspark_log_storage.columns.column_conversion import as_newest
from pyspark_log_storage.columns.keys import deletes, is_in, keys_in, matched, newest
from pyspark_log_storage.files import chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from pyspark_log_coordinator.maintenance.roll_input import RollInput, RollTask
    from pyspark_log_storage.files.row_files import SegmentFile, StagedChunk
    from pyspark_log_storage.parquet.parquet_segment import ParquetSegmentWriter

    Offsets = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Rows = tuple[pa.RecordBatch, Offsets, int, int]


class Compacted(NamedTuple):
    """A segment that was written, and what the journal has to know of it."""

    file: SegmentFile
    output: Output
    cleaned_ms: int


class _Staying(NamedTuple):
    """Which rows of a segment of the head stay, as bits; how many it has, and the offset of the last one."""

    bits: NDArray[np.uint8]
    rows: int
    last: int

    def flags(self) -> Flags:
        return np.unpackbits(self.bits, count=self.rows).view(bool)


class Compactor:
    """Does one job."""

    def __init__(self, rows: RollInput, work: RollTask) -> None:
        assert work.job.compaction is not None
        self._rows, self._work, self._needs = rows, work, work.job.compaction
        self._head = [each for each in work.job.segments if each.keyed is not None]
        self._dense_begin = self._head[-1].end_offset if self._head else work.job.base_offset

    def compact(self, new_writer: Callable[[int], ParquetSegmentWriter]) -> Iterator[Compacted]:
        """Write the segments of the job, and yield each when it is published.

        `new_writer` returns the writer of a segment with a base offset. Raises `CorruptObject`, `StoreError`,
        `NotAsParquet`.
        """
        cleaned = newest(self._dense_keys())
        staying = [self._staying(number, cleaned.keys) for number in range(len(self._head))]
        sources = [
            Source(ref.base_offset, ref.end_offset, each.last, stay := int(each.flags().sum()), stay < each.rows)
            for ref, each in zip(self._head, staying, strict=True)
        ]
        end = self._work.job.end_offset
        if self._dense_begin < end:
            sources.append(Source(self._dense_begin, end, end - 1, len(cleaned.offsets), is_changed=True))
        newest_dense = np.sort(cleaned.offsets)
        for output in outputs(sources, makes_one=self._needs.makes_one):
            if output.placeholder is None:
                found = self._staying_rows(output, staying, newest_dense)
            else:
                found = self._row_at(output.placeholder, output.sources[-1])
            yield self._written(output, found, new_writer(output.base_offset))

    def _written(self, output: Output, found: Iterator[Rows], writer: ParquetSegmentWriter) -> Compacted:
        tombstones = 0
        try:
            for batch, offsets, schema_id, epoch in found:
                writer.append(batch, schema_id, epoch, offsets)
                tombstones += int(deletes(batch, self._needs.columns).sum())
            done = writer.close(output.end_offset, tombstones, output.placeholder)
        except BaseException:
            writer.discard()
            raise
        cleaned = (self._head[number].cleaned_ms for number in output.sources if number < len(self._head))
        return Compacted(done, output, max(cleaned, default=0))

    def _dense_keys(self) -> Iterator[tuple[pa.Array, Offsets]]:
        """Yield the keys of the dense rows that were not deleted, and their offsets."""
        columns, schemas = self._needs.columns, self._work.schemas
        for place, data, name, offsets, _ in self._dense_chunks():
            names = tuple(each for each in columns.keys if each in schemas[place.schema_id].names)
            if names:
                keys = keys_in(chunk.decode(data, place, schemas, name, names), columns)
                first = int(np.searchsorted(offsets, self._needs.log_start))
                yield keys[first:], offsets[first:]

    def _staying(self, number: int, newer: pa.Array) -> _Staying:
        """Return which rows of a segment of the head stay: those without a `newer` row that are not past their time."""
        needs, segment = self._needs, self._head[number]
        assert segment.keyed is not None
        may_be_past = segment.cleaned_ms <= needs.kept_from_ms
        columns = needs.columns.of_live_rows if may_be_past else needs.columns.keys
        is_past: list[Flags] = []

        def keys() -> Iterator[tuple[pa.Array, Offsets]]:
            for batch, offsets, _, _ in self._rows.keyed_rows(number, columns):
                is_past.append(deletes(batch, needs.columns) if may_be_past else np.zeros(len(offsets), bool))
                yield keys_in(batch, needs.columns), offsets

        stays, last = [], -1
        for offsets, has_key, has_newer in matched(keys(), newer):
            stays.append(has_key & ~has_newer & (offsets >= needs.log_start))
            last = int(offsets[-1])
        stay = np.concatenate(stays) & ~np.concatenate(is_past)
        if segment.keyed.placeholder is not None:
            stay[:] = False
        return _Staying(np.packbits(stay), len(stay), last)

    def _staying_rows(self, output: Output, staying: list[_Staying], newest_dense: Offsets) -> Iterator[Rows]:
        for number in output.sources:
            if number == len(self._head):
                yield from _chosen(self._dense_rows(), lambda offsets, _: is_in(offsets, newest_dense))
                continue
            flags = staying[number].flags()
            if flags.any():
                yield from _chosen(self._rows.keyed_rows(number), _flagged(flags))

    def _row_at(self, offset: int, number: int) -> Iterator[Rows]:
        found = self._dense_rows() if number == len(self._head) else self._rows.keyed_rows(number)
        yield from _chosen(found, lambda offsets, _: offsets == offset)

    def _dense_rows(self) -> Iterator[Rows]:
        """Yield the dense rows, chunk by chunk, with their offsets, schema and leader epoch."""
        schemas = self._work.schemas
        for place, data, name, offsets, epoch in self._dense_chunks():
            yield as_newest(chunk.decode(data, place, schemas, name), schemas[-1]), offsets, place.schema_id, epoch

    def _dense_chunks(self) -> Iterator[tuple[StagedChunk, pa.Buffer, str, Offsets, int]]:
        reached = self._dense_begin
        for epoch, place, data, name in self._rows.chunks(len(self._head)):
            yield place, data, name, np.arange(reached, reached + place.rows, dtype=np.int64), epoch
            reached += place.rows


def _flagged(flags: Flags) -> Callable[[Offsets, int], Flags]:
    return lambda offsets, at: flags[at : at + len(offsets)]


def _chosen(found: Iterator[Rows], stays: Callable[[Offsets, int], Flags]) -> Iterator[Rows]:
    """Yield those rows that stay, by their offsets and the number of rows before them."""
    at = 0
    for batch, offsets, schema_id, epoch in found:
        stay = stays(offsets, at)
        at += len(offsets)
        if stay.all():
            yield batch, offsets, schema_id, epoch
        elif stay.any():
            yield batch.filter(pa.array(stay)), offsets[stay], schema_id, epoch
