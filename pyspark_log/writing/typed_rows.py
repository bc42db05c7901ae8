"""Rows of a frame as rows of a typed topic: the plan of a write on the driver, and whole columns at a time in tasks.

Columns and fields of structs are matched by name, ignoring case, as in Spark and Delta. The frame's `partition` and
`timestamp` are those of Spark's Kafka sink, and its `topic` has no effect beside the option. Columns that cannot be
written are refused by the plan, before a row is read; tasks check what depends on a row's values.

A row does not fit if it has a null where the topic has none, also inside a column, a whole number that is too large for
a narrower column, or text that is not UTF-8, which Spark accepts and readers refuse. Rows are judged, not the frame:
all may be null that Spark's `from_json` returns. The bytes of a key are those of Kafka's serializers:
text in UTF-8, binary as it is, whole numbers in big-endian order, 8 for a bigint, 4 for an int. If a key is several
columns, they are these bytes of each, after their number (4 bytes, big-endian): no two keys have the same. A row in
which one of the columns is null has no key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.writing.rows import COLUMN_TYPES, Rows, TypedSchema, timestamps_of, why_not_utf8
from pyspark_log_storage.columns import column_types, schema, schema_evolution
from pyspark_log_storage.columns.column_conversion import converted
from pyspark_log_storage.columns.column_types import children
from pyspark_log_storage.columns.compaction_columns import key_columns_of
from pyspark_log_storage.errors import InvalidRecord
from pyspark_log_storage.files.batch_check import with_first_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

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
    columns = pa.schema([(each.name, _stored_type(each.type)) for each in batch if each.name not in OWN_COLUMNS])
    try:
        column_types.check(columns)
    except InvalidRecord as error:
        raise InvalidRecord(f"topic {topic!r}: {error}") from error
    return columns


def _stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the stored type that holds the values of an Arrow type; the type itself if there is none."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _stored_type(each.type), each.nullable) for each in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _stored_type(kind.value_type), kind.value_field.nullable))
    if pa.types.is_map(kind):
        value = pa.field("value", _stored_type(kind.item_type), kind.item_field.nullable)
        return pa.map_(pa.field("key", _stored_type(kind.key_type), nullable=False), value)
    return kind


def _sources(newest: pa.Schema, frame: pa.Schema) -> tuple[str | None, ...]:
    given = {field.name.lower(): field for field in frame}
    sources = [given.pop(field.name.lower(), None) for field in newest]
    for source, field in zip(sources, newest, strict=True):
        if source is not None and not _is_narrower_integer(source.type, field.type):
            _check_type(source.type, field.type, field.name)
    _check_lacking(frame, newest)
    if given:
        lacks = ("is no column", "it") if len(given) == 1 else ("are no columns", "them")
        quoted = ", ".join(f"'{each.name}'" for each in given.values())
        raise InvalidRecord(
            f"there {lacks[0]} {quoted} (the columns are {column_types.ddl(newest):.500}); drop {lacks[1]}, or add "
            f"{lacks[1]} to the topic by a write of Spark with mergeSchema=true"
        )
    return tuple(None if each is None else each.name for each in sources)


def _is_narrower_integer(source: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values are integers that may be too large for the topic's column, which each row tells."""
    are_integers = pa.types.is_integer(source) and pa.types.is_integer(wanted)
    return bool(are_integers and source.bit_width > wanted.bit_width)


def _check_type(source: pa.DataType, wanted: pa.DataType, where: str) -> None:
    """Raise `InvalidRecord` unless the topic's column holds every value of the type as it is."""
    cure = ", or make the topic's column wider by a write of Spark with mergeSchema=true"
    try:
        if schema_evolution.merge(pa.schema([(where, wanted)]), pa.schema([(where, source)])).types == [wanted]:
            return
    except InvalidRecord:
        cure = ""
    raise InvalidRecord(
        f"column '{where}' is {column_types.type_name(wanted)} in the topic and {column_types.type_name(source)} in "
        f"the frame; cast it before the write{cure}"
    )


def _check_lacking(given: Iterable[pa.Field], wanted: Iterable[pa.Field], where: str = "") -> None:
    """Raise `InvalidRecord` if fields are lacking that must not be null, also inside of others."""
    known = {field.name.lower(): field for field in given}
    for field in wanted:
        one = known.get(field.name.lower())
        if one is not None:
            _check_lacking(children(one.type), children(field.type), f"{where}{field.name}.")
        elif not field.nullable:
            raise InvalidRecord(
                f"column '{where}{field.name}' is not null, and the frame lacks it; add it to the frame"
            )


def typed_rows(batch: pa.RecordBatch, plan: TypedPlan, topic: str, *, now_us: int) -> Rows:
    """Return the rows of a batch of the planned frame. `now_us` is the timestamp of rows without one, in microseconds.

    Raises `InvalidRecord` for a row that does not fit.
    """
    wanted = schema.decode(plan.schema.stored, f"topic {topic!r}")
    if batch.num_rows == 0:
        none = pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in wanted], schema=wanted)
        return Rows(none, None, None, plan.schema)
    batch = with_first_offsets(batch)  # before Arrow converts any column
    given = {name: batch.column(place) for place, name in enumerate(batch.schema.names)}
    columns = []
    for source, field in zip(plan.sources, wanted, strict=False):  # `timestamp` has no source
        try:
            columns.append(pa.nulls(batch.num_rows, field.type) if source is None else _stored(given[source], field))
        except InvalidRecord as error:
            raise InvalidRecord(f"topic {topic!r}: column '{field.name}' {error}") from error
    times = timestamps_of(given.get("timestamp"), batch.num_rows, now_us)
    keys = _key_bytes([columns[wanted.get_field_index(each)] for each in plan.keys]) if plan.keys else None
    record = pa.RecordBatch.from_arrays([*columns, times], schema=wanted)
    return Rows(record, None, given.get("partition"), plan.schema, keys)


def as_json(batch: pa.RecordBatch, plan: TypedPlan) -> tuple[pa.Array, pa.Array]:
    """Return the keys and the JSON of rows of the planned frame. A row whose key does not fit has none."""
    from pyspark_log.writing import typed_json

    wanted = schema.decode(plan.schema.stored, "the topic")
    of_keys = [(plan.sources[wanted.get_field_index(each)], wanted.field(each)) for each in plan.keys]
    keys: list[bytes | None] = []
    for row in range(batch.num_rows):
        try:
            columns = [_stored(batch.column(name).slice(row, 1), field) for name, field in of_keys if name is not None]
        except InvalidRecord:
            columns = []
        keys.append(_key_bytes(columns)[0].as_py() if columns and len(columns) == len(of_keys) else None)
    own = typed_json.objects(batch.select([name for name in plan.sources if name is not None]))
    return pa.array(keys, pa.binary()), pa.array([typed_json.ENCODER.encode(row) for row in own], pa.binary())


def _stored(column: pa.Array, field: pa.Field) -> pa.Array:
    """Return a frame's column as that of a topic. Raises `InvalidRecord`, with a text that the column's name begins."""
    try:
        stored = converted(column, field.type)
    except pa.ArrowInvalid as error:
        if pa.types.is_nested(field.type):
            what = (
                f"has a value inside that the topic's column cannot hold ({error}); round or cast it before the write"
            )
        elif pa.types.is_timestamp(field.type):
            what = "has a time that microseconds cannot hold; round it before the write"
        else:
            what = (
                "has a number that is too large for the topic's column; write smaller numbers, or make it wider by a "
                "write of Spark with mergeSchema=true"
            )
        raise InvalidRecord(what) from error
    if not field.nullable and column.null_count > 0:
        raise InvalidRecord("is null, and the topic's column is not null; fill or filter it before the write")
    if _has_required(field.type) and _lacks_required(stored, field.type).any():
        kind = column_types.type_name(field.type)
        raise InvalidRecord(
            f"has a null inside where the topic's column has none ({kind:.500}); fill or filter it before the write"
        )
    if why_not_utf8(stored) is not None:
        raise InvalidRecord("has text that is not UTF-8; encode it, or write it as binary")
    return stored


def _has_required(kind: pa.DataType) -> bool:
    """Return whether something inside a type must not be null, such as the keys of a map."""
    return any(not field.nullable or _has_required(field.type) for field in children(kind))


def _lacks_required(column: pa.Array, kind: pa.DataType) -> NDArray[np.bool_]:
    """Return for each row whether it has a null inside where its type has none."""
    found = np.zeros(len(column), bool)
    if pa.types.is_struct(kind):
        for place, field in enumerate(kind):
            found |= _is_null_or_lacks(column.field(place), field)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        offsets = np.asarray(column.offsets)
        owners = np.repeat(np.arange(len(column)), np.diff(offsets))
        values = [column.keys, column.items] if pa.types.is_map(kind) else [column.values]
        for each, field in zip(values, children(kind), strict=True):
            inside = each.slice(offsets[0], offsets[-1] - offsets[0])
            found[owners[_is_null_or_lacks(inside, field)]] = True
    found &= np.asarray(column.is_valid())  # a null row may have values below
    return found


def _is_null_or_lacks(column: pa.Array, field: pa.Field) -> NDArray[np.bool_]:
    lacks = _lacks_required(column, field.type)
    return lacks if field.nullable else lacks | np.asarray(column.is_null())


def _key_bytes(columns: Sequence[pa.Array]) -> pa.Array:
    """Return the bytes of the keys in one or several columns, null for a row without a key."""
    values = [_value_bytes(each) for each in columns]
    if len(values) == 1:
        return values[0]
    pieces = [piece for each in values for piece in (_value_bytes(pc.binary_length(each)), each)]
    return pc.binary_join_element_wise(*pieces, b"")


def _value_bytes(column: pa.Array) -> pa.Array:
    """Return the bytes that Kafka's serializers make of a column's values."""
    if not pa.types.is_integer(column.type):
        return column if pa.types.is_binary(column.type) else column.view(pa.binary())
    width = column.type.bit_width // 8
    numbers: NDArray[np.int64] = np.asarray(column.fill_null(0))
    data = numbers.astype(f">i{width}")
    offsets = np.arange(0, width * (len(column) + 1), width, dtype=np.int32)
    keys = pa.Array.from_buffers(pa.binary(), len(column), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return keys if column.null_count == 0 else pc.if_else(column.is_valid(), keys, pa.scalar(None, pa.binary()))
