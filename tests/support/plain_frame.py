"""A frame of Python's rows: the part of Spark's DataFrames and functions that `pyspark_log.history` uses.

Comparisons are Spark's: one with null is null, and `where` takes only what is true. Writes are those of
`typed_frames.write`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

from pyspark.sql.types import DataType, LongType, StringType, StructType

from tests.support.pyspark_log import typed_frames

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


class Column:
    """A function of a row, which is a dict; in `agg` of all rows."""

    def __init__(self, of: Callable[[Any], Any], name: str = "") -> None:
        self.of, self.name = of, name

    def _with(self, other: Column, function: Callable[[Any, Any], Any]) -> Column:
        def of(row: Any) -> Any:
            values = self.of(row), other.of(row)
            return None if None in values else function(*values)

        return Column(of)

    def then(self, function: Callable[[Any], Any]) -> Column:
        """Return the column of a function's results; that of null is null."""
        return self._with(lit(0), lambda value, _: function(value))

    def __ge__(self, other: Column) -> Column:
        return self._with(other, lambda one, two: one >= two)

    def __lt__(self, other: Column) -> Column:
        return self._with(other, lambda one, two: one < two)

    def __and__(self, other: Column) -> Column:
        return Column(lambda row: self.of(row) is True and other.of(row) is True)

    def __or__(self, other: Column) -> Column:
        return Column(lambda row: self.of(row) is True or other.of(row) is True)

    def __getitem__(self, key: Column) -> Column:
        return self._with(key, lambda found, one: found.get(one))

    def isNull(self) -> Column:  # noqa: N802 -- Spark's name, as those below
        return Column(lambda row: self.of(row) is None)

    def isNotNull(self) -> Column:  # noqa: N802
        return Column(lambda row: self.of(row) is not None)

    def asc_nulls_first(self) -> Column:
        return self

    def cast(self, kind: str | DataType) -> Column:
        if kind == "string" or isinstance(kind, StringType):
            return self.then(str)
        assert kind == "bigint" or isinstance(kind, LongType), f"no cast to {kind}"
        return self.then(int)


def lit(value: object) -> Column:
    """Return the column of one value."""
    return Column(lambda _: value)


class Functions:
    """What takes the place of `pyspark.sql.functions`."""

    lit = staticmethod(lit)

    @staticmethod
    def col(name: str) -> Column:
        name = name[1:-1].replace("``", "`") if name.startswith("`") else name
        return Column(lambda row: {each.lower(): value for each, value in row.items()}[name.lower()], name)

    @staticmethod
    def create_map(*pairs: Column) -> Column:
        return Column(lambda row: {pairs[i].of(row): pairs[i + 1].of(row) for i in range(0, len(pairs), 2)})

    @staticmethod
    def timestamp_millis(column: Column) -> Column:
        return column.then(lambda number: _EPOCH + number * 1000 * _MICROSECOND)

    @staticmethod
    def min(name: str) -> Column:
        return Column(lambda rows: min((row[name] for row in rows if row[name] is not None), default=None))


class Session:
    """The part of a session that a backfill uses."""

    def createDataFrame(self, rows: list[Any], schema: str) -> None:  # noqa: N802
        """Do nothing: there is only one session."""


class Frame:
    """Rows with a schema."""

    sparkSession = Session()  # noqa: N815

    def __init__(self, schema: StructType, rows: Iterable[tuple[Any, ...]]) -> None:
        self.schema, self.columns = schema, schema.fieldNames()
        self._rows = [dict(zip(self.columns, row, strict=True)) for row in rows]
        self.write = _Write(self)

    def _like(self, rows: Iterable[dict[str, Any]]) -> Frame:
        return Frame(self.schema, [tuple(row.values()) for row in rows])

    def collect(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self._rows]

    def dicts(self) -> list[dict[str, Any]]:
        """Return the rows by their columns' names."""
        return list(self._rows)

    def where(self, condition: Column) -> Frame:
        return self._like(row for row in self._rows if condition.of(row) is True)

    def select(self, *columns: Column) -> Frame:
        known = {each.name.lower(): each.dataType for each in self.schema}
        schema = StructType()
        for each in columns:
            schema.add(each.name or "unnamed", known.get(each.name.lower(), StringType()))
        return Frame(schema, [tuple(each.of(row) for each in columns) for row in self._rows])

    def to(self, schema: StructType) -> Frame:
        return Frame(schema, [tuple(row[name] for name in schema.fieldNames()) for row in self._rows])

    def sort(self, *columns: Column) -> Frame:
        rows = list(self._rows)
        for each in reversed(columns):

            def key(row: dict[str, Any], each: Column = each) -> tuple[Any, ...]:
                return (0,) if each.of(row) is None else (1, each.of(row))

            rows.sort(key=key)
        return self._like(rows)

    def sample(self, fraction: float, seed: int) -> Frame:
        assert 0 < fraction <= 1
        chance = random.Random(seed)
        return self._like(row for row in self._rows if chance.random() < fraction)

    def groupBy(self, name: str) -> _Grouped:  # noqa: N802
        groups: dict[Any, list[dict[str, Any]]] = {}
        for row in self._rows:
            groups.setdefault(row[name], []).append(row)
        return _Grouped(groups)

    def count(self) -> int:
        return len(self._rows)

    def unionAll(self, other: Frame) -> Frame:  # noqa: N802
        assert self.columns == other.columns
        return self._like([*self._rows, *other.dicts()])


class _Grouped:
    def __init__(self, groups: dict[Any, list[dict[str, Any]]]) -> None:
        self._groups = groups

    def agg(self, column: Column) -> Frame:
        schema = StructType().add("key", LongType()).add("0", LongType())
        return Frame(schema, [(key, column.of(rows)) for key, rows in self._groups.items()])


class _Write:
    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._options: dict[str, str] = {}

    def format(self, name: str) -> _Write:
        assert name == "pyspark_log"
        return self

    def mode(self, name: str) -> _Write:
        assert name == "append"
        return self

    def options(self, **options: str) -> _Write:
        self._options = options
        return self

    def save(self) -> None:
        options = dict(self._options)
        typed_frames.write(options.pop("path"), self._frame.schema, self._frame.dicts(), **options)
