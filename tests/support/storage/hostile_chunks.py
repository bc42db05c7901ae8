"""Chunks with right checksums and wrong contents, as a faulty or a hostile machine writes them."""

import datetime as dt

import google_crc32c
import numpy as np
import pyarrow as pa

from pyspark_log_storage.columns import schema
from pyspark_log_storage.files import chunk

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
MANY = 20_000


def sealed(data):
    """Return a chunk with the checksum of its bytes as they are now."""
    data = bytes(data)
    return data[:60] + chunk._checksum(data[:60], data[64:]).to_bytes(4, "little") + data[64:]


def chunk_of(body, rows=1, schema_id=0):
    """Return a chunk with any body."""
    length = -(-(64 + len(body)) // 64) * 64
    fields = chunk._FIELDS.pack(b"PLCK", 1, 0, length, len(body), rows, schema_id, 0, 0)
    return sealed((fields + bytes(4) + body).ljust(length, b"\0"))


def message_of(batch, compression="none"):
    """Return a batch as the writer's Arrow message, whatever is in it."""
    return b"".join(chunk._serialize(batch, compression))


def times(rows):
    return pa.array(np.zeros(rows, np.int64)).cast(schema.TIMESTAMP)


def binary(ends, data):
    """Return a column of bytes with any offsets."""
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(np.array(ends, np.int32)), data])


def with_offsets(ends, data=b"v" * 4000):
    """Return rows whose values have any offsets."""
    rows = len(ends) - 1
    return pa.RecordBatch.from_arrays(
        [pa.nulls(rows, pa.binary()), binary(ends, pa.py_buffer(data)), times(rows)], schema=schema.RECORD
    )


def with_headers(ends, keys, key_ends=None):
    """Return rows whose headers have any offsets and keys."""
    entries = schema.HEADERS.value_type
    count = len(keys)
    if key_ends is None:
        key_ends = np.cumsum([0, *map(len, keys)])
    key = pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(np.array(key_ends, np.int32)), pa.py_buffer(b"".join(keys))]
    )
    structs = pa.StructArray.from_arrays([key, pa.nulls(count, pa.binary())], fields=list(entries))
    headers = pa.Array.from_buffers(
        schema.HEADERS, len(ends) - 1, [None, pa.py_buffer(np.array(ends, np.int32))], children=[structs]
    )
    rows = len(ends) - 1
    columns = [pa.nulls(rows, pa.binary()), pa.nulls(rows, pa.binary()), times(rows), headers]
    return pa.RecordBatch.from_arrays(columns, schema=schema.RECORD_WITH_HEADERS)


def ordered(rows, fall=None):
    """Return offsets of values of one byte; at row `fall` they point far outside, and come back."""
    ends = np.arange(rows + 1, dtype=np.int32)
    if fall is not None:
        ends[fall] = 2**31 - 1
    return ends


def good_chunks():
    """Return chunks of all kinds, as they are written."""
    rows = [
        {"key": b"k%d" % i, "value": b"v" * (i * 40), "timestamp": EPOCH, "headers": [{"key": "h", "value": b"x"}] * i}
        for i in range(9)
    ]
    made = []
    for compression in chunk.COMPRESSIONS:
        for number, kind in enumerate(schema.RECORD_SCHEMAS):
            batch = pa.RecordBatch.from_pylist([{name: row[name] for name in kind.names} for row in rows], kind)
            made.append(chunk.encode(batch, number, compression)[1])
    return made


def crc(data):
    return google_crc32c.value(bytes(data)).to_bytes(4, "little")
