"""Columns of one schema as those of another: of an older one as the newest, of the newest as a reader's.

Columns are found by name, and fields of structs by name, ignoring case. Missing ones are null, numbers are widened; a
number that is narrowed must fit. Buffers that stay as they are, are shared.
"""

from __future__ import annotations

import functools

import pyarrow as pa


def as_newest(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Return rows of an older schema of a topic as those of its schema `wanted`.

    Rows that have this schema already are returned as they are. Raises `ValueError` if a value does not fit.
    """
    if batch.schema.equals(wanted):
        return batch
    return pa.RecordBatch.from_arrays([column_of(batch, field) for field in wanted], schema=wanted)


def column_of(batch: pa.RecordBatch, wanted: pa.Field) -> pa.Array:
    """Return the column with the name and the type of `wanted`, nulls if there is none.

    Raises `ValueError`, which names the column, if a value does not fit.
    """
    place = batch.schema.get_field_index(wanted.name)
    try:
        column = converted(batch.column(place), wanted.type) if place >= 0 else pa.nulls(batch.num_rows, wanted.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"column '{wanted.name}': {error}") from error
    if not wanted.nullable and column.null_count > 0:
        raise ValueError(f"column '{wanted.name}' has a null, and must have none")
    return column


def converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column in another type. Raises `pa.ArrowInvalid` if a value does not fit."""
    if _same_layout(column.type, kind):
        return column
    if pa.types.is_large_list(column.type):
        column = column.cast(pa.list_(column.type.value_field))
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        mask = column.is_null() if column.null_count else None
        fields = [_field_of(column, field) for field in kind]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=mask)
    if pa.types.is_map(column.type) or pa.types.is_list(column.type):
        column = _without_other_rows(column)
    if pa.types.is_map(kind) and pa.types.is_map(column.type):
        entries = pa.StructArray.from_arrays(
            [converted(column.keys, kind.key_type), converted(column.items, kind.item_type)],
            fields=[kind.key_field, kind.item_field],
        )
        return _with_values(column, kind, entries)
    if pa.types.is_list(kind) and pa.types.is_list(column.type):
        return _with_values(column, kind, converted(column.values, kind.value_type))
    narrowed = column.cast(kind)
    if pa.types.is_floating(column.type) and pa.types.is_floating(kind) and kind.bit_width < column.type.bit_width:
        _check_exact(column, narrowed)  # Arrow rounds, and makes infinities of what is too large
    return narrowed


def _check_exact(column: pa.Array, narrowed: pa.Array) -> None:
    """Raise `pa.ArrowInvalid` if a number has become another one."""
    import pyarrow.compute as pc  # most reads need no conversion

    is_same = pc.or_(pc.equal(narrowed.cast(column.type), column), pc.is_nan(column))
    if pc.all(is_same).as_py() is False:
        lost = column.filter(pc.invert(is_same))[0]
        raise pa.ArrowInvalid(f"{column.type} value {lost} does not fit into {narrowed.type}")


def _field_of(column: pa.StructArray, field: pa.Field) -> pa.Array:
    names = [each.name.lower() for each in column.type]  # which differ, also in lower case
    if field.name.lower() not in names:
        return pa.nulls(len(column), field.type)
    return converted(column.field(names.index(field.name.lower())), field.type)


def _without_other_rows(column: pa.Array) -> pa.Array:
    """Return a list or a map without the values of the rows before and after it, which a slice shares."""
    values = column.keys if pa.types.is_map(column.type) else column.values
    offsets = column.offsets
    is_whole = offsets[0].as_py() == 0 and offsets[-1].as_py() == len(values)
    return column if is_whole else pa.concat_arrays([column])


def _with_values(column: pa.Array, kind: pa.DataType, values: pa.Array) -> pa.Array:
    """Return a list or a map with the validity and the offsets of `column`."""
    return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], offset=column.offset, children=[values])


@functools.lru_cache(maxsize=256)
def _same_layout(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether types are equal, also in the names of their fields, which Arrow's equality of maps ignores."""
    return bool(one.equals(other)) and str(one) == str(other)
