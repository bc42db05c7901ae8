"""Arrow rows as the records that a consumer returns, without an Arrow scalar for each value."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyspark_log.client.read.fetch import fetch
from pyspark_log.clients.records import ConsumerRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log.client.read.fetch import Split
    from pyspark_log.clients.records import ConsumerBatch
    from pyspark_log_storage.store import Store

_US_PER_MS = 1000


def records_of(batch: ConsumerBatch) -> list[ConsumerRecord]:
    """Return the rows of a batch, one by one."""
    rows, topic, partition = batch.rows, batch.topic, batch.partition
    columns = (
        range(batch.offset, batch.offset + rows.num_rows),
        (np.asarray(rows.column("timestamp").view(pa.int64())) // _US_PER_MS).tolist(),
        values_of(rows.column("key")),
        values_of(rows.column("value")),
    )
    if "headers" in rows.schema.names:
        headers = (
            () if each is None else tuple((pair["key"], pair["value"]) for pair in each)
            for each in rows.column("headers").to_pylist()
        )
        return [ConsumerRecord(topic, partition, *row) for row in zip(*columns, headers, strict=True)]
    return [ConsumerRecord(topic, partition, o, t, k, v) for o, t, k, v in zip(*columns, strict=True)]


def first_timestamp_ms(store_at: Callable[[str], Store], split: Split) -> int:
    """Return the timestamp of the first row of a split, in milliseconds since 1970."""
    _, rows = next(fetch(store_at, split))
    microseconds: int = rows.column("timestamp").view(pa.int64())[0].as_py()
    return microseconds // _US_PER_MS


def values_of(column: pa.Array) -> list[bytes | None]:
    """Return the values of a binary column."""
    rows = len(column)
    if column.null_count == rows:
        return [None] * rows
    _, ends, data = column.buffers()
    bounds = np.frombuffer(ends, np.int32)[column.offset : column.offset + rows + 1]
    first, end = int(bounds[0]), int(bounds[-1])
    raw = b"" if data is None else data.slice(first, end - first).to_pybytes()
    values = [raw[start:stop] for start, stop in itertools.pairwise((bounds - first).tolist())]
    if column.null_count == 0:
        return values
    is_null = column.is_null().to_numpy(zero_copy_only=False).tolist()
    return [None if null else value for null, value in zip(is_null, values, strict=True)]
