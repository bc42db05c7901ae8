"""Dead letters of a typed topic: each is a record whose value is a row, as JSON, that could not be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_log_storage.columns import schema

if TYPE_CHECKING:
    from pyspark_log.writing.rows import Rows


def as_records(rows: Rows) -> pa.RecordBatch:
    """Return rows as records: the columns of a typed topic's rows become JSON."""
    if rows.typed is None:
        return rows.record
    return json_records(rows.record.select(rows.record.schema.names[:-1]), rows.keys, rows.record.column("timestamp"))


def json_records(columns: pa.RecordBatch, keys: pa.Array | None, timestamps: pa.Array) -> pa.RecordBatch:
    """Return rows with any columns as records with these keys and times."""
    from pyspark_log.writing import typed_json

    values = pa.array([typed_json.ENCODER.encode(row) for row in typed_json.objects(columns)], pa.binary())
    keys = pa.nulls(len(values), pa.binary()) if keys is None else keys.cast(pa.binary())
    return pa.RecordBatch.from_arrays([keys, values, timestamps.cast(schema.TIMESTAMP)], schema=schema.RECORD)
