"""The headers that say which offset a row had where it was copied from.

An imported row whose offset here differs from the one in Kafka has Kafka's in the header `kafka.offset`. A row without
this header kept its offset. A row that is exported has the header `pyspark-log.offset`, because Kafka assigns offsets
itself. Offsets grow on both sides, so a bisection finds the place of any offset.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_log.reading.planning import next_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark_log_coordinator.log.log import Log, TopicHandle

KAFKA_OFFSET = "kafka.offset"
LOG_OFFSET = "pyspark-log.offset"

_DIGITS_MAX = 19
"""Anybody may write such a header; a number of more digits is no offset."""

Header = tuple[str, bytes | None]


def offset_in(headers: Iterable[Header], name: str) -> int | None:
    """Return the offset in the last header of this name, None if there is none."""
    found = None
    for key, value in headers:
        if key == name and value is not None and len(value) <= _DIGITS_MAX and value.isdigit():
            found = int(value)
    return found


def without(headers: list[Header], name: str) -> list[Header]:
    """Return the headers without the last one of this name if that has an offset."""
    for index in range(len(headers) - 1, -1, -1):
        if offset_in(headers[index : index + 1], name) is not None:
            return [*headers[:index], *headers[index + 1 :]]
    return headers


def kafka_offset(log: Log, handle: TopicHandle, number: int, offset: int) -> int:
    """Return the offset in Kafka of the first row at or after `offset` of a partition. Reads the row."""
    row = next_row(log, handle, number, offset)
    if row is None:
        return offset
    at, batch = row
    found = offset_in(headers_of(batch)[0], KAFKA_OFFSET)
    return at if found is None else found


def headers_of(record: pa.RecordBatch) -> list[list[Header]]:
    """Return the headers of each row."""
    if "headers" not in record.schema.names:
        return [[] for _ in range(record.num_rows)]
    return [
        [(each["key"], each["value"]) for each in headers or ()] for headers in record.column("headers").to_pylist()
    ]


def offset_here(log: Log, handle: TopicHandle, number: int, wanted: int) -> int:
    """Return the offset of the first imported row whose offset in Kafka is `wanted` or higher, or the end."""
    partition = handle.partitions[number]
    find = functools.partial(kafka_offset, log, handle, number)
    low, high = partition.log_start, partition.high_watermark
    if low < wanted < high and find(wanted) == wanted:
        return wanted  # most topics have no gaps
    return first_reaching(find, low, high, wanted)


def first_reaching(find: Callable[[int], int], low: int, high: int, wanted: int) -> int:
    """Return the first of the numbers from `low` for which `find` returns `wanted` or more, or `high`."""
    while low < high:
        middle = (low + high) // 2
        if find(middle) < wanted:
            low = middle + 1
        else:
            high = middle
    return low
