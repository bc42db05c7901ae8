"""The evolution of a typed topic's columns: by steps after which every stored row can still be read.

    allowed     new columns and fields of structs, at the end, that may be null
                wider types: byte < short < int < long; float < double; byte, short and int to double;
                decimals with more digits on either side of the point
                null where it was not allowed, if the change asks for it (`relax`)
    refused     another type
    kept        what the change lacks, has narrower, or does not allow to be null

Each of the widenings keeps every value as it is. Sources: type widening in Delta Lake's protocol, of which the changes
between integers, to double, and of decimals are taken, and Iceberg's schema evolution (int to long, float to double,
wider decimals). Delta's long to decimal and date to timestamp_ntz are not taken, nor is a map's key ever changed.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from pyspark_log_storage.columns.column_types import PRECISION_MAX, children, ddl, type_name
from pyspark_log_storage.errors import InvalidRecord

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_WIDER: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    **{kind: (*_INTEGERS[place + 1 :], pa.float64()) for place, kind in enumerate(_INTEGERS[:3])},
    pa.float32(): (pa.float64(),),
}
"""The types to which each atomic type can be widened, except for decimals."""


def merge(current: pa.Schema, wanted: pa.Schema, *, relax: bool = False) -> pa.Schema:
    """Return the columns that hold the rows of both: `current` changed as little as `wanted` needs.

    `wanted` may lack columns, and have them in another order. With `relax` it says what may be null; without, columns
    that exist stay as they are, and everything in new ones may be null.
    Raises `InvalidRecord`, which names the column.
    """
    return pa.schema(_merged_fields(current, wanted, "", relax=relax))


def has_wider(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether a type that is not nested is widened to the other."""
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        whole_digits = new.precision - new.scale >= old.precision - old.scale
        return bool(new != old and new.scale >= old.scale and whole_digits)
    return new in _WIDER.get(old, ())


def can_be_read_as(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether every value of a column can be read as another type, of which structs may lack fields."""
    if stored == wanted or has_wider(stored, wanted):
        return True
    if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
        known = {field.name: field for field in stored}
        return all(each.name in known and _is_readable(known[each.name], each) for each in wanted)
    both_lists = pa.types.is_list(stored) and pa.types.is_list(wanted)
    if both_lists or (pa.types.is_map(stored) and pa.types.is_map(wanted) and stored.key_type == wanted.key_type):
        return all(map(_is_readable, children(stored), children(wanted)))
    return False


def _is_readable(stored: pa.Field, wanted: pa.Field) -> bool:
    return (wanted.nullable or not stored.nullable) and can_be_read_as(stored.type, wanted.type)


def _path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _merged_fields(
    current: Iterable[pa.Field], wanted: Iterable[pa.Field], where: str, *, relax: bool
) -> list[pa.Field]:
    news = {field.name.lower(): field for field in wanted}
    merged = []
    for field in current:
        new = news.pop(field.name.lower(), None)
        merged.append(field if new is None else _merged(field, new, _path(where, field.name), relax=relax))
    return [*merged, *(pa.field(each.name, each.type if relax else nullable(each.type)) for each in news.values())]


def _merged(current: pa.Field, wanted: pa.Field, where: str, *, relax: bool) -> pa.Field:
    may_be_null = current.nullable or (relax and wanted.nullable)
    return pa.field(current.name, _merged_type(current.type, wanted.type, where, relax=relax), may_be_null)


def _merged_type(current: pa.DataType, wanted: pa.DataType, where: str, *, relax: bool) -> pa.DataType:
    if current == wanted or has_wider(wanted, current):
        return current
    if has_wider(current, wanted):
        return wanted
    if pa.types.is_decimal(current) and pa.types.is_decimal(wanted):
        scale = max(current.scale, wanted.scale)
        digits = max(current.precision - current.scale, wanted.precision - wanted.scale) + scale
        if digits <= PRECISION_MAX:
            return pa.decimal128(digits, scale)
    elif pa.types.is_struct(current) and pa.types.is_struct(wanted):
        return pa.struct(_merged_fields(current, wanted, where, relax=relax))
    elif pa.types.is_list(current) and pa.types.is_list(wanted):
        return pa.list_(_merged(current.value_field, wanted.value_field, f"{where}.element", relax=relax))
    elif pa.types.is_map(current) and pa.types.is_map(wanted) and _same_key(current, wanted, relax=relax):
        return pa.map_(current.key_field, _merged(current.item_field, wanted.item_field, f"{where}.value", relax=relax))
    raise InvalidRecord(
        f"column '{where}' is {type_name(current)} and cannot become {type_name(wanted)}; cast it before the write, or "
        "give it another name"
    )


def _same_key(current: pa.MapType, wanted: pa.MapType, *, relax: bool) -> bool:
    """Return whether keys need no other type; what in a struct may be null counts only with `relax`."""
    one, other = current.key_type, wanted.key_type
    return bool(one == other or has_wider(other, one) or (not relax and nullable(one) == nullable(other)))


def nullable(kind: pa.DataType) -> pa.DataType:
    """Return a type in which every nested value may be null, as Spark's `asNullable`."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, nullable(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", nullable(kind.value_type)))
    if pa.types.is_map(kind):
        key = pa.field("key", nullable(kind.key_type), nullable=False)
        return pa.map_(key, pa.field("value", nullable(kind.item_type)))
    return kind


def added(old: pa.Schema, new: pa.Schema) -> str:
    """Return what `new` changes, in Spark's DDL: the columns that are new or have another type."""
    known = {field.name: field for field in old}
    return ddl(pa.schema([field for field in new if field.name not in known or known[field.name] != field]))
