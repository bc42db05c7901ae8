"""Ranges of a column: where they begin, as text that is stored, and the rows of one of them.

A range has the rows from its first value up to but not including the next range's. The first range also has the rows
without a value. All comparisons are Spark's own, so ranges of one column never share a row and never leave one out.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, DateType, NumericType, StringType, TimestampNTZType, TimestampType

from pyspark_log.source.row import quoted
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField

SAMPLES_PER_RANGE = 100
"""So few rows tell where ranges begin that differ in size by some tens of percent."""
_KINDS = (NumericType, StringType, BinaryType, DateType, TimestampType, TimestampNTZType)


def fields_of(frame: DataFrame, names: Sequence[str]) -> list[StructField]:
    """Return the columns by which rows are ordered. The first one is cut into ranges. Raises `InvalidInput`."""
    if not names:
        raise InvalidInput("order_by is empty; name the column whose order the topic keeps")
    known = {field.name.lower(): field for field in frame.schema}
    for name in names:
        if name.lower() not in known:
            raise InvalidInput(f"order_by is {name!r}, and the frame has {', '.join(frame.columns)}; choose of these")
    fields = [known[name.lower()] for name in names]
    if not isinstance(fields[0].dataType, _KINDS):
        raise InvalidInput(
            f"order_by begins with {names[0]!r} of type {fields[0].dataType.simpleString()}; choose a column of "
            "numbers, text, binary, dates or timestamps"
        )
    return fields


def bounds_of(frame: DataFrame, field: StructField, rows_per_range: int) -> tuple[str, ...]:
    """Return the first values of the second and each later range, as text. Counts the rows, and takes a sample."""
    rows = frame.count()
    ranges = math.ceil(rows / rows_per_range)
    if ranges <= 1:
        return ()
    column = f.col(quoted(field.name))
    fraction = min(1.0, SAMPLES_PER_RANGE * ranges / rows)
    sample = frame.select(column).where(column.isNotNull()).sample(fraction=fraction, seed=0)
    values = [row[0] for row in sample.sort(column).select(_text(column, field.dataType)).collect()]
    starts = (values[len(values) * number // ranges] for number in range(1, ranges) if values)
    return tuple(dict.fromkeys(starts))


def rows_between(frame: DataFrame, fields: Sequence[StructField], bounds: Sequence[str], number: int) -> DataFrame:
    """Return the rows of a range in their order: those without a value first, as Spark does. Computes nothing."""
    column, kind = f.col(quoted(fields[0].name)), fields[0].dataType
    low, high = list(itertools.pairwise([None, *bounds, None]))[number]
    if low is not None:
        frame = frame.where(column >= _value(low, kind))
    if high is not None:
        below = column < _value(high, kind)
        frame = frame.where(below | column.isNull() if low is None else below)
    return frame.sort(*(f.col(quoted(each.name)).asc_nulls_first() for each in fields))


def _text(column: Column, kind: DataType) -> Column:
    """Return values as text, from which `_value` makes them again."""
    if isinstance(kind, TimestampType):
        return f.unix_micros(column).cast("string")  # text would depend on the session's time zone
    return f.hex(column) if isinstance(kind, BinaryType) else column.cast("string")


def _value(text: str, kind: DataType) -> Column:
    if isinstance(kind, TimestampType):
        return f.timestamp_micros(f.lit(text).cast("bigint"))
    return f.unhex(f.lit(text)) if isinstance(kind, BinaryType) else f.lit(text).cast(kind)
