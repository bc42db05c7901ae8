"""A chunk: consecutive rows of one partition, the immutable unit of append (Kafka's record batch).

    offset  bytes  field (little-endian)
    0       4      magic b"PLCK"
    4       2      version, 1
    6       2      zero
    8       4      length of the whole chunk in bytes
    12      4      rows
    16      4      schema id: the number of one of the topic's schemas
    20      8      smallest timestamp, microseconds since 1970
    28      8      largest timestamp
    36      24     zero
    60      4      CRC-32C of the 60 bytes before and the body
    64      ...    body: one Arrow IPC record batch message, without schema, without dictionaries

A chunk contains no offsets and does not depend on its position: copying a chunk means copying its bytes. Arrow has no
checksum, so every read checks the CRC before Arrow sees the body, and the rows after (`batch_check`). Later versions
must keep the positions of magic, version, length and CRC, so that a reader can distinguish a newer chunk from a damaged
one.
"""

from __future__ import annotations

import functools
import io
import itertools
import struct
from typing import TYPE_CHECKING, Any, get_args

import google_crc32c
import numpy as np
import pyarrow as pa

from pyspark_log_storage.errors import CorruptObject, InvalidRecord, NewerFormat
from pyspark_log_storage.files import batch_check
from pyspark_log_storage.files.row_files import Compression, StagedChunk

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADER_BYTES = 64
CHUNK_BYTES = 8 * 1024 * 1024
"""The size of a full chunk before compression: one read, and one batch for Spark."""
CHUNK_BYTES_MAX = 2**31 - 1
COMPRESSIONS: tuple[str, ...] = get_args(Compression)

_MAGIC = b"PLCK"
_VERSION = 1
_PREFIX = struct.Struct("<Ii")  # of an IPC message: a mark, the length of its metadata with padding
_END_OF_STREAM_BYTES = 8
_FIELDS = struct.Struct("<4sHHIIIqq24x")
_CRC = struct.Struct("<I")
_ARROW_ERRORS = (OSError, StopIteration, ValueError, IndexError, OverflowError, MemoryError)
"""Errors that Arrow raises for damaged bytes, besides its own exceptions."""
_READ_OPTIONS = pa.ipc.IpcReadOptions(use_threads=False)
_SMALL_BODY_BYTES = 32 * 1024
"""Up to this size it is faster to copy the body than to read from two buffers: twice as fast for a few rows."""
_FEW_ROWS = 256
"""Up to this number it is faster to copy the rows than to take Arrow's buffers one by one."""
assert _FIELDS.size + _CRC.size == HEADER_BYTES


def encode(batch: pa.RecordBatch, schema_id: int, compression: str) -> tuple[StagedChunk, bytes]:
    """Return what the chunk of `batch` has, and its bytes; see `encode_in_pieces`."""
    place, pieces = encode_in_pieces(batch, schema_id, compression)
    return place, b"".join(pieces)


def encode_in_pieces(
    batch: pa.RecordBatch, schema_id: int, compression: str, partition: int = 0, position: int = 0
) -> tuple[StagedChunk, Sequence[bytes]]:
    """Return the place and the bytes, in pieces, of the chunk of `batch`, which has at least one row.

    Pieces are bytes or Arrow's buffers; large ones are not copied. `compression` is one of `COMPRESSIONS`. The column
    `timestamp` has no nulls. Raises `InvalidRecord` if the rows do not fit into one chunk.
    """
    assert batch.num_rows > 0
    body = _serialize(batch, compression)
    length = HEADER_BYTES + sum(map(len, body))
    if length > CHUNK_BYTES_MAX:
        raise InvalidRecord(
            f"{batch.num_rows} rows take {length} bytes, but a chunk holds at most {CHUNK_BYTES_MAX}; "
            "write fewer or smaller rows at once"
        )
    timestamps = np.asarray(batch.column("timestamp").view(pa.int64()))
    low, high = int(timestamps.min()), int(timestamps.max())
    fields = _FIELDS.pack(_MAGIC, _VERSION, 0, length, batch.num_rows, schema_id, low, high)
    crc = _checksum(fields, *body)
    place = StagedChunk(partition, position, length, batch.num_rows, low, high, schema_id, crc)
    return place, (fields, _CRC.pack(crc), *body)


def claimed_length(data: bytes, name: str) -> int:
    """Return the length of the chunk according to the header in `data`, which `verify` has not checked.

    Raises `CorruptObject`, with the chunk's `name`, if `data` is not the header of a chunk.
    """
    if len(data) < HEADER_BYTES:
        raise CorruptObject(name, f"it ends after {len(data)} bytes, inside the header of a chunk")
    magic, _, _, length, *_ = _FIELDS.unpack_from(data)
    if magic != _MAGIC:
        raise CorruptObject(name, f"it begins with {magic!r} where {_MAGIC!r} is expected")
    if length > CHUNK_BYTES_MAX:
        raise CorruptObject(name, f"its header says that it has {length} bytes; the maximum is {CHUNK_BYTES_MAX}")
    return max(int(length), HEADER_BYTES)


def verify(data: pa.Buffer, name: str, partition: int = 0, position: int = 0) -> StagedChunk:
    """Check the CRC of the chunk `data`, and return its place with what its header says.

    Raises `CorruptObject` if any bit was changed or bytes were cut or added, and `NewerFormat` for an intact chunk of a
    higher version.
    """
    head = data[:HEADER_BYTES].to_pybytes()
    length = claimed_length(head, name)
    (crc,) = _CRC.unpack_from(head, _FIELDS.size)
    if crc != _checksum(head[: _FIELDS.size], data[HEADER_BYTES:]):
        raise CorruptObject(name, "its checksum does not match its bytes")
    _, version, _, _, rows, schema_id, low, high = _FIELDS.unpack_from(head)
    if length != data.size:
        raise CorruptObject(name, f"it is {length} bytes long, but {data.size} were read")
    if version > _VERSION:
        raise NewerFormat(name, f"chunk format {version}, this version reads up to {_VERSION}")
    return StagedChunk(partition, position, length, rows, low, high, schema_id, crc)


def decode(
    data: pa.Buffer, place: StagedChunk, schemas: Sequence[pa.Schema], name: str, columns: Sequence[str] | None = None
) -> pa.RecordBatch:
    """Return the rows of a chunk that `verify` accepted. Large bodies that are not compressed are not copied.

    With `columns` only these are decoded, in the schema's order; at least one of them must be in the schema.

    Raises `CorruptObject` if the body does not fit the schema that the header names, or if a value would be outside of
    the body. A schema with other columns of the same layout goes unnoticed.
    """
    if place.schema_id >= len(schemas):
        raise CorruptObject(name, f"it names schema {place.schema_id}, and the topic has {len(schemas)}")
    body = data[HEADER_BYTES:]
    try:
        batch = _read(schemas[place.schema_id], body, _read_options(schemas[place.schema_id], columns))
        batch_check.check(batch)
        batch = batch_check.with_first_offsets(batch)
    except (pa.ArrowException, *_ARROW_ERRORS) as error:
        raise CorruptObject(name, f"Arrow cannot read it ({error})") from error
    if batch.num_rows != place.rows:
        raise CorruptObject(name, f"it holds {batch.num_rows} rows where its header says {place.rows}")
    if columns is not None and 2 * batch.nbytes < data.size:
        return pa.concat_batches([batch, batch.slice(0, 0)])  # a copy: without it a few columns keep the whole chunk
    return batch


def _read_options(schema: pa.Schema, columns: Sequence[str] | None) -> pa.ipc.IpcReadOptions:
    if columns is None:
        return _READ_OPTIONS
    chosen = [place for place, name in enumerate(schema.names) if name in columns]
    assert chosen, f"none of the columns {columns} is in the schema"
    return pa.ipc.IpcReadOptions(use_threads=False, included_fields=chosen)


def _read(schema: pa.Schema, body: pa.Buffer, options: pa.ipc.IpcReadOptions) -> pa.RecordBatch:
    messages = _schema_message(schema), body
    source = b"".join(messages) if body.size <= _SMALL_BODY_BYTES else pa.PythonFile(_Messages(*messages), mode="r")
    with pa.ipc.open_stream(source, options=options) as stream:
        return stream.read_next_batch()


class _Messages(io.RawIOBase):
    """A file for Arrow's stream reader: the schema's message, then a chunk's body, which is not copied.

    `pa.ipc.read_record_batch` would need no such file, but always decodes in a thread pool, which is slower if each
    core runs a task.
    """

    def __init__(self, *messages: pa.Buffer) -> None:
        self._left = list(messages)

    def readable(self) -> bool:
        return True

    def read_buffer(self, size: int) -> pa.Buffer:
        """Return up to `size` bytes of one message."""
        if not self._left:
            return pa.py_buffer(b"")
        part = self._left[0].slice(0, size)
        self._left[0] = self._left[0].slice(part.size)
        if self._left[0].size == 0:
            del self._left[0]
        return part

    def read(self, size: int = -1) -> bytes:
        return bytes(self.read_buffer(size).to_pybytes())


@functools.lru_cache
def _schema_message(schema: pa.Schema) -> pa.Buffer:
    return schema.serialize()


def _checksum(fields: bytes, *pieces: bytes) -> int:
    crc: int = google_crc32c.value(fields)
    for piece in pieces:
        crc = google_crc32c.extend(crc, piece)
    return crc


def _serialize(batch: pa.RecordBatch, compression: str) -> Sequence[bytes]:
    """Return the batch as one IPC message, in pieces: Arrow's stream without the schema and the end."""
    assert not any(pa.types.is_dictionary(kind) for kind in batch.schema.types), "dictionaries must be decoded before"
    if batch.num_rows > _FEW_ROWS:
        pieces = _Pieces()
        _write_stream(pa.PythonFile(pieces, mode="w"), batch, compression)
        return pieces.message()
    sink = pa.BufferOutputStream()
    _write_stream(sink, batch, compression)
    whole = sink.getvalue()
    _, schema_bytes = _PREFIX.unpack(whole[: _PREFIX.size].to_pybytes())
    return (whole[_PREFIX.size + schema_bytes : -_END_OF_STREAM_BYTES],)


def _write_stream(sink: pa.NativeFile, batch: pa.RecordBatch, compression: str) -> None:
    with pa.ipc.new_stream(sink, batch.schema, options=_write_options(compression)) as stream:
        stream.write_batch(batch)


class _Pieces(io.RawIOBase):
    """A file for Arrow's stream writer that keeps the buffers without copying them."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self._pieces.append(piece)
        return len(piece)

    def message(self) -> Sequence[bytes]:
        """Return what was written, without the schema's message and the end of the stream."""
        _, schema_bytes = _PREFIX.unpack(b"".join(self._pieces[:2]))
        ends = list(itertools.accumulate(map(len, self._pieces)))
        first = ends.index(_PREFIX.size + schema_bytes) + 1
        return self._pieces[first : ends.index(ends[-1] - _END_OF_STREAM_BYTES) + 1]


@functools.lru_cache
def _write_options(compression: str) -> pa.ipc.IpcWriteOptions:
    codec = None if compression == "none" else pa.Codec("lz4_frame" if compression == "lz4" else compression)
    return pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
