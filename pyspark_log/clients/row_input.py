"""Rows as users of a producer give them, checked when they are sent: an error in one fails no other row."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, SupportsIndex, TypeAlias

import pyarrow as pa

from pyspark_log.clients.records import Headers
from pyspark_log.writing.destination import check, check_size, check_time
from pyspark_log.writing.partitioner import check_partition
from pyspark_log.writing.rows import Rows, rows_of
from pyspark_log_storage.errors import InvalidRecord

if TYPE_CHECKING:
    from pyspark_log.writing.destination import Destination

Text: TypeAlias = "bytes | bytearray | memoryview | str"
GivenHeaders: TypeAlias = "Mapping[str, Text | None] | Iterable[tuple[str, Text | None]]"

InputRow: TypeAlias = "tuple[bytes | None, bytes | None, int, RareParts | None]"
"""A row that can be written to its topic: key, value, size and what few rows have.

The size is the bytes of key, value and headers. It is a plain tuple, because a named one takes longer to make than the
row to check.
"""
RareParts: TypeAlias = "tuple[Headers | None, int | None, int | None]"
"""Headers, partition, and timestamp in microseconds, which is None for now."""

_US_PER_MS = 1000
TIMESTAMP_MS_MAX = 2**63 // 1000 - 1


def as_bytes(value: object, what: str) -> bytes:
    """Return bytes, or text in UTF-8. Raises `InvalidRecord`."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise InvalidRecord(f"the {what} of a row is text that UTF-8 cannot encode ({error}); give bytes") from None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise InvalidRecord(f"the {what} of a row is of type {type(value).__name__}; give bytes, text or None")


def lasting(headers: GivenHeaders) -> GivenHeaders:
    """Return headers that can be read twice: an iterator as a list."""
    return list(headers) if isinstance(headers, Iterator) else headers


def as_headers(given: GivenHeaders) -> Headers:
    """Return headers as they are stored. Raises `InvalidRecord`."""
    pairs: object = given.items() if isinstance(given, Mapping) else given
    if not isinstance(pairs, Iterable):
        raise InvalidRecord(f"the headers of a row are {given!r}; give a dict, or pairs of a text and a value")
    headers = []
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str):  # noqa: PLR2004 -- a pair
            raise InvalidRecord(f"a header is {pair!r}; give a dict, or pairs of a text and a value")
        key, value = pair
        as_bytes(key, "header key")
        headers.append((key, None if value is None else as_bytes(value, f"header {key}")))
    return headers


def as_integer(value: SupportsIndex, what: str) -> int:
    """Return an integer, which may be one of numpy. Raises `InvalidRecord`, also for a bool."""
    if not isinstance(value, bool):
        with contextlib.suppress(TypeError):
            return operator.index(value)
    raise InvalidRecord(f"the {what} of a row is {value!r}; give an integer")


def checked_row(
    destination: Destination,
    value: Text | None,
    key: Text | None,
    headers: GivenHeaders | None,
    partition: int | None,
    timestamp_ms: int | None,
) -> InputRow:
    """Return a row as it is stored. Raises `InvalidRecord`."""
    if destination.schemas:
        raise InvalidRecord(
            f"topic {destination.name!r} is typed: it has columns of its own, and takes no records of key and value; "
            "send Arrow rows with these columns with send_batch"
        )
    size = 0
    if value is not None:
        if type(value) is not bytes:
            value = as_bytes(value, "value")
        size = len(value)
    if key is not None:
        if type(key) is not bytes:
            key = as_bytes(key, "key")
        size += len(key)
    elif destination.needs_keys:
        raise InvalidRecord(f"topic {destination.name!r}: {destination.keyless}")
    parts = None
    if headers is not None or partition is not None or timestamp_ms is not None:
        stored, _, _ = parts = _checked_parts(destination, headers, partition, timestamp_ms)
        size += sum(len(name.encode()) + len(each or b"") for name, each in stored or ())
    if size > destination.max_message_bytes:  # `check_size` asks it again: a call takes a tenth of a row's time
        check_size(destination, size)
    return key, value, size, parts


def _checked_parts(
    destination: Destination, headers: GivenHeaders | None, partition: int | None, timestamp_ms: int | None
) -> RareParts:
    stored = timestamp = None
    if headers is not None:
        stored = as_headers(headers)
    if partition is not None:
        partition = as_integer(partition, "partition")
        try:
            check_partition(partition, destination.partitions)
        except InvalidRecord as error:
            raise InvalidRecord(f"topic {destination.name!r}: {error}") from error
    if timestamp_ms is not None:
        timestamp_ms = as_integer(timestamp_ms, "timestamp_ms")
        if not 0 <= timestamp_ms <= TIMESTAMP_MS_MAX:
            raise InvalidRecord(f"the timestamp of a row is {timestamp_ms}; give milliseconds since 1970")
        timestamp = timestamp_ms * _US_PER_MS
        check_time(destination, timestamp)
    return stored, partition, timestamp


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    try:
        batches = table.combine_chunks().to_batches()
    except pa.ArrowInvalid as error:
        raise InvalidRecord(f"the rows do not fit into one batch ({error}); send smaller batches") from error
    if len(batches) > 1:
        raise InvalidRecord(
            f"the {table.num_rows} rows do not fit into one batch, as a column has more than 2 GiB; send "
            "smaller batches"
        )
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def arrow_rows(data: pa.RecordBatch | pa.Table, destination: Destination) -> Rows:
    """Return the rows of an Arrow batch or table. Raises `InvalidRecord`."""
    if isinstance(data, pa.Table):
        data = _one_batch(data)
    if destination.schemas:
        return _typed_rows(data, destination)
    if "value" not in data.schema.names:
        raise InvalidRecord(
            f"the batch has no column 'value' (it has {', '.join(data.schema.names) or 'none'}); give the payload this "
            "name"
        )
    try:
        rows = rows_of(data, now_us=destination.now_us(), by_topic_column=False)
        explicit = None if rows.partition is None else rows.partition.cast(pa.int32())
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidRecord(
            f"a column of the batch has a type that cannot be written ({error}); the columns are value and key (binary "
            "or string), headers, partition (int32) and timestamp"
        ) from error
    rows = Rows(rows.record, None, explicit)
    check(destination, rows)
    return rows


def _typed_rows(data: pa.RecordBatch, destination: Destination) -> Rows:
    """Return the rows of a batch for a typed topic. Raises `InvalidRecord`."""
    from pyspark_log.writing import typed_rows

    name, stored = destination.name, destination.schemas
    plan = typed_rows.plan(name, stored, typed_rows.arrow_columns(data.schema, name), destination.config.key_column)
    try:
        rows = typed_rows.typed_rows(data, plan, name, now_us=destination.now_us())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRecord(
            f"topic {name!r}: a column of the batch has a value that cannot be written ({error}); round or cast it"
        ) from error
    try:
        explicit = None if rows.partition is None else rows.partition.cast(pa.int32())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRecord(f"topic {name!r}: column 'partition' is not a whole number ({error}); cast it") from error
    rows = Rows(rows.record, None, explicit, typed=plan.schema, keys=rows.keys)
    check(destination, rows)
    return rows
