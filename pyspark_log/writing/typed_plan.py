"""The plan of a write to a typed topic: which columns of a frame become which of the topic.

Columns and fields of structs are matched by name, ignoring case, as in Spark and Delta. The frame's `partition` and
`timestamp` are those of Spark's Kafka sink, and its `topic` has no effect beside the option. Columns that cannot be
written are refused here, before a row is read; tasks check what depends on a row's values (`typed_rows`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from pyspark_log.writing.rows import COLUMN_TYPES, TypedSchema
from pyspark_log_storage.columns import column_types, schema, schema_evolution
from pyspark_log_storage.columns.compaction_columns import key_columns_of
from pyspark_log_storage.errors import InvalidRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_log_coordinator.log.log import TopicHandle

OWN_COLUMNS = ("topic", "partition", "timestamp")
"""A frame's columns that are not the user's, as in Spark's Kafka sink."""


class TypedPlan(msgspec.Struct, frozen=True):
    """What a task needs to turn batches of a frame into rows of a typed topic."""

    schema: TypedSchema
    sources: tuple[str | None, ...]
    """The frame's column for each of the topic's; None if the frame lacks it."""
    keys: tuple[str, ...]
    """The topic's columns whose values choose the partitions; none if it has no key.column."""


def frame_columns(frame: Mapping[str, Any], topic: str) -> pa.Schema:
    """Return the user's columns of a frame, of which `frame` is the schema in Spark's JSON form.

    Raises `InvalidRecord` for a type that cannot be stored, and for a `partition` or `timestamp` of another type than
    Spark's Kafka sink takes.
    """
    fields = []
    for field in frame["fields"]:
        name = field["name"]
        if name not in OWN_COLUMNS:
            fields.append(field)
        elif name != "topic":
            (wanted,) = COLUMN_TYPES[name]
            found = {"integer": "int"}.get(str(field["type"]), str(field["type"]))
            if found != wanted:
                raise InvalidRecord(
                    f"topic {topic!r}: column '{name}' has type {found}, expected {wanted}; cast it before the write, "
                    "or rename it if it is a column of your own"
                )
    try:
        return column_types.from_json({"type": "struct", "fields": fields})
    except InvalidRecord as error:
        raise InvalidRecord(f"topic {topic!r}: {error}") from error


def new_columns(frame: pa.Schema) -> pa.Schema:
    """Return the columns of a topic that is created for a frame: all may be null, as in tables that Spark creates."""
    return pa.schema([pa.field(each.name, schema_evolution.nullable(each.type)) for each in frame])


def evolved(handle: TopicHandle, frame: pa.Schema) -> bytes | None:
    """Return the schema that the topic, as far as known, needs to hold the frame's columns; None if it has it.

    Raises `InvalidRecord`.
    """
    newest = schema.columns_of(handle.schemas[-1])
    try:
        merged = schema_evolution.merge(newest, frame)
    except InvalidRecord as error:
        raise InvalidRecord(f"topic {handle.name!r}: {error}") from error
    return None if merged.equals(newest) else schema.encode(schema.typed(merged))


def plan(topic: str, stored: Sequence[bytes], frame: pa.Schema, key_column: str) -> TypedPlan:
    """Return how rows of a frame are written with the newest of a topic's stored schemas. Raises `InvalidRecord`.

    `key_column` is the topic's setting, empty if it has none.
    """
    newest = schema.columns_of(schema.decode(stored[-1], f"topic {topic!r}"))
    try:
        names = _sources(newest, frame)
    except InvalidRecord as error:
        raise InvalidRecord(f"topic {topic!r}: {error}") from error
    return TypedPlan(TypedSchema(len(stored) - 1, stored[-1]), names, key_columns_of(key_column))


def arrow_columns(batch: pa.Schema, topic: str) -> pa.Schema:
    """Return the user's columns of an Arrow batch in the types that are stored. Raises `InvalidRecord`."""
    columns = pa.schema([(each.name, _stored(each.type)) for each in batch if each.name not in OWN_COLUMNS])
    try:
        column_types.check(columns)
    except InvalidRecord as error:
        raise InvalidRecord(f"topic {topic!r}: {error}") from error
    return columns


def _stored(kind: pa.DataType) -> pa.DataType:
    """Return the stored type that holds the values of an Arrow type; the type itself if there is none."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _stored(each.type), each.nullable) for each in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _stored(kind.value_type), kind.value_field.nullable))
    if pa.types.is_map(kind):
        value = pa.field("value", _stored(kind.item_type), kind.item_field.nullable)
        return pa.map_(pa.field("key", _stored(kind.key_type), nullable=False), value)
    return kind


def _sources(newest: pa.Schema, frame: pa.Schema) -> tuple[str | None, ...]:
    given = {field.name.lower(): field for field in frame}
    sources = []
    for field in newest:
        source = given.pop(field.name.lower(), None)
        if source is None and not field.nullable:
            raise InvalidRecord(f"column '{field.name}' is not null, and the frame lacks it; add it to the frame")
        if source is not None and not _is_narrower_integer(source.type, field.type):
            _check_type(source.type, field.type, field.name)
        sources.append(None if source is None else source.name)
    if given:
        raise InvalidRecord(_unknown([each.name for each in given.values()], newest))
    return tuple(sources)


def _unknown(names: list[str], known: pa.Schema | pa.StructType) -> str:
    has = column_types.ddl(known) if isinstance(known, pa.Schema) else ", ".join(field.name for field in known)
    lacks = ("is no column", "it") if len(names) == 1 else ("are no columns", "them")
    quoted = ", ".join(f"'{name}'" for name in names)
    return (
        f"there {lacks[0]} {quoted} (the columns are {has:.500}); drop {lacks[1]}, or add {lacks[1]} to the topic by a "
        "write of Spark with mergeSchema=true"
    )


def _is_narrower_integer(source: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values are integers that may be too large for the topic's column, which each row tells."""
    are_integers = pa.types.is_integer(source) and pa.types.is_integer(wanted)
    return bool(are_integers and source.bit_width > wanted.bit_width)


def _check_type(source: pa.DataType, wanted: pa.DataType, where: str) -> None:
    """Raise `InvalidRecord` unless every value of the type can be stored as `wanted`."""
    if source == wanted or schema_evolution.has_wider(source, wanted):
        return
    if pa.types.is_struct(source) and pa.types.is_struct(wanted):
        _check_struct(source, wanted, where)
        return
    is_list = pa.types.is_list(source) and pa.types.is_list(wanted)
    if is_list or (pa.types.is_map(source) and pa.types.is_map(wanted)):
        fields = zip(column_types.children(source), column_types.children(wanted), strict=True)
        for one, other in fields:
            _check_type(one.type, other.type, f"{where}.{other.name}")
        return
    raise InvalidRecord(
        f"column '{where}' is {column_types.type_name(wanted)} in the topic and {column_types.type_name(source)} in "
        f"the frame; cast it before the write{_or_widen(source, wanted)}"
    )


def _or_widen(source: pa.DataType, wanted: pa.DataType) -> str:
    """Return the other cure if the topic's column can become one that holds both types; else nothing."""
    try:
        schema_evolution.merge(pa.schema([("c", wanted)]), pa.schema([("c", source)]))
    except InvalidRecord:
        return ""
    return ", or make the topic's column wider by a write of Spark with mergeSchema=true"


def _check_struct(source: pa.StructType, wanted: pa.StructType, where: str) -> None:
    given = {field.name.lower(): field for field in source}
    for field in wanted:
        path = f"{where}.{field.name}"
        one = given.pop(field.name.lower(), None)
        if one is None:
            if not field.nullable:
                raise InvalidRecord(f"column '{path}' is not null, and the frame lacks it; add it to the struct")
            continue
        _check_type(one.type, field.type, path)
    if given:
        raise InvalidRecord(_unknown([f"{where}.{each.name}" for each in given.values()], wanted))
