"""A chunk: the unit of append, Kafka's record batch. Consecutive rows of one partition, immutable.

    offset  bytes  field (little-endian)
    0       4      magic b"PLCK"
    4       2      version, 1
    6       2      zero
    8       4      length of the whole chunk in bytes, a multiple of 64
    12      4      length of the body
    16      4      rows
    20      4      schema id: which of the topic's schemas
    24      8      smallest timestamp, microseconds since 1970
    32      8      largest timestamp
    40      20     zero
    60      4      CRC-32C of the 60 bytes before, the body and the padding
    64      ...    body: one Arrow IPC record batch message, without schema, without dictionaries
    ...     0-63   zero padding, so that the next chunk begins aligned

Offsets are not inside, and nothing depends on the position: copying a chunk is copying its bytes. Arrow has
no checksum of its own, so the CRC is checked at every read, before Arrow sees the body. Whoever decodes a chunk does
not trust its writer either (`untrusted_batch`). Later versions keep magic, version, length and CRC where they are, so
that a newer chunk is told from a damaged one.

A chunk takes no more memory than `decoded_bytes_max` says, so that a small file cannot fill a reader's memory. The
writer does not compress what would become smaller than that allows.
"""

from __future__ import annotations

import functools
import itertools
import struct
from typing import TYPE_CHECKING

import google_crc32c
import msgspec
import numpy as np
import pyarrow as pa

from pyspark_log_storage import untrusted_batch
from pyspark_log_storage.errors import CorruptObject, InvalidRecord, NewerFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

ALIGNMENT = 64
HEADER_BYTES = 64
CHUNK_BYTES = 8 * 1024 * 1024
"""What writers fill a chunk with, before compression, where they have so much: one read, and one batch for Spark."""
CHUNK_ROWS_MAX = 2**31 - 1
CHUNK_BYTES_MAX = 2**31 - 1
DECODED_BYTES = 64 * 1024 * 1024
"""How much memory the rows of any chunk may take."""
DECODED_RATIO_MAX = 16
"""How many times its stored length the rows of a chunk may take beyond that."""
_HARMLESS_BYTES = DECODED_BYTES // 32_768
"""Whatever is in a body of this size takes no more than `DECODED_BYTES`: zstd makes up to 128 KiB of 4 bytes."""
COMPRESSIONS = ("none", "lz4", "zstd")

_MAGIC = b"PLCK"
_VERSION = 1
_PREFIX = struct.Struct("<Ii")  # of an IPC message: a mark, the length of its metadata with padding
_END_OF_STREAM_BYTES = 8
_FIELDS = struct.Struct("<4sHHIIIIqq20x")
_CRC = struct.Struct("<I")
_ARROW_ERRORS = (OSError, StopIteration, ValueError, IndexError, OverflowError, MemoryError)
"""What comes out of Arrow for bad bytes, beside its own exceptions."""
_READ_OPTIONS = pa.ipc.IpcReadOptions(use_threads=False)
_SMALL_BODY_BYTES = 32 * 1024
"""Up to this a copy of the body costs less than a file of two parts: half the time for a chunk of a few rows."""
_FEW_ROWS = 256
"""Up to this a copy costs less than to take Arrow's buffers one by one."""
assert _FIELDS.size + _CRC.size == HEADER_BYTES


class Header(msgspec.Struct, frozen=True):
    """What a chunk's first 64 bytes say. Lengths in bytes, timestamps in microseconds since 1970."""

    length: int
    body_length: int
    rows: int
    schema_id: int
    min_timestamp: int
    max_timestamp: int
    crc: int


def encode(batch: pa.RecordBatch, schema_id: int, compression: str) -> tuple[Header, bytes]:
    """Return the header and the bytes of a chunk that holds `batch`; see `encode_in_pieces`."""
    header, pieces = encode_in_pieces(batch, schema_id, compression)
    return header, b"".join(pieces)


def encode_in_pieces(batch: pa.RecordBatch, schema_id: int, compression: str) -> tuple[Header, Sequence[bytes]]:
    """Return the header and the bytes, in pieces, of a chunk that holds `batch`, which has at least one row.

    Pieces are bytes or Arrow's buffers; large ones are not copied.

    `compression` is one of `COMPRESSIONS`. The column `timestamp` has no nulls. Raises `InvalidRecord` where
    the rows do not fit into one chunk.
    """
    assert batch.num_rows > 0
    body = _serialize(batch, compression)
    body_length = sum(map(len, body))
    if compression != "none" and _takes_too_much(batch, body_length):
        body = _serialize(batch, "none")
        body_length = sum(map(len, body))
    length = -(-(HEADER_BYTES + body_length) // ALIGNMENT) * ALIGNMENT
    if length > CHUNK_BYTES_MAX:
        raise InvalidRecord(
            f"{batch.num_rows} rows take {length} bytes, and a chunk holds at most {CHUNK_BYTES_MAX}; "
            "write fewer or smaller rows at once"
        )
    timestamps = np.asarray(batch.column("timestamp").view(pa.int64()))
    low, high = int(timestamps.min()), int(timestamps.max())
    fields = _FIELDS.pack(_MAGIC, _VERSION, 0, length, body_length, batch.num_rows, schema_id, low, high)
    padding = bytes(length - HEADER_BYTES - body_length)
    crc = _checksum(fields, *body, padding)
    header = Header(length, body_length, batch.num_rows, schema_id, low, high, crc)
    return header, (fields, _CRC.pack(crc), *body, padding)


def _takes_too_much(batch: pa.RecordBatch, length: int) -> bool:
    """Return whether rows that were compressed to `length` bytes take more than half of what a reader allows.

    Half, for the two measure a little differently.
    """
    enough = DECODED_BYTES // 2
    if batch.get_total_buffer_size() <= enough:  # found at once; of a slice it is more than that takes
        return False
    return int(batch.nbytes) > max(enough, DECODED_RATIO_MAX // 2 * length)


def claimed_length(data: bytes, name: str) -> int:
    """Return the length that the header in `data` claims for its chunk: `verify` says whether it is true.

    Raises `CorruptObject`, which calls the chunk `name`, where `data` does not hold the header of a chunk.
    """
    if len(data) < HEADER_BYTES:
        raise CorruptObject(name, f"it ends after {len(data)} bytes, inside the header of a chunk")
    magic, _, _, length, *_ = _FIELDS.unpack_from(data)
    if magic != _MAGIC:
        raise CorruptObject(name, f"a chunk begins with {_MAGIC!r}, this with {magic!r}")
    if length > CHUNK_BYTES_MAX:
        raise CorruptObject(name, f"it claims to be {length} bytes long, and {CHUNK_BYTES_MAX} is the most")
    return max(int(length), HEADER_BYTES)


def verify(data: pa.Buffer, name: str) -> Header:
    """Return the header of the one chunk that is all of `data`, after checking its CRC.

    Raises `CorruptObject` where any bit is not as it was written, also where bytes are cut or added, and
    `NewerFormat` for an intact chunk of a higher version.
    """
    head = data[:HEADER_BYTES].to_pybytes()
    length = claimed_length(head, name)
    (crc,) = _CRC.unpack_from(head, _FIELDS.size)
    if crc != _checksum(head[: _FIELDS.size], data[HEADER_BYTES:]):
        raise CorruptObject(name, "its checksum does not match its bytes")
    _, version, _, _, body_length, rows, schema_id, low, high = _FIELDS.unpack_from(head)
    if length != data.size:
        raise CorruptObject(name, f"it is {length} bytes long, but {data.size} were read")
    if version > _VERSION:
        raise NewerFormat(name, f"chunk format {version}, this version reads up to {_VERSION}")
    return _possible(Header(length, body_length, rows, schema_id, low, high, crc), name)


def _possible(header: Header, name: str) -> Header:
    """Return a header. Raises `CorruptObject` if no writer makes such a chunk."""
    if not 1 <= header.rows <= CHUNK_ROWS_MAX or HEADER_BYTES + header.body_length > header.length:
        detail = f"it claims {header.rows} rows in {header.body_length} of its {header.length} bytes"
        raise CorruptObject(name, detail)
    return header


def decoded_bytes_max(length: int) -> int:
    """Return how much memory the rows of a chunk of `length` bytes may take."""
    return max(DECODED_BYTES, DECODED_RATIO_MAX * length)


class Verifier:
    """Checks a chunk that comes in pieces, so that it need not be in memory; `verify` is for one that is."""

    def __init__(self, head: bytes, name: str) -> None:
        """`head` is the chunk's first 64 bytes. Raises `CorruptObject` where they are not a header."""
        length = claimed_length(head, name)
        _, self._version, _, _, body_length, rows, schema_id, low, high = _FIELDS.unpack_from(head)
        (crc,) = _CRC.unpack_from(head, _FIELDS.size)
        self._header = Header(length, body_length, rows, schema_id, low, high, crc)
        self._crc: int = google_crc32c.value(head[: _FIELDS.size])
        self._name = name
        self.left = length - HEADER_BYTES
        """How many bytes have not come yet."""

    def update(self, data: pa.Buffer) -> None:
        """Take the next bytes, at most `left`."""
        self.left -= data.size
        assert self.left >= 0
        self._crc = google_crc32c.extend(self._crc, data)

    def finish(self) -> Header:
        """Return the header, once all bytes have come. Raises `CorruptObject`, `NewerFormat`."""
        assert self.left == 0
        if self._header.crc != self._crc:
            raise CorruptObject(self._name, "its checksum does not match its bytes")
        if self._version > _VERSION:
            raise NewerFormat(self._name, f"chunk format {self._version}, this version reads up to {_VERSION}")
        return _possible(self._header, self._name)


def decode(data: pa.Buffer, header: Header, schemas: Sequence[pa.Schema], name: str) -> pa.RecordBatch:
    """Return the rows of a chunk that `verify` has passed, without copying what is not compressed, unless it is small.

    Takes at most `decoded_bytes_max` of memory. Raises `CorruptObject` if the body does not fit the schema that the
    header names, if a value would lie outside of the body, or if the body would take more. A schema with other columns
    of the same layout cannot be told.
    """
    if header.schema_id >= len(schemas):
        raise CorruptObject(name, f"it names schema {header.schema_id}, and the topic has {len(schemas)}")
    body = data[HEADER_BYTES:][: header.body_length]
    try:
        size = untrusted_batch.measure(body) if body.size > _HARMLESS_BYTES else 0
        if size > decoded_bytes_max(header.length):
            detail = f"its rows would take {size} bytes, and {header.length} stored bytes hold no more than"
            raise CorruptObject(name, f"{detail} {decoded_bytes_max(header.length)}")
        batch = _read(schemas[header.schema_id], body)
        untrusted_batch.check(batch)
    except (pa.ArrowException, untrusted_batch.WrongBatchError, *_ARROW_ERRORS) as error:
        raise CorruptObject(name, f"Arrow cannot read it ({error})") from error
    if batch.num_rows != header.rows:
        raise CorruptObject(name, f"it holds {batch.num_rows} rows where its header says {header.rows}")
    return batch


def _read(schema: pa.Schema, body: pa.Buffer) -> pa.RecordBatch:
    messages = _schema_message(schema), body
    source = b"".join(messages) if body.size <= _SMALL_BODY_BYTES else pa.PythonFile(_Messages(*messages), mode="r")
    with pa.ipc.open_stream(source, options=_READ_OPTIONS) as stream:
        return stream.read_next_batch()


class _Messages:
    """A file for Arrow's stream reader: the schema's message, then a chunk's body, which is not copied.

    `pa.ipc.read_record_batch` would do without, but takes no options: it hands the decoding to a pool of threads, which
    costs more than it gains where each core has a task.
    """

    closed = False

    def __init__(self, *messages: pa.Buffer) -> None:
        self._left = list(messages)

    def readable(self) -> bool:
        return True

    def read_buffer(self, size: int) -> pa.Buffer:
        """Return the next bytes, of one message."""
        if not self._left:
            return pa.py_buffer(b"")
        part = self._left[0].slice(0, size)
        self._left[0] = self._left[0].slice(part.size)
        if self._left[0].size == 0:
            del self._left[0]
        return part

    def read(self, size: int) -> bytes:
        return bytes(self.read_buffer(size).to_pybytes())

    def close(self) -> None:
        self.closed = True


@functools.lru_cache
def _schema_message(schema: pa.Schema) -> pa.Buffer:
    return schema.serialize()


def _checksum(fields: bytes, *pieces: bytes) -> int:
    crc: int = google_crc32c.value(fields)
    for piece in pieces:
        crc = google_crc32c.extend(crc, piece)
    return crc


def _serialize(batch: pa.RecordBatch, compression: str) -> Sequence[bytes]:
    """Return the batch as one IPC message, in pieces. Of Arrow's stream the schema and the end are cut off."""
    assert not any(pa.types.is_dictionary(kind) for kind in batch.schema.types), "dictionaries are decoded before"
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


class _Pieces:
    """A file for Arrow's stream writer, which hands over its buffers as they are: they are not copied."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, piece: bytes) -> int:
        self._pieces.append(piece)
        return len(piece)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

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
