"""The types of a typed topic's columns: Spark's types as JSON (`df.schema.json()`), and the Arrow types of stored ones.

    byte, short, integer, long      int8, int16, int32, int64
    float, double, decimal(p,s)     float, double, decimal128(p, s)
    string, binary, boolean         string, binary, bool
    date                            date32
    timestamp                       timestamp[us, UTC]
    timestamp_ntz                   timestamp[us]
    array, map, struct              list (of `element`), map (`key`, `value`), struct

These are the Arrow types in which Spark hands over its columns (pyspark.sql.pandas.types.to_arrow_type), so that no
column is converted on its way. Other types are refused: intervals, times, variants, geometries and void have no
counterpart in every reader, and a collation or a length (also that of a table's CHAR or VARCHAR, which Spark tells
beside the type string) would be lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pyspark_log_storage.errors import InvalidRecord

DEPTH_MAX = 32
"""How deep types may be nested. Arrow reads 64 levels; a list takes one, a map two."""
RESERVED = ("topic", "partition", "offset", "timestamp")
"""The names of a row's own columns when a typed topic is read."""
PRECISION_MAX = 38

_ATOMIC: dict[str, pa.DataType] = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
KEY_TYPES = tuple(_ATOMIC[name] for name in ("string", "binary", "byte", "short", "integer", "long"))
"""The types of a column whose values can be keys."""
_NAMES = {kind: name for name, kind in _ATOMIC.items()}
_SQL = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
"""Where a type's name in SQL is another one."""
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
_COLLATIONS = "__COLLATIONS"
_LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
"""In the metadata of a column of Spark: its type with CHAR or VARCHAR, for which the schema says string."""
_CURES = {
    "void": "cast it to the type that it should have",
    "interval": "cast it to bigint or string",
    "time": "cast it to string or bigint",
    "variant": "write it as a string with to_json",
    "char": "cast it to string",
    "varchar": "cast it to string",
    "calendarinterval": "cast it to string",
}
"""By the first word of a type's name."""
_OTHER_CURE = "cast it to a type that can be stored, such as string or binary"


def from_json(schema: Mapping[str, Any]) -> pa.Schema:
    """Return the columns of a Spark schema in its JSON form. Raises `InvalidRecord`, which names the column."""
    columns = pa.schema(list(_struct(schema, "")))
    check(columns)
    return columns


def to_json(columns: pa.Schema) -> dict[str, Any]:
    """Return columns as a Spark schema in its JSON form, for `StructType.fromJson`."""
    return {"type": "struct", "fields": [_field_json(field) for field in columns]}


def ddl(columns: pa.Schema) -> str:
    """Return columns as Spark's DDL: "id BIGINT NOT NULL, name STRING".

    >>> ddl(pa.schema([pa.field("id", pa.int64(), nullable=False), ("names", pa.list_(pa.string()))]))
    'id BIGINT NOT NULL, names ARRAY<STRING>'
    """
    return ", ".join(_field_ddl(field, " ") for field in columns)


def type_name(kind: pa.DataType) -> str:
    """Return a stored type's name in Spark's SQL: bigint, array<string>."""
    return _type_ddl(kind).lower()


def check(columns: pa.Schema) -> None:
    """Raise `InvalidRecord` if a topic cannot have these columns."""
    if len(columns) == 0:
        raise InvalidRecord("a typed topic needs at least one column; name one, such as 'id BIGINT'")
    for field in columns:
        if field.name.lower() in RESERVED:
            raise InvalidRecord(
                f"column '{field.name}' cannot be stored: rows of a typed topic have a column of this name of their "
                "own; rename or drop it"
            )
    _check_names(columns, "")
    for field in columns:
        _check_type(field.type, field.name, 1)


def _struct(given: object, where: str) -> pa.StructType:
    fields = given.get("fields") if isinstance(given, Mapping) and given.get("type") == "struct" else None
    if not isinstance(fields, Sequence):
        raise InvalidRecord(
            f"{_of(where)}expected a struct of Spark as JSON, such as df.schema.json() returns, not {given!r:.100}"
        )
    return pa.struct([_field(each, where) for each in fields])


def _of(where: str) -> str:
    return f"column '{where}': " if where else ""


def _field(given: object, where: str) -> pa.Field:
    name = given.get("name") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(name, str) or "type" not in given:
        raise InvalidRecord(f"{_of(where)}expected a field with name and type, not {given!r:.100}")
    path = f"{where}.{name}" if where else name
    metadata = given.get("metadata") or {}
    if isinstance(metadata, Mapping) and _COLLATIONS in metadata:
        raise InvalidRecord(f"column '{path}' has a collation, which is not stored; cast it to string before the write")
    if isinstance(metadata, Mapping) and _LENGTH in metadata:
        raise InvalidRecord(
            f"column '{path}' is {metadata[_LENGTH]!s:.100}, whose length a topic does not keep; cast it to "
            f"{'string' if given['type'] == 'string' else 'the same type with string'} before the write"
        )
    return pa.field(name, _type(given["type"], path), given.get("nullable", True) is not False)


def _type(given: object, where: str) -> pa.DataType:
    if isinstance(given, str):
        return _atomic(given, where)
    kind = given.get("type") if isinstance(given, Mapping) else None
    if isinstance(given, Mapping):
        if kind == "struct":
            return _struct(given, where)
        if kind == "array" and "elementType" in given:
            element = _type(given["elementType"], f"{where}.element")
            return pa.list_(pa.field("element", element, given.get("containsNull", True) is not False))
        if kind == "map" and {"keyType", "valueType"} <= given.keys():
            key = _type(given["keyType"], f"{where}.key")
            value = _type(given["valueType"], f"{where}.value")
            nullable = given.get("valueContainsNull", True) is not False
            return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value, nullable))
        if kind == "udt":
            raise refused(where, "udt (a user-defined type)")
    raise refused(where, f"{kind or given!r:.100}")


def _atomic(name: str, where: str) -> pa.DataType:
    found = _ATOMIC.get(name)
    if found is not None:
        return found
    if decimal := _DECIMAL.fullmatch(name):
        precision, scale = int(decimal[1]), int(decimal[2])
        if not 1 <= precision <= PRECISION_MAX or not 0 <= scale <= precision:
            raise InvalidRecord(
                f"column '{where}' has type {name}; a decimal has 1 to {PRECISION_MAX} digits, of which 0 to all are "
                "behind the point"
            )
        return pa.decimal128(precision, scale)
    raise refused(where, name)


def refused(where: str, kind: str) -> InvalidRecord:
    """Return the error for a type, by Spark's name, that is not stored."""
    first = re.match(r"\w*", kind)
    cure = _CURES.get(first[0].lower() if first else "", _OTHER_CURE)
    return InvalidRecord(f"column '{where}' has type {kind}, which a topic cannot store; {cure} before the write")


def _check_names(fields: pa.Schema | pa.StructType, where: str) -> None:
    """Raise `InvalidRecord` for a name that is empty, or that Spark cannot tell from another one."""
    seen: dict[str, str] = {}
    for field in fields:
        path = f"{where}.{field.name}" if where else field.name
        if not field.name or not field.name.isprintable():
            raise InvalidRecord(
                f"a column has the name {path!r}; give it one that is not empty and without control characters"
            )
        if field.name.lower() in seen:
            other = seen[field.name.lower()]
            raise InvalidRecord(f"columns '{other}' and '{path}' differ at most in case; rename one of them")
        seen[field.name.lower()] = path


def _check_type(kind: pa.DataType, where: str, depth: int) -> None:
    """Raise `InvalidRecord` unless an Arrow type is one that is stored."""
    if depth > DEPTH_MAX:
        raise InvalidRecord(f"column '{where:.200}' is nested more than {DEPTH_MAX} levels deep; flatten it")
    if pa.types.is_decimal128(kind):
        _atomic(f"decimal({kind.precision},{kind.scale})", where)
        return
    if kind in _NAMES:
        return
    if pa.types.is_struct(kind):
        if kind.num_fields == 0:
            raise InvalidRecord(f"column '{where}' is a struct without fields, which Parquet cannot store; drop it")
        _check_names(kind, where)
    elif pa.types.is_list(kind):
        if kind.value_field.name != "element":
            raise refused(where, str(kind))
    elif not pa.types.is_map(kind) or (kind.key_field.name, kind.item_field.name) != ("key", "value"):
        raise refused(where, str(kind))
    for child in children(kind):
        _check_type(child.type, f"{where}.{child.name}", depth + 1)


def children(kind: pa.DataType) -> Iterator[pa.Field]:
    """Yield the fields of a struct, the element of a list, key and value of a map; nothing for other types."""
    if pa.types.is_struct(kind):
        yield from kind
    elif pa.types.is_list(kind):
        yield kind.value_field
    elif pa.types.is_map(kind):
        yield kind.key_field
        yield kind.item_field


def _field_json(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": _type_json(field.type), "nullable": field.nullable, "metadata": {}}


def _type_json(kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_field_json(field) for field in kind]}
    if pa.types.is_list(kind):
        element = kind.value_field
        return {"type": "array", "elementType": _type_json(element.type), "containsNull": element.nullable}
    if pa.types.is_map(kind):
        key, value = _type_json(kind.key_type), _type_json(kind.item_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": kind.item_field.nullable}
    return _NAMES[kind]


def _field_ddl(field: pa.Field, between: str) -> str:
    name = field.name
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        name = "`" + name.replace("`", "``") + "`"
    return f"{name}{between}{_type_ddl(field.type)}{'' if field.nullable else ' NOT NULL'}"


def _type_ddl(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(_field_ddl(field, ': ') for field in kind)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{_type_ddl(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{_type_ddl(kind.key_type)}, {_type_ddl(kind.item_type)}>"
    name = str(_type_json(kind)) if pa.types.is_decimal(kind) or kind in _NAMES else str(kind)
    return _SQL.get(name, name).upper()
