"""Small Parquet segments, and their rows as dictionaries."""

import datetime as dt

import pyarrow as pa

from pyspark_log_storage.columns.schema import RECORD, RECORD_SCHEMAS
from pyspark_log_storage.parquet import row_group
from pyspark_log_storage.parquet.parquet_segment import ParquetRows, ParquetSegmentWriter

FOLDER = "topics/t/1/2/"
NAME = "00000000000000001000-00000000000000000007-abc.parquet"
KEY = FOLDER + NAME
BASE = 1000
EPOCHS = ((3, 1000), (5, 1004))
START = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def batch_of(rows, schema=RECORD):
    """Return rows, given as value, time in microseconds and, with headers, those."""
    names = ("value", "timestamp", "headers")
    found = [dict(zip(names, each, strict=False)) | {"key": each[0] and each[0][:2]} for each in rows]
    for each in found:
        each["timestamp"] = START + dt.timedelta(microseconds=each["timestamp"])
    return pa.RecordBatch.from_pylist(found, schema)


def write(store, chunks, schemas=RECORD_SCHEMAS, key=KEY, compression="lz4"):
    """Write a segment. A chunk is its rows, the number of its schema, and its leader epoch."""
    writer = ParquetSegmentWriter(store, key, EPOCHS, ParquetRows(2, tuple(schemas), compression))
    for batch, schema_id, epoch in chunks:
        writer.append(batch, schema_id, epoch)
    return writer.close()


def simple(*counts, epoch=3):
    """Return chunks of so many rows."""
    return [(batch_of([(b"v%d" % n, n) for n in range(count)]), 0, epoch) for count in counts]


def rows_of(store, entries, schemas=RECORD_SCHEMAS):
    """Return the rows of entries as dictionaries with their offsets."""
    found = []
    for entry in entries:
        batch = row_group.read(store, KEY, entry.place(), schemas, "x")
        for row, each in enumerate(batch.to_pylist()):
            found.append({"offset": entry.base_offset + row, **each})
    return found


def whole(batches):
    """Return the rows of batches as `rows_of` does, each with headers."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [{"offset": BASE + number, **row} for number, row in enumerate(rows)]
