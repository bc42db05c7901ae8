"""Salvage: what can be had of a segment of which no node has a whole copy, before its journal is made again.

    node 0    chunk 0   damaged   chunk 2   chunk 3
    node 1    chunk 0   chunk 1   damaged   damaged
    node 2    damaged   chunk 1   damaged   damaged

    salvaged  chunk 0   chunk 1   chunk 2   chunk 3      of any node, up to the first that is whole nowhere

Copies are equal byte for byte, so where one node's chunk ends, each node's next one begins. What was salvaged is
written as a segment with a name of its own, that follows from what it was made of: who does it again makes it again.
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
    """What a segment will be that was salvaged, and what it comes from."""

    partition: int
    file: SegmentFile
    epochs: EpochStarts
    """The leader epochs of its rows."""
    source: str
    """The name of the damaged segment."""
    nodes: tuple[NodeId, ...]
    """The nodes that have any of it."""


def look(stores: Mapping[NodeId, Store], folder: str, partition: int, name: str) -> Salvage | None:
    """Return what can be had of the segment of this name, None where that is nothing. Changes nothing.

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
    # Of an epoch that begins behind what is left nothing is known any more.
    epochs = tuple(each for each in epochs if each[1] < end_offset)
    made = layout.segment_name(base_offset, layout.born_of(name), _nonce(name, end_offset))
    size += len(segment.encode_header(base_offset, epochs))
    file = SegmentFile(made, base_offset, end_offset, count, size, min(low), max(high))
    return Salvage(partition, file, epochs, name, tuple(stores))


def write(salvage: Salvage, stores: Mapping[NodeId, Store], folder: str, target: Store) -> None:
    """Write what was found. Raises `CorruptObject` where less is there by now, `StoreError`."""
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
            detail = f"its rows up to {file.end_offset - 1} were whole, and those from {writer.end_offset} on are not"
            raise CorruptObject(f"segment {key}", f"{detail} any more; look again what can be had")
        writer.close()
    except BaseException:
        writer.discard()
        raise


def _header(stores: Mapping[NodeId, Store], key: str) -> tuple[_Header | None, dict[NodeId, Store]]:
    """Return what the header of a .log says, and the stores with copies of that .log, not of another in its place."""
    headers: dict[NodeId, _Header] = {}
    others: set[NodeId] = set()
    for node, store in stores.items():
        with contextlib.suppress(CorruptObject, ObjectMissing):
            header = segment.read_header(store, key, f"segment {store.url}/{key}")
            if header[0] == int(key.rsplit("/", 1)[1].partition("-")[0]):
                headers[node] = header
            else:
                others.add(node)
    return next(iter(headers.values()), None), {node: each for node, each in stores.items() if node not in others}


def _chunks(stores: Mapping[NodeId, Store], key: str, position: int) -> Iterator[tuple[Header, pa.Buffer]]:
    """Yield the chunks from a byte of a .log on, each of the first node that has it whole, until none has."""
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
