"""The rows of a typed topic as the source returns them: its columns, after those that every row has.

    topic string, partition int, offset bigint, timestamp timestamp, then the topic's columns

They come last because an evolution adds columns at the end. A user's `.schema()` selects some, in any order; only these
are decoded. A query keeps the schema with which it began. Rows of newer schemas are read as rows of it, and rows of
older ones too: what they lack is null, and their numbers become wider.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from pyspark_log.source import row
from pyspark_log_storage.columns import column_types, schema_evolution
from pyspark_log_storage.columns.column_conversion import column_of
from pyspark_log_storage.errors import InvalidInput, InvalidRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log.reading.fetch import Split

OWN = column_types.RESERVED


def typed_schema(columns: pa.Schema) -> StructType:
    """Return the schema in which Spark reads a topic with these columns."""
    own = [StructField(name, row.COLUMNS[name][0]) for name in OWN]
    return StructType([*own, *StructType.fromJson(column_types.to_json(columns)).fields])


@functools.lru_cache(maxsize=8)
def wanted_fields(schema: str) -> pa.Schema:
    """Return the Arrow schema that Spark expects for a schema in its JSON form. Raises `InvalidRecord`."""
    struct = StructType.fromJson(column_types.parsed(schema))
    user = [field.jsonValue() for field in struct if field.name not in OWN]
    found = column_types.from_json({"type": "struct", "fields": user}) if user else pa.schema([])
    own = {name: pa.field(name, row.COLUMNS[name][1]) for name in OWN}
    return pa.schema([own[name] if name in own else found.field(name) for name in struct.fieldNames()])


def check(schema: StructType, columns: pa.Schema, topic: str) -> None:
    """Raise `InvalidInput` if a topic with these columns cannot be read with a schema."""
    where = f"topic {topic!r}"
    for field in schema:
        if field.name in OWN:
            expected = row.COLUMNS[field.name][0]
            if field.dataType != expected or not field.nullable:
                raise InvalidInput(
                    f"{where}: column '{field.name}' is {expected.simpleString()} and nullable, not "
                    f"{field.dataType.simpleString()}{'' if field.nullable else ' not null'}; remove .schema(), or "
                    "declare it so"
                )
    try:
        wanted = wanted_fields(schema.json())
    except InvalidRecord as error:
        raise InvalidInput(f"{where}: {error}; correct .schema()") from error
    for field in wanted:
        if field.name not in OWN:
            _check_field(field, columns, where)


def _check_field(wanted: pa.Field, columns: pa.Schema, where: str) -> None:
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
            f"{column_types.type_name(wanted.type)}; if it has become wider since load(), load again, else remove "
            ".schema(), and cast after the read"
        )


def decoded_columns(wanted: pa.Schema, split: Split, newest: pa.Schema) -> tuple[str, ...]:
    """Return the columns of chunks that a read with this schema needs, always one at least.

    Raises `InvalidInput` if the topic has no such column.
    """
    names = [field.name for field in wanted if field.name not in {"topic", "partition", "offset"}]
    for name in names:
        if name not in newest.names:
            known = ", ".join((*OWN, *newest.names[:-1]))
            raise InvalidInput(f"topic {split.topic!r}: unknown column {name!r}; the columns are {known}")
    return tuple(sorted({*names, "timestamp"}))


def rows(record: pa.RecordBatch, wanted: pa.Schema, split: Split, offset: int) -> pa.RecordBatch:
    """Return stored rows of any of the topic's schemas as Spark expects them; `offset` is the first row's.

    Raises `InvalidInput` if the topic has evolved, and the query's schema cannot hold these rows.
    """
    try:
        arrays = [_column(record, field, split, offset) for field in wanted]
    except ValueError as error:
        raise InvalidInput(
            f"topic {split.topic!r}, partition {split.partition}, from offset {offset}: {error}. The topic's columns "
            "have changed since load(); load again, with a .schema() that fits or without one, and start it again"
        ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _column(record: pa.RecordBatch, field: pa.Field, split: Split, offset: int) -> pa.Array:
    count = record.num_rows
    if field.name == "offset":
        return row.offsets(offset, count)
    if field.name in {"topic", "partition"}:
        return row.constant(split.topic if field.name == "topic" else split.partition, count)
    return column_of(record, field)


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
