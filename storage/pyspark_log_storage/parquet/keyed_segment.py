"""A keyed segment: a Parquet segment that compaction made, with only some rows of the offsets that it covers.

    b"PAR1" | row group | row group | ... | superseded | keys | versions | page indexes | footer  see `parquet_segment`

    superseded    int64[count]: the offsets of rows of earlier keyed segments of the partition for whose keys this one
                  has newer rows, ascending. Such rows may be gone. The last may be that of the segment's own last row,
                  which is then there only because a segment has rows, and is not the newest of a key
    keys          uint64[count] hashes | uint32[count] checks | uint32[count] offsets, relative to the base: of each row
                  with a key, in the order of hash and check, see `pyspark_log_storage.columns.key_hash`
    versions      int64[count]: the versions of the same rows, in the same order, see
                  `pyspark_log_storage.columns.key_index`; only in a topic with compaction.version.column

Numbers are little-endian. The footer says how long the lists are, and has a CRC-32C of each; each is read alone.
The offsets of the rows are those in the column `offset`, ascending. A row group covers the offsets from the end of the
one before to its last row, the last one up to the segment's end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import google_crc32c
import msgspec
import numpy as np
import pyarrow as pa

from pyspark_log_storage.columns import key_index
from pyspark_log_storage.columns.column_conversion import as_newest
from pyspark_log_storage.columns.key_index import Keys
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.parquet import parquet_footer, row_group
from pyspark_log_storage.parquet.parquet_footer import KeyedSections, Section
from pyspark_log_storage.parquet.parquet_segment import ParquetSegmentWriter, check_offsets
from pyspark_log_storage.stores.failover import rereads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pyspark_log_storage.columns.key_index import Found
    from pyspark_log_storage.files.index import IndexEntry
    from pyspark_log_storage.files.row_files import SegmentFile
    from pyspark_log_storage.parquet.parquet_footer import Footer
    from pyspark_log_storage.stores.store import Readable

    Offsets = NDArray[np.int64]

_OFFSET = pa.field("offset", pa.int64(), nullable=False)


class KeyedSegmentWriter(ParquetSegmentWriter):
    """Writes a keyed segment, as `ParquetSegmentWriter` writes others."""

    def append_at(self, batch: pa.RecordBatch, offsets: Offsets, schema_id: int, leader_epoch: int) -> None:
        """Append rows with these offsets, which ascend. Raises `NotAsParquet`, `StoreError`."""
        newest = as_newest(batch, self._schemas[-1])
        placed = newest.append_column(_OFFSET, pa.array(offsets, pa.int64()))
        self._append(placed, schema_id, leader_epoch)

    def close_at(self, end_offset: int, superseded: Offsets, keys: Keys, tombstones: int) -> SegmentFile:
        """Publish both files, durably, as `close` does. The segment covers the offsets up to `end_offset`.

        `superseded` and `keys` are in the order of the lists. `tombstones` is how many rows delete their key. Raises
        `NotAsParquet`, `StoreError`.
        """
        self._flush()
        last = self._groups[-1]
        more = end_offset - self.end_offset_written
        assert more >= 0, "a row is beyond the end"
        self._groups[-1] = msgspec.structs.replace(last, span=last.span + more)
        self.end_offset = end_offset
        hashes, checks, offsets, versions = keys
        relative = (offsets - self._base_offset).astype("<u4")
        indexed = hashes.astype("<u8").tobytes() + checks.astype("<u4").tobytes() + relative.tobytes()
        lists = [(len(superseded), superseded.astype("<i8").tobytes()), (len(hashes), indexed)]
        if versions is not None:
            lists.append((len(versions), versions.astype("<i8").tobytes()))
        sections = [Section(count, len(data), google_crc32c.value(data)) for count, data in lists]
        for _, data in lists:
            self._stream.write(data)
        return self._close(KeyedSections(tombstones, *sections))

    def _offsets_of(self, rows: pa.Table) -> tuple[pa.Array, int]:
        offsets = rows.column("offset")
        return offsets, offsets[-1].as_py() + 1 - self.end_offset_written


def read_rows(
    store: Readable,
    key: str,
    footer: Footer,
    entry: IndexEntry,
    schemas: Sequence[pa.Schema],
    columns: Sequence[str] | None = None,
) -> tuple[pa.RecordBatch, Offsets]:
    """Return the rows of a row group, with the columns of its schema, and their offsets.

    With `columns` only those of them. `footer` may be that of another copy. Raises `CorruptObject`, `ObjectMissing`,
    `StoreError`.
    """
    placed = [
        pa.schema([_OFFSET, *(field for field in each if columns is None or field.name in columns)]) for each in schemas
    ]
    rows = row_group.read_by(store, key, footer, entry, placed)
    offsets = rows.column(0)
    check_offsets(offsets, entry, f"segment {store.url}/{key} at byte {entry.position}")
    return rows.select(rows.schema.names[1:]), np.asarray(offsets)


def has_every_key(footer: Footer) -> bool:
    """Return whether each row of a keyed segment has a key, so that its key index has the offsets of all rows."""
    keyed, counts = footer.segment.keyed, footer.segment.counts
    return keyed is not None and counts is not None and keyed.keys.count == counts.rows


def read_superseded(store: Readable, key: str, footer: Footer | None = None) -> Offsets:
    """Return the offsets of the rows that the segment at `key` supersedes, ascending.

    Raises `CorruptObject`, `ObjectMissing`, `NewerFormat`, `StoreError`.
    """
    footer, keyed, name = _lists(store, key, footer)
    data = _section(store, key, footer.segment.rows_end, keyed.superseded, name)
    offsets = np.frombuffer(data, "<i8").astype(np.int64, copy=False)
    is_right = not len(offsets) or (offsets[0] >= 0 and offsets[-1] < footer.entries[-1].end_offset)
    if not is_right or (offsets[1:] <= offsets[:-1]).any() or (offsets[:-1] >= footer.segment.base_offset).any():
        raise CorruptObject(name, "its list of superseded rows is out of order, or names rows that it cannot supersede")
    return offsets


def find_keys(store: Readable, key: str, wanted: Keys, footer: Footer | None = None) -> Found:
    """Return the rows of the segment at `key` with one of the wanted keys, whose hashes ascend.

    If these have versions, so have the rows. Reads its key index: 16 bytes for each of its rows are in memory, with
    versions 24. Raises `CorruptObject`, `ObjectMissing`, `NewerFormat`, `StoreError`.
    """
    index, base, end = _stored_keys(store, key, footer, with_versions=wanted.versions is not None)
    name = f"segment {store.url}/{key}"
    if (index.hashes[1:] < index.hashes[:-1]).any():
        raise CorruptObject(name, "its key index is out of order")
    if wanted.versions is not None and index.versions is None:
        raise CorruptObject(name, "its key index has no versions, where the topic has compaction.version.column")
    found = key_index.found_in(index, wanted)
    found = found._replace(offsets=found.offsets.astype(np.int64) + base)
    if len(found.offsets) and found.offsets.max() >= end:
        raise CorruptObject(name, "its key index names rows of others")
    return found


def read_keys(store: Readable, key: str, footer: Footer | None = None) -> Keys:
    """Return the key index of the segment at `key`. Raises `CorruptObject`, also where `find_keys` would not notice.

    Raises `ObjectMissing`, `NewerFormat`, `StoreError`, too.
    """
    (hashes, checks, relative, versions), base, end = _stored_keys(store, key, footer)
    is_next = hashes[1:] > hashes[:-1]
    is_next |= (hashes[1:] == hashes[:-1]) & (checks[1:] > checks[:-1])
    if not is_next.all() or (len(relative) and base + int(relative.max()) >= end):
        raise CorruptObject(f"segment {store.url}/{key}", "its key index is out of order, or names rows of others")
    return Keys(hashes, checks, relative.astype(np.int64) + base, versions)


def _stored_keys(
    store: Readable, key: str, footer: Footer | None, *, with_versions: bool = True
) -> tuple[Keys, int, int]:
    """Return the key index with offsets relative to the base; the base, and the end of the segment."""
    footer, keyed, name = _lists(store, key, footer)
    segment, count = footer.segment, keyed.keys.count
    position = segment.rows_end + keyed.superseded.length
    data = _section(store, key, position, keyed.keys, name)
    hashes, checks, relative = (
        np.frombuffer(data, width, count, at * count) for width, at in (("<u8", 0), ("<u4", 8), ("<u4", 12))
    )
    versions = None
    if with_versions and keyed.versions is not None:
        stored = _section(store, key, position + keyed.keys.length, keyed.versions, name)
        versions = np.frombuffer(stored, "<i8").astype(np.int64, copy=False)
    return Keys(hashes, checks, relative, versions), segment.base_offset, footer.entries[-1].end_offset


def _lists(store: Readable, key: str, footer: Footer | None) -> tuple[Footer, KeyedSections, str]:
    footer = parquet_footer.read(store, key) if footer is None else footer
    name = f"segment {store.url}/{key}"
    if footer.segment.keyed is None:
        raise CorruptObject(name, "it has every row of its range, where the journal says that compaction made it")
    return footer, footer.segment.keyed, name


@rereads
def _section(store: Readable, key: str, position: int, section: Section, name: str) -> bytes:
    """Return the bytes of a list, checked. Raises `CorruptObject`, `ObjectMissing`, `StoreError`."""
    data = store.read(key, position, section.length) if section.length else b""
    if len(data) != section.length or google_crc32c.value(data) != section.crc:
        raise CorruptObject(f"{name} at byte {position}", "its checksum does not match its bytes")
    return data
