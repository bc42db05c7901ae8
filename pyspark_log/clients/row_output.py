"""Arrow rows as the records that a consumer returns.

An Arrow scalar for each value would take most of the time. numpy reads Arrow's buffers, because Arrow's own conversions
import pandas where it is installed.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from pyspark_log.clients.records import ConsumerRecord
from pyspark_log.reading.fetch import fetch
from pyspark_log_storage.columns.schema import is_typed
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from numpy.typing import NDArray

    from pyspark_log.clients.records import ConsumerBatch
    from pyspark_log.reading.fetch import Split
    from pyspark_log_storage.stores.store import Store

_US_PER_MS = 1000


def records_of(batch: ConsumerBatch) -> list[ConsumerRecord]:
    """Return the rows of a batch, one by one."""
    rows, topic, partition = batch.rows, batch.topic, batch.partition
    if is_typed(rows.schema):
        raise InvalidInput(
            f"topic {topic!r} is typed: its rows have columns, and no key and value; read them with poll_batches"
        )
    columns = (
        range(batch.offset, batch.offset + rows.num_rows),
        (_microseconds(rows.column("timestamp")) // _US_PER_MS).tolist(),
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
    return int(_microseconds(rows.column("timestamp"))[0]) // _US_PER_MS


def values_of(column: pa.Array) -> list[bytes | None]:
    """Return the values of a binary column."""
    rows = len(column)
    if column.null_count == rows:
        return [None] * rows
    validity, ends, data = column.buffers()
    bounds = np.frombuffer(ends, np.int32)[column.offset : column.offset + rows + 1]
    first, end = int(bounds[0]), int(bounds[-1])
    raw = b"" if data is None else data.slice(first, end - first).to_pybytes()
    values = [raw[start:stop] for start, stop in itertools.pairwise((bounds - first).tolist())]
    if column.null_count == 0:
        return values
    bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
    is_valid = bits[column.offset : column.offset + rows].tolist()
    return [value if valid else None for valid, value in zip(is_valid, values, strict=True)]


def _microseconds(column: pa.Array) -> NDArray[np.int64]:
    times: NDArray[np.int64] = np.frombuffer(column.buffers()[1], np.int64)
    return times[column.offset : column.offset + len(column)]
