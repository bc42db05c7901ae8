"""An append file: the chunks that one writing task stores on a node for one topic, back to back.

    <chunk> <chunk> <chunk> ...         of one or several partitions, in any order between partitions

The file says nothing about partitions or offsets. The journal entry that sequences it does, and until then the file is
invisible. A writing task writes one for each set of nodes that its partitions are written to: usually one in all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.files import chunk
from pyspark_log_storage.stores.failover import rereads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_log_storage.files.row_files import StagedChunk
    from pyspark_log_storage.stores.store import ObjectWriter, Readable


class AppendFileWriter:
    def __init__(self, writer: ObjectWriter) -> None:
        """`writer` writes the file to one store, or to several (`FanOutWriter`)."""
        self._writer = writer
        self._position = 0
        self.chunks: list[StagedChunk] = []

    def append(self, partition: int, batch: pa.RecordBatch, schema_id: int, compression: str) -> None:
        """Append the rows of `batch` as one chunk. Raises `StoreError`, `InvalidRecord`."""
        place, pieces = chunk.encode_in_pieces(batch, schema_id, compression, partition, self._position)
        self._writer.write(*pieces)
        self.chunks.append(place)
        self._position += place.length

    def close(self) -> None:
        self._writer.close()

    def discard(self) -> None:
        self._writer.discard()


def read_chunk(
    store: Readable,
    key: str,
    place: StagedChunk,
    schemas: Sequence[pa.Schema],
    name: str,
    columns: Sequence[str] | None = None,
) -> pa.RecordBatch:
    """Return the rows of the chunk at `place`, with `columns` only these.

    `name` names it in errors: topic, partition and offset. Raises what `read_bytes` raises.
    """
    return chunk.decode(read_bytes(store, key, place, name), place, schemas, name, columns)


@rereads
def read_bytes(store: Readable, key: str, place: StagedChunk, name: str) -> pa.Buffer:
    """Return the bytes of the chunk at `place`, checked.

    Raises `ObjectMissing`, and `CorruptObject` if the bytes are damaged or are another intact chunk than the journal
    entry recorded.
    """
    data = pa.py_buffer(store.read(key, place.position, place.length))
    name = f"{name} ({store.url}/{key} at byte {place.position})"
    if data.size < place.length:
        raise CorruptObject(name, f"the file ends after {data.size} of the chunk's {place.length} bytes")
    if chunk.verify(data, name, place.partition, place.position) != place:
        raise CorruptObject(name, "it is another chunk than the journal says")
    return data


def scan(store: Readable, key: str, start: int = 0) -> Iterator[tuple[StagedChunk, pa.Buffer]]:
    """Yield place and bytes of every chunk from byte `start` on, each checked, from the file alone.

    Holds one chunk in memory. Raises `CorruptObject` at the first damaged one, `NewerFormat`.
    """
    position, size = start, store.size(key)
    while position < size:
        place, data = _chunk_at(store, key, position, size)
        yield place, data
        position += place.length


@rereads
def _chunk_at(store: Readable, key: str, position: int, size: int) -> tuple[StagedChunk, pa.Buffer]:
    """Return place and bytes of the chunk at byte `position` of a file of `size` bytes, checked."""
    name = f"{store.url}/{key} at byte {position}"
    length = chunk.claimed_length(store.read(key, position, chunk.HEADER_BYTES), name)
    if length > size - position:
        raise CorruptObject(name, f"the file ends after {size - position} of the chunk's {length} bytes")
    data = pa.py_buffer(store.read(key, position, length))
    return chunk.verify(data, name, position=position), data
