"""Columns of a typed topic, their evolutions and their rows, at random."""

import datetime as dt
import decimal
import string
from random import Random

import pyarrow as pa

from pyspark_log_storage.columns import schema_evolution

ATOMIC = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.bool_(),
    pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.decimal128(5, 2),
]  # fmt: skip
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def columns(random: Random, count: int = 4) -> pa.Schema:
    """Return some columns."""
    return pa.schema([pa.field(f"c{place}", kind(random), random.random() < 0.8) for place in range(count)])


def kind(random: Random, depth: int = 0) -> pa.DataType:
    """Return a type that a topic can store."""
    choice = random.random() if depth < 3 else 1.0
    if choice < 0.15:
        fields = [pa.field(name, kind(random, depth + 1)) for name in "ab"[: random.randint(1, 2)]]
        return pa.struct(fields)
    if choice < 0.25:
        return pa.list_(pa.field("element", kind(random, depth + 1), random.random() < 0.7))
    if choice < 0.3:
        return pa.map_(pa.string(), pa.field("value", kind(random, depth + 1), random.random() < 0.7))
    return random.choice(ATOMIC)


def evolved(random: Random, old: pa.Schema) -> pa.Schema:
    """Return what the columns become by a few allowed steps."""
    fields = [pa.field(each.name, _wider(random, each.type), each.nullable or random.random() < 0.3) for each in old]
    fields += [pa.field(f"c{len(old) + new}", kind(random)) for new in range(random.randint(0, 2))]
    return pa.schema(fields)


def _wider(random: Random, old: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(old):
        fields = [pa.field(each.name, _wider(random, each.type), each.nullable) for each in old]
        if random.random() < 0.3:
            fields.append(pa.field(f"f{len(fields)}", kind(random, 2)))
        return pa.struct(fields)
    if pa.types.is_list(old):
        element = old.value_field
        return pa.list_(pa.field("element", _wider(random, element.type), element.nullable or random.random() < 0.3))
    if pa.types.is_map(old):
        return pa.map_(old.key_field, pa.field("value", _wider(random, old.item_type), old.item_field.nullable))
    if pa.types.is_decimal(old) and random.random() < 0.3:
        scale = old.scale + random.randint(0, 2)
        return pa.decimal128(min(38, old.precision - old.scale + scale + random.randint(0, 2)), scale)
    wider = [each for each in ATOMIC if schema_evolution.has_wider(old, each) and not pa.types.is_decimal(each)]
    return random.choice(wider) if wider and random.random() < 0.3 else old


def rows(random: Random, schema: pa.Schema, count: int) -> pa.RecordBatch:
    """Return rows, of which the first are cut off, so that no column begins at its buffers' begin."""
    made = [{field.name: _value_of(random, field) for field in schema} for _ in range(count + 2)]
    arrays = [pa.array([row[field.name] for row in made], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema).slice(2)


def _value_of(random: Random, field: pa.Field):
    return None if field.nullable and random.random() < 0.2 else value(random, field.type)


def value(random: Random, of: pa.DataType):
    """Return a value of a type."""
    if pa.types.is_struct(of):
        return {field.name: _value_of(random, field) for field in of}
    if pa.types.is_list(of):
        return [_value_of(random, of.value_field) for _ in range(random.randint(0, 3))]
    if pa.types.is_map(of):
        return [(key, _value_of(random, of.item_field)) for key in "ab"[: random.randint(0, 2)]]
    if pa.types.is_integer(of):
        return random.randrange(-(2 ** (of.bit_width - 1)), 2 ** (of.bit_width - 1))
    if pa.types.is_decimal(of):
        return decimal.Decimal(random.randrange(10**of.precision)).scaleb(-of.scale)
    if pa.types.is_floating(of):
        return random.randrange(-1000, 1000) / 8
    if pa.types.is_boolean(of):
        return random.random() < 0.5
    if pa.types.is_date(of):
        return dt.date(1970, 1, 1) + dt.timedelta(days=random.randrange(20_000))
    if pa.types.is_timestamp(of):
        time = EPOCH + dt.timedelta(microseconds=random.randrange(10**15))
        return time if of.tz else time.replace(tzinfo=None)
    text = "".join(random.choices(string.ascii_letters, k=random.randint(0, 5)))
    return text.encode() if pa.types.is_binary(of) else text


def read_as(row, schema):
    """Return a row as one of a newer schema: what it lacks is null. Wider numbers are equal."""
    return {field.name: _read_as(row.get(field.name), field.type) for field in schema}


def _read_as(found, of: pa.DataType):
    if found is None:
        return None
    if pa.types.is_struct(of):
        return read_as(found, of)
    if pa.types.is_list(of):
        return [_read_as(each, of.value_type) for each in found]
    if pa.types.is_map(of):
        return [(key, _read_as(each, of.item_type)) for key, each in found]
    return found


def lists_without_offsets(kind, rows):
    """Return empty lists of lists of `kind`, or of structs with these, where the inner lists have no offsets.

    Arrow's format allows that, and some programs write it. What follows in memory are no offsets.
    """
    is_struct = pa.types.is_struct(kind)
    inner = kind.field(0).type if is_struct else kind
    none = pa.py_buffer(b"\x7f" * 64).slice(0, 0)
    if pa.types.is_map(inner):
        values = pa.StructArray.from_arrays(
            [pa.array([], inner.key_type), pa.array([], inner.item_type)], fields=[inner.key_field, inner.item_field]
        )
    else:
        values = pa.array([], inner.value_type)
    lists = pa.Array.from_buffers(inner, 0, [None, none], children=[values])
    elements = pa.StructArray.from_arrays([lists], fields=list(kind)) if is_struct else lists
    offsets = pa.py_buffer(bytes(4 * (rows + 1)))
    return pa.Array.from_buffers(pa.list_(pa.field("element", kind)), rows, [None, offsets], children=[elements])


def has_offsets(column):
    """Return whether the inner lists of such a column have an offset."""
    values = column.values.field(0) if pa.types.is_struct(column.type.value_type) else column.values
    return values.buffers()[1].size > 0
