"""The rows of the source: the columns of Spark's Kafka source, see `arrow_rows`, and those of typed topics.

    typed    topic string, partition int, offset bigint, timestamp timestamp, then the topic's columns

They come last because an evolution adds columns at the end. A user's `.schema()` selects some, in any order; only these
are decoded. A query keeps the schema with which it began. Rows of newer schemas are read as rows of it, and rows of
older ones too: what they lack is null, and their numbers become wider.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import DataType, StructField, StructType

from pyspark_log.reading.arrow_rows import COLUMNS as ARROW_COLUMNS
from pyspark_log.reading.arrow_rows import OWN
from pyspark_log_storage.columns import column_types, schema_evolution
from pyspark_log_storage.errors import InvalidInput, InvalidRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_RECORD = StructType.fromJson(column_types.to_json(pa.schema(list(ARROW_COLUMNS.items()))))
COLUMNS: dict[str, DataType] = {each.name: each.dataType for each in _RECORD}
"""Each column's type in Spark."""


def row_schema(*, include_headers: bool) -> StructType:
    """Return the schema. Every column is nullable, as in Spark's Kafka source."""
    names = [name for name in COLUMNS if include_headers or name != "headers"]
    return StructType([StructField(name, COLUMNS[name]) for name in names])


def check_records(schema: StructType) -> None:
    """Raise `InvalidInput` if a topic of records cannot be read with a schema."""
    for field in schema:
        if field.name not in COLUMNS:
            raise InvalidInput(f"unknown column {field.name!r}; the columns are {', '.join(COLUMNS)}")
    _check_types(schema)


def _check_types(fields: Iterable[StructField], where: str = "") -> None:
    """Raise `InvalidInput` for fields that are not as in `COLUMNS`."""
    for field in fields:
        expected = COLUMNS[field.name]
        if field.dataType != expected:
            raise InvalidInput(
                f"{where}column '{field.name}' has type {expected.simpleString()}, not "
                f"{field.dataType.simpleString()}; remove .schema(), and cast after the read"
            )
        if not field.nullable:
            raise InvalidInput(f"{where}column '{field.name}' is nullable; declare it as nullable, or remove .schema()")


def typed_schema(columns: pa.Schema) -> StructType:
    """Return the schema in which Spark reads a topic with these columns."""
    own = [StructField(name, COLUMNS[name]) for name in OWN]
    return StructType([*own, *StructType.fromJson(column_types.to_json(columns)).fields])


@functools.lru_cache(maxsize=8)
def wanted_fields(schema: str) -> pa.Schema:
    """Return the Arrow schema that Spark expects for a schema in its JSON form. Raises `InvalidRecord`."""
    struct = StructType.fromJson(json.loads(schema))
    user = [field.jsonValue() for field in struct if field.name not in OWN]
    found = column_types.from_json({"type": "struct", "fields": user}) if user else pa.schema([])
    own = {name: pa.field(name, ARROW_COLUMNS[name]) for name in OWN}
    return pa.schema([own[name] if name in own else found.field(name) for name in struct.fieldNames()])


_LOAD_AGAIN = "if it has become wider since load(), load again, else remove .schema(), and cast after the read"


def check_typed(schema: StructType, columns: pa.Schema, topic: str, advice: str = _LOAD_AGAIN) -> None:
    """Raise `InvalidInput` if a topic with these columns cannot be read with a schema.

    `advice` is what to do about a column of another type.
    """
    where = f"topic {topic!r}"
    _check_types((field for field in schema if field.name in OWN), f"{where}: ")
    try:
        wanted = wanted_fields(schema.json())
    except InvalidRecord as error:
        raise InvalidInput(f"{where}: {error}; correct .schema()") from error
    for field in wanted:
        if field.name not in OWN:
            _check_field(field, columns, where, advice)


def _check_field(wanted: pa.Field, columns: pa.Schema, where: str, advice: str) -> None:
    if wanted.name not in columns.names:
        raise InvalidInput(
            f"{where}: unknown column {wanted.name!r}; the columns are {', '.join((*OWN, *columns.names))}"
        )
    stored = columns.field(wanted.name)
    if stored.nullable and not wanted.nullable:
        raise InvalidInput(f"{where}: column '{wanted.name}' is nullable; declare it as nullable, or remove .schema()")
    if not schema_evolution.can_be_read_as(stored.type, wanted.type):
        raise InvalidInput(
            f"{where}: column '{wanted.name}' has type {column_types.type_name(stored.type)}, not "
            f"{column_types.type_name(wanted.type)}; {advice}"
        )


def same_columns(topics: Sequence[tuple[str, pa.Schema]]) -> pa.Schema:
    """Return the columns of topics that are read together. Raises `InvalidInput` if they differ."""
    (first, columns), *others = topics
    for other, found in others:
        if not found.equals(columns):
            raise InvalidInput(
                f"topics {first!r} and {other!r} have different columns ({column_types.ddl(columns):.300}, and "
                f"{column_types.ddl(found):.300}); read each of them alone, and unite the frames by name"
            )
    return columns


def quoted(name: str) -> str:
    """Return a name so that no character of it has a meaning, such as the dot of a nested field."""
    return "`" + name.replace("`", "``") + "`"
