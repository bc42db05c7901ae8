"""Salvage: the good chunks of a segment or an append file that no node has whole.

    node 0    chunk 0   damaged   chunk 2   chunk 3
    node 1    chunk 0   chunk 1   damaged   damaged
    node 2    damaged   chunk 1   damaged   damaged

    salvaged  chunk 0   chunk 1   chunk 2   chunk 3      of any node, up to the first that no node has whole

Copies are equal byte for byte, so the next chunk begins at the same byte on every node. The salvaged chunks are written
as a segment whose name follows from its content, so doing it again writes the same segment. Row groups of a Parquet
segment are salvaged as chunks, if a node has the whole footer.

Chunks of an append file are salvaged only if the topic's description names them, at the same bytes of the same file.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, NewerFormat, ObjectMissing, OtherSegment
from pyspark_log_storage.files import append_file, chunk
from pyspark_log_storage.files.row_files import EpochStarts, SegmentFile, StagedChunk
from pyspark_log_storage.parquet import parquet_footer, row_group
from pyspark_log_storage.segments import segment
from pyspark_log_storage.segments.segment import SegmentWriter
from pyspark_log_storage.segments.transfer import RANGE_BYTES
from pyspark_log_storage.stores.failover import AllCopiesFailed, first_readable, stop_unless_damaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark_log_storage.files.chunk import Header
    from pyspark_log_storage.stores.store import Store


_Header = tuple[int, EpochStarts]
"""Base offset and leader epochs."""
_COMPRESSION = "lz4"
"""That of row groups which are salvaged. Always the same one: doing it again must write the same bytes."""


class Salvage(msgspec.Struct, frozen=True):
    """The segment that will be made of the good chunks of a damaged one."""

    partition: int
    file: SegmentFile
    epochs: EpochStarts
    """The leader epochs of its rows."""
    source: str
    """The name of the damaged segment."""
    nodes: tuple[NodeId, ...]
    """The nodes that have a copy of the damaged segment."""


def find(
    stores: Mapping[NodeId, Store], folder: str, partition: int, name: str, schemas: Sequence[pa.Schema]
) -> Salvage | None:
    """Return what can be made of the copies of a segment, or None if no chunk is good. Changes nothing.

    Of a keyed segment nothing is made: its rows would get other offsets.

    `folder` is the topic's, and ends with "/"; `schemas` are the topic's. Raises `NewerFormat`, `StoreError`.
    """
    key = f"{folder}{partition}/{name}"
    found, stores = _header(stores, key)
    if found is None or any(_is_keyed(store, key) for store in stores.values()):
        return None
    base_offset, epochs = found
    chunks = _chunks(stores, key, schemas)
    end_offset, count, size = base_offset, 0, 0
    low, high = [], []
    for header, _ in chunks:
        end_offset += header.rows
        count += 1
        size += header.length
        low.append(header.min_timestamp)
        high.append(header.max_timestamp)
    if not count:
        return None
    # Epochs that begin after the salvaged rows are dropped.
    epochs = tuple(each for each in epochs if each[1] < end_offset)
    made = layout.segment_name(base_offset, layout.born_of(name), _nonce(name, end_offset))
    size += len(segment.encode_header(made, base_offset, epochs))
    file = SegmentFile(made, base_offset, end_offset, count, size, min(low), max(high))
    return Salvage(partition, file, epochs, name, tuple(stores))


def write(
    salvage: Salvage, stores: Mapping[NodeId, Store], folder: str, target: Store, schemas: Sequence[pa.Schema]
) -> None:
    """Write the segment to `target`. Raises `CorruptObject` if chunks were damaged since `find`, `StoreError`."""
    into, file = f"{folder}{salvage.partition}/", salvage.file
    key = f"{into}{salvage.source}"
    sources = {node: stores[node] for node in salvage.nodes}
    writer = SegmentWriter(target, into, file.name, file.base_offset, salvage.epochs)
    try:
        for header, data in _chunks(sources, key, schemas):
            if writer.end_offset < file.end_offset:
                writer.append(header, data)
        if writer.end_offset != file.end_offset:
            detail = f"its rows from {writer.end_offset} to {file.end_offset - 1} were damaged since the survey"
            raise CorruptObject(f"segment {key}", f"{detail}; start again")
        writer.close()
    except BaseException:
        writer.discard()
        raise


def write_append_file(stores: Sequence[Store], target: Store, key: str, places: Sequence[StagedChunk]) -> None:
    """Replace an append file on `target` by one with these chunks, each of the first store that has it whole.

    The chunks between them are not needed, but without one of them the file could not be copied to other nodes. So they
    are taken in the same way, as far as possible, but first looked for where the next chunk of these is. Raises
    `CorruptObject` if a chunk is whole on none, `StoreError`.
    """
    end = 0
    writer = target.open_write(key, replace=True)
    try:
        for place in sorted(places, key=lambda each: each.position):

            def chunk_of(store: Store, place: StagedChunk = place) -> tuple[Store, pa.Buffer]:
                return store, append_file.read_bytes(store, key, place, "append file")[1]

            source, data = first_readable(stores, chunk_of, stop_unless_damaged)
            with contextlib.suppress(AllCopiesFailed, NewerFormat):
                while end < place.position:
                    header, between = _chunk_at((source, *stores), key, end)
                    writer.write(between)
                    end += header.length
            for position in range(end, place.position, RANGE_BYTES):
                writer.write(source.read(key, position, min(RANGE_BYTES, place.position - position)))
            writer.write(data)
            end = place.position + place.length
        writer.close()
    except AllCopiesFailed as failed:
        writer.discard()
        raise next(iter(failed.errors.values())) from failed
    except BaseException:
        writer.discard()
        raise


def _is_keyed(store: Store, key: str) -> bool:
    with contextlib.suppress(CorruptObject, ObjectMissing):
        return segment.keyed_counts(store, key) is not None
    return False


def _header(stores: Mapping[NodeId, Store], key: str) -> tuple[_Header | None, dict[NodeId, Store]]:
    """Return the header of a segment, and the stores without those that have another file under its name."""
    headers: dict[NodeId, _Header] = {}
    others: set[NodeId] = set()
    for node, store in stores.items():
        try:
            headers[node] = segment.epochs_of(store, key)
        except OtherSegment:
            others.add(node)
        except (CorruptObject, ObjectMissing):
            continue
    return next(iter(headers.values()), None), {node: each for node, each in stores.items() if node not in others}


def _chunks(
    stores: Mapping[NodeId, Store], key: str, schemas: Sequence[pa.Schema]
) -> Iterator[tuple[Header, pa.Buffer]]:
    """Yield the chunks of a segment, each from the first node that has it whole, until no node has."""
    yield from (
        _row_groups(stores, key, schemas) if layout.is_parquet(key) else _of_log(stores, layout.segment_file(key))
    )


def _of_log(stores: Mapping[NodeId, Store], key: str) -> Iterator[tuple[Header, pa.Buffer]]:
    def start_of(store: Store) -> int:
        return segment.read_header(store, key, f"segment {store.url}/{key}")[2]

    with contextlib.suppress(AllCopiesFailed):
        position = first_readable(stores.values(), start_of, stop_unless_damaged)
        while True:
            header, data = _chunk_at(stores.values(), key, position)
            yield header, data
            position += header.length


def _chunk_at(stores: Iterable[Store], key: str, position: int) -> tuple[Header, pa.Buffer]:
    """Return the chunk at a byte of a file, of the first store that has it whole. Raises `AllCopiesFailed`."""

    def chunk_of(store: Store) -> tuple[Header, pa.Buffer]:
        for _, header, data in append_file.scan(store, key, position):
            return header, data
        raise CorruptObject(f"{store.url}/{key}", f"it has no chunk at byte {position}")

    return first_readable(stores, chunk_of, stop_unless_damaged)


def _row_groups(
    stores: Mapping[NodeId, Store], key: str, schemas: Sequence[pa.Schema]
) -> Iterator[tuple[Header, pa.Buffer]]:
    """Yield the row groups of a .parquet as chunks."""

    def rows_of(store: Store) -> pa.RecordBatch:
        return row_group.read_by(store, key, footer, entry, schemas)

    with contextlib.suppress(AllCopiesFailed):
        footer = first_readable(stores.values(), lambda store: parquet_footer.read(store, key), stop_unless_damaged)
        for entry in footer.entries:
            batch = first_readable(stores.values(), rows_of, stop_unless_damaged)
            header, data = chunk.encode(batch, entry.schema_id, _COMPRESSION)
            yield header, pa.py_buffer(data)


def _nonce(name: str, end_offset: int) -> str:
    return hashlib.blake2b(f"{name} {end_offset}".encode(), digest_size=16).hexdigest()
