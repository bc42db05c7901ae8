"""Ranges of a column: where they begin, as text that is stored, and the rows of one of them.

A range has the rows from its first value up to but not including the next range's. The first range also has the rows
without a value. All comparisons are Spark's own, so ranges of one column never share a row and never leave one out.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as f
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_log.source.row import quoted
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

SAMPLES_PER_RANGE = 100
"""So few rows tell where ranges begin that differ in size by some tens of percent."""
_CAST = (
    *(ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType),
    *(StringType, DateType, TimestampNTZType),
)
"""Types whose values Spark casts to text and back, and has the same values."""


class Ordering(NamedTuple):
    """The columns by which rows are ordered. The first one is cut into ranges."""

    fields: tuple[StructField, ...]

    @property
    def first(self) -> Column:
        """The column that is cut into ranges."""
        return f.col(quoted(self.fields[0].name))

    @property
    def kind(self) -> DataType:
        """The type of that column."""
        return self.fields[0].dataType

    def columns(self) -> list[Column]:
        """Return how the rows of a range are sorted: rows without a value first, as Spark does."""
        return [f.col(quoted(each.name)).asc_nulls_first() for each in self.fields]


def ordering_of(frame: DataFrame, names: Sequence[str]) -> Ordering:
    """Return the ordering of a frame by columns. Raises `InvalidInput`."""
    if not names:
        raise InvalidInput("order_by is empty; name the column whose order the topic keeps")
    fields = {field.name.lower(): field for field in frame.schema}
    for name in names:
        if name.lower() not in fields:
            raise InvalidInput(f"order_by is {name!r}, and the frame has {', '.join(frame.columns)}; choose of these")
    found = Ordering(tuple(fields[name.lower()] for name in names))
    if not isinstance(found.kind, (*_CAST, TimestampType, BinaryType)):
        raise InvalidInput(
            f"order_by begins with {names[0]!r} of type {found.kind.simpleString()}; choose a column of numbers, text, "
            "binary, dates or timestamps"
        )
    return found


def bounds_of(frame: DataFrame, ordering: Ordering, rows: int, rows_per_range: int) -> tuple[str, ...]:
    """Return the first values of the second and each later range, as text. Runs a job, unless one range suffices."""
    ranges = math.ceil(rows / rows_per_range)
    if ranges <= 1:
        return ()
    fraction = min(1.0, SAMPLES_PER_RANGE * ranges / rows)
    sample = frame.select(ordering.first).where(ordering.first.isNotNull()).sample(fraction=fraction, seed=0)
    values = [row[0] for row in sample.sort(ordering.first).select(_text(ordering)).collect()]
    if not values:
        return ()
    return tuple(dict.fromkeys(values[len(values) * number // ranges] for number in range(1, ranges)))


def rows_between(frame: DataFrame, ordering: Ordering, bounds: Sequence[str], number: int) -> DataFrame:
    """Return the rows of a range in their order. Computes nothing."""
    column = ordering.first
    low, high = list(itertools.pairwise([None, *bounds, None]))[number]
    if low is not None:
        frame = frame.where(column >= _value(low, ordering.kind))
    if high is not None:
        below = column < _value(high, ordering.kind)
        frame = frame.where(below | column.isNull() if low is None else below)
    return frame.sort(*ordering.columns())


def _text(ordering: Ordering) -> Column:
    """Return the values of the ordering column as text, from which `_value` makes them again."""
    match ordering.kind:
        case TimestampType():
            return f.unix_micros(ordering.first).cast("string")  # text would depend on the session's time zone
        case BinaryType():
            return f.hex(ordering.first)
        case _:
            return ordering.first.cast("string")


def _value(text: str, kind: DataType) -> Column:
    match kind:
        case TimestampType():
            return f.timestamp_micros(f.lit(text).cast("bigint"))
        case BinaryType():
            return f.unhex(f.lit(text))
        case _:
            return f.lit(text).cast(kind)
