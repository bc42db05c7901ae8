"""The rows of the source: the columns of Spark's Kafka source, see `arrow_rows`.

A user's `.schema()` selects columns, in any order.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_log_storage.errors import InvalidInput

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADERS,
}
"""Each column's type in Spark."""


def row_schema(*, include_headers: bool) -> StructType:
    """Return the schema. Every column is nullable, as in Spark's Kafka source."""
    names = [name for name in COLUMNS if include_headers or name != "headers"]
    return StructType([StructField(name, COLUMNS[name]) for name in names])


def chosen_columns(schema: StructType) -> tuple[str, ...]:
    """Return the selected columns. Raises `InvalidInput` for an unknown column or another type."""
    for field in schema:
        if field.name not in COLUMNS:
            raise InvalidInput(f"unknown column {field.name!r}; the columns are {', '.join(COLUMNS)}")
        expected = COLUMNS[field.name]
        if field.dataType != expected:
            raise InvalidInput(
                f"column '{field.name}' has type {expected.simpleString()}, not {field.dataType.simpleString()}; "
                "remove .schema(), and cast after the read"
            )
        if not field.nullable:
            raise InvalidInput(f"column '{field.name}' is nullable; declare it as nullable, or remove .schema()")
    return tuple(schema.fieldNames())


def quoted(name: str) -> str:
    """Return a name so that no character of it has a meaning, such as the dot of a nested field."""
    return "`" + name.replace("`", "``") + "`"
