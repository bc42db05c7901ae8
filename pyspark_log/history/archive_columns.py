"""The columns of an archive's table and of its topic: which must become wider, and rows of one as rows of the other.

Delta casts rows that are appended to a table by its name: 0.5 becomes 0 in a column of integers. By a path it refuses
them. So a column is made wider before rows are appended, and rows are cast only to types that hold all their values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, NumericType, StructField, StructType

from pyspark_log.source.identifiers import quoted
from pyspark_log_storage.columns.schema_evolution import has_wider

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame


def as_type(frame: DataFrame, kind: StructType) -> DataFrame:
    """Return rows with these columns: found by name, cast, and null if a frame has none of the name."""
    known = {each.name: each.dataType for each in frame.schema}

    def column(wanted: StructField) -> Column:
        if wanted.name not in known:
            return f.lit(None).cast(wanted.dataType)
        return _converted(f.col(quoted(wanted.name)), known[wanted.name], wanted.dataType)

    return frame.select(*(column(each).alias(each.name) for each in kind))


def held_type(stored: StructType, rows: StructType) -> StructType:
    """Return the columns of `rows`, each with the table's type if that is the wider one."""
    held = _held(stored, rows)
    assert isinstance(held, StructType)
    return held


def changed(stored: DataType, wanted: DataType, path: str = "") -> Iterator[tuple[str, DataType, DataType]]:
    """Yield the columns and nested fields that both have with other types: the path in SQL, and the two types."""
    match stored, wanted:
        case StructType(), StructType():
            known = {each.name.lower(): each.dataType for each in stored}
            for each in wanted:
                if each.name.lower() in known:
                    where = f"{path}.{quoted(each.name)}" if path else quoted(each.name)
                    yield from changed(known[each.name.lower()], each.dataType, where)
        case ArrayType(), ArrayType():
            yield from changed(stored.elementType, wanted.elementType, f"{path}.element")
        case MapType(), MapType():
            yield from changed(stored.keyType, wanted.keyType, f"{path}.key")
            yield from changed(stored.valueType, wanted.valueType, f"{path}.value")
        case _:
            if stored != wanted:
                yield path, stored, wanted


def _held(stored: DataType, rows: DataType) -> DataType:
    match stored, rows:
        case StructType(), StructType():
            known = {each.name.lower(): each.dataType for each in stored}
            kinds = [_held(known.get(each.name.lower(), each.dataType), each.dataType) for each in rows]
            return StructType([StructField(each.name, kind) for each, kind in zip(rows, kinds, strict=True)])
        case ArrayType(), ArrayType():
            return ArrayType(_held(stored.elementType, rows.elementType))
        case MapType(), MapType():
            return MapType(rows.keyType, _held(stored.valueType, rows.valueType))
        case _:
            numbers = isinstance(stored, NumericType) and isinstance(rows, NumericType)
            return stored if numbers and has_wider(to_arrow_type(rows), to_arrow_type(stored)) else rows


def _converted(column: Column, known: DataType, wanted: DataType) -> Column:
    """Return a column with another type; fields of structs that it lacks are null."""
    if known.simpleString() == wanted.simpleString():
        return column
    match known, wanted:
        case StructType(), StructType():
            fields = {each.name: each.dataType for each in known}
            parts = [
                _converted(column.getField(each.name), fields[each.name], each.dataType)
                if each.name in fields
                else f.lit(None).cast(each.dataType)
                for each in wanted
            ]
            named = (part.alias(each.name) for part, each in zip(parts, wanted, strict=True))
            return f.when(column.isNotNull(), f.struct(*named))
        case ArrayType(), ArrayType():
            return f.transform(column, lambda one: _converted(one, known.elementType, wanted.elementType))
        case MapType(), MapType():
            return f.transform_values(column, lambda _, one: _converted(one, known.valueType, wanted.valueType))
        case _:
            return column.cast(wanted)
