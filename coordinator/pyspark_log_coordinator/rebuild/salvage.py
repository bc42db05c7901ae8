"""Salvage: the good chunks of a segment that no node has whole.

    node 0    chunk 0   damaged   chunk 2   chunk 3
    node 1    chunk 0   chunk 1   damaged   damaged
    node 2    damaged   chunk 1   damaged   damaged

    salvaged  chunk 0   chunk 1   chunk 2   chunk 3      of any node, up to the first that no node has whole

Copies are equal byte for byte, so the next chunk begins at the same byte on every node. The salvaged chunks are written
as a segment whose name follows from its content, so doing it again writes the same segment.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_storage import append_file, layout, segment
from pyspark_log_storage.errors import CorruptObject, ObjectMissing
from pyspark_log_storage.failover import AllCopiesFailed, first_readable, stop_unless_damaged
from pyspark_log_storage.segment import EpochStarts, SegmentFile, SegmentWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from pyspark_log_storage.chunk import Header
    from pyspark_log_storage.store import Store


_Header = tuple[int, EpochStarts, int]
"""Base offset, leader epochs, and the position of the first chunk."""


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


def find(stores: Mapping[NodeId, Store], folder: str, partition: int, name: str) -> Salvage | None:
    """Return what can be made of the copies of a segment, or None if no chunk is good. Changes nothing.

    `folder` is the topic's, and ends with "/". Raises `NewerFormat`, `StoreError`.
    """
    key = f"{folder}{partition}/{name}.log"
    found, stores = _header(stores, key)
    if found is None:
        return None
    base_offset, epochs, start = found
    end_offset, count, size = base_offset, 0, 0
    low, high = [], []
    for header, _ in _chunks(stores, key, start):
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
    size += len(segment.encode_header(base_offset, epochs))
    file = SegmentFile(made, base_offset, end_offset, count, size, min(low), max(high))
    return Salvage(partition, file, epochs, name, tuple(stores))


def write(salvage: Salvage, stores: Mapping[NodeId, Store], folder: str, target: Store) -> None:
    """Write the segment to `target`. Raises `CorruptObject` if chunks were damaged since `find`, `StoreError`."""
    into, file = f"{folder}{salvage.partition}/", salvage.file
    key = f"{into}{salvage.source}.log"
    sources = {node: stores[node] for node in salvage.nodes}
    writer = SegmentWriter(target, into, file.name, file.base_offset, salvage.epochs)
    try:
        found, _ = _header(sources, key)
        for header, data in _chunks(sources, key, found[2]) if found is not None else ():
            if writer.end_offset < file.end_offset:
                writer.append(header, data)
        if writer.end_offset != file.end_offset:
            detail = f"its rows from {writer.end_offset} to {file.end_offset - 1} were damaged since the survey"
            raise CorruptObject(f"segment {key}", f"{detail}; start again")
        writer.close()
    except BaseException:
        writer.discard()
        raise


def _header(stores: Mapping[NodeId, Store], key: str) -> tuple[_Header | None, dict[NodeId, Store]]:
    """Return the header of a .log, and the stores without those that have another file under its name."""
    headers: dict[NodeId, _Header] = {}
    others: set[NodeId] = set()
    for node, store in stores.items():
        with contextlib.suppress(CorruptObject, ObjectMissing):
            header = segment.read_header(store, key, f"segment {store.url}/{key}")
            if header[0] == layout.base_offset_of(key):
                headers[node] = header
            else:
                others.add(node)
    return next(iter(headers.values()), None), {node: each for node, each in stores.items() if node not in others}


def _chunks(stores: Mapping[NodeId, Store], key: str, position: int) -> Iterator[tuple[Header, pa.Buffer]]:
    """Yield the chunks of a .log from a byte on, each from the first node that has it whole, until no node has."""
    while (found := _first(stores, key, position)) is not None:
        yield found
        position += found[0].length


def _first(stores: Mapping[NodeId, Store], key: str, position: int) -> tuple[Header, pa.Buffer] | None:
    def chunk_of(store: Store) -> tuple[Header, pa.Buffer]:
        for _, header, data in append_file.scan(store, key, position):
            return header, data
        raise CorruptObject(f"segment {store.url}/{key}", f"it has no chunk at byte {position}")

    with contextlib.suppress(AllCopiesFailed):
        return first_readable(stores.values(), chunk_of, stop_unless_damaged)
    return None


def _nonce(name: str, end_offset: int) -> str:
    return hashlib.blake2b(f"{name} {end_offset}".encode(), digest_size=16).hexdigest()
