"""Rows of a frame as rows of a typed topic: whole columns at a time; rows that do not fit are separated.

A row does not fit if it has a null where the topic has none, also inside a column, a whole number that is too large for
a narrower column, or text that is not UTF-8, which Spark accepts and readers refuse. Rows are judged, not the frame:
all may be null that Spark's `from_json` returns. The bytes of a key are those of Kafka's serializers:
text in UTF-8, binary as it is, whole numbers in big-endian order, 8 for a bigint, 4 for an int. If a key is several
columns, they are these bytes of each, after their number (4 bytes, big-endian): no two keys have the same. A row in
which one of the columns is null has no key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.writing.dead_letters import json_records
from pyspark_log.writing.rows import Rows, rows_not_utf8, timestamps_of
from pyspark_log_storage.columns import column_types, schema
from pyspark_log_storage.columns.column_conversion import converted
from pyspark_log_storage.columns.column_types import children
from pyspark_log_storage.errors import InvalidRecord
from pyspark_log_storage.files.batch_check import with_first_offsets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pyspark_log.writing.typed_plan import TypedPlan


def typed_rows(
    batch: pa.RecordBatch, plan: TypedPlan, topic: str, *, now_us: int, keeps_refused: bool = False
) -> Iterator[Rows]:
    """Yield the rows of a batch of the planned frame. `now_us` is the timestamp of rows without one, in microseconds.

    Raises `InvalidRecord` for a row that does not fit; with `keeps_refused` such rows come apart, as letters.
    """
    wanted = schema.decode(plan.schema.stored, f"topic {topic!r}")
    if batch.num_rows == 0:
        return
    batch = with_first_offsets(batch)  # before Arrow converts any column
    given = {name: batch.column(place) for place, name in enumerate(batch.schema.names)}
    times = timestamps_of(given.get("timestamp"), batch.num_rows, now_us)
    columns, reasons = _columns(given, plan, wanted, batch.num_rows)
    partition = given.get("partition")
    keys = _key_bytes([columns[wanted.get_field_index(each)] for each in plan.keys]) if plan.keys else None
    record = pa.RecordBatch.from_arrays([*columns, times], schema=wanted)
    reasons = _with_wrong_text(record, reasons)
    if reasons is None:
        yield Rows(record, None, partition, typed=plan.schema, keys=keys)
        return
    if not keeps_refused:
        raise InvalidRecord(f"topic {topic!r}: {reasons.drop_null()[0].as_py()}")
    rows = Rows(record, None, partition, reasons, plan.schema, keys)
    is_bad = reasons.is_valid()
    bad = rows.filter(is_bad)
    own = batch.select([name for name in plan.sources if name is not None]).filter(is_bad)
    letters = json_records(own, bad.keys, bad.record.column("timestamp"))
    yield Rows(letters, None, bad.partition, bad.refused, are_letters=True)
    yield rows.filter(pc.invert(is_bad))


def _columns(
    given: dict[str, pa.Array], plan: TypedPlan, wanted: pa.Schema, rows: int
) -> tuple[list[pa.Array], pa.Array | None]:
    """Return the topic's columns, and why rows do not fit, null for one that does; None if all do."""
    columns, reasons = [], None
    for source, field in zip(plan.sources, wanted, strict=False):  # `timestamp` has no source
        if source is None:
            columns.append(pa.nulls(rows, field.type))
            continue
        column = given[source]
        try:
            stored = converted(column, field.type)
        except pa.ArrowInvalid as error:
            if pa.types.is_nested(field.type):
                is_bad = np.zeros(rows, bool)
                is_bad[_unconvertible(column, field.type)] = True
                kept = pa.array(np.arange(rows), mask=is_bad)  # the others become null
                columns.append(converted(column.take(kept), field.type))
                text = f"column '{field.name}' has a value inside that the topic's column cannot hold ({error}); round"
                reasons = _and(reasons, pa.array(is_bad), f"{text} or cast it before the write")
                continue
            stored = column.cast(field.type, safe=False)
            lost = pc.not_equal(stored.cast(column.type), column)
            stored = pc.if_else(lost, pa.scalar(None, field.type), stored)  # a letter has no key rather than another's
            if pa.types.is_timestamp(field.type):
                text = f"column '{field.name}' has a time that microseconds cannot hold; round it before the write"
            else:
                text = (
                    f"column '{field.name}' has a number that is too large for the topic's column; write smaller "
                    "numbers, or make it wider by a write of Spark with mergeSchema=true"
                )
            reasons = _and(reasons, lost, text)
        if not field.nullable and column.null_count > 0:
            text = f"column '{field.name}' is null, and the topic's column is not null; fill or filter it"
            reasons = _and(reasons, column.is_null(), f"{text} before the write")
        if _has_required(field.type) and (is_bad := _lacks_required(stored, field.type)).any():
            kind = column_types.type_name(field.type)
            text = f"column '{field.name}' has a null inside where the topic's column has none ({kind:.500}); fill or"
            reasons = _and(reasons, pa.array(is_bad), f"{text} filter it before the write")
        columns.append(stored)
    return columns, reasons


def _unconvertible(column: pa.Array, kind: pa.DataType, first: int = 0) -> list[int]:
    """Return the rows whose value does not fit into a type, by bisection; the first row has number `first`."""
    try:
        converted(column, kind)
    except pa.ArrowInvalid:
        if len(column) == 1:
            return [first]
        half = len(column) // 2
        return _unconvertible(column[:half], kind, first) + _unconvertible(column[half:], kind, first + half)
    return []


def _has_required(kind: pa.DataType) -> bool:
    """Return whether something inside a type must not be null, such as the keys of a map."""
    return any(not field.nullable or _has_required(field.type) for field in children(kind))


def _lacks_required(column: pa.Array, kind: pa.DataType) -> NDArray[np.bool_]:
    """Return for each row whether it has a null inside where its type has none."""
    found = np.zeros(len(column), bool)
    if pa.types.is_struct(kind):
        for place, field in enumerate(kind):
            found |= _is_null_or_lacks(column.field(place), field)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        offsets = np.asarray(column.offsets)
        owners = np.repeat(np.arange(len(column)), np.diff(offsets))
        values = [column.keys, column.items] if pa.types.is_map(kind) else [column.values]
        for each, field in zip(values, children(kind), strict=True):
            inside = each.slice(offsets[0], offsets[-1] - offsets[0])
            found[owners[_is_null_or_lacks(inside, field)]] = True
    found &= np.asarray(column.is_valid())  # a null row may have values below
    return found


def _is_null_or_lacks(column: pa.Array, field: pa.Field) -> NDArray[np.bool_]:
    lacks = _lacks_required(column, field.type)
    return lacks if field.nullable else lacks | np.asarray(column.is_null())


def _and(reasons: pa.Array | None, chosen: pa.Array, text: str) -> pa.Array:
    more = pc.if_else(chosen.fill_null(False), pa.scalar(text), pa.scalar(None, pa.string()))
    return more if reasons is None else pc.coalesce(reasons, more)


def _with_wrong_text(record: pa.RecordBatch, reasons: pa.Array | None) -> pa.Array | None:
    """Return the reasons, also of rows with text that is not UTF-8, which readers would take for damage."""
    try:
        record.validate(full=True)
    except pa.ArrowInvalid:
        wrong = np.zeros(record.num_rows, bool)
        for name, column in zip(record.schema.names, record.columns, strict=True):
            bad = rows_not_utf8(column)
            wrong[bad] = True
            if bad:
                text = f"column '{name}' has text that is not UTF-8; encode it, or write it as binary"
                is_bad = np.zeros(record.num_rows, bool)
                is_bad[bad] = True
                reasons = _and(reasons, pa.array(is_bad), text)
        assert wrong.any(), "a batch is invalid, and none of its columns is"
    return reasons


def _key_bytes(columns: Sequence[pa.Array]) -> pa.Array:
    """Return the bytes of the keys in one or several columns, null for a row without a key."""
    values = [_value_bytes(each) for each in columns]
    if len(values) == 1:
        return values[0]
    pieces = [piece for each in values for piece in (_value_bytes(pc.binary_length(each)), each)]
    return pc.binary_join_element_wise(*pieces, b"")


def _value_bytes(column: pa.Array) -> pa.Array:
    """Return the bytes that Kafka's serializers make of a column's values."""
    if not pa.types.is_integer(column.type):
        return column if pa.types.is_binary(column.type) else column.view(pa.binary())
    width = column.type.bit_width // 8
    numbers: NDArray[np.int64] = np.asarray(column.fill_null(0))
    data = numbers.astype(f">i{width}")
    offsets = np.arange(0, width * (len(column) + 1), width, dtype=np.int32)
    keys = pa.Array.from_buffers(pa.binary(), len(column), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return keys if column.null_count == 0 else pc.if_else(column.is_valid(), keys, pa.scalar(None, pa.binary()))
