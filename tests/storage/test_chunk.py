"""Chunks: the rows that went in come out, and from damaged bytes none do."""

import datetime as dt
from unittest import mock

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_storage.columns import schema
from pyspark_log_storage.columns.column_ddl import parse
from pyspark_log_storage.errors import CorruptObject, NewerFormat
from pyspark_log_storage.files import chunk
from tests.support.storage import random_columns

UTC = dt.timezone.utc
EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)

HEADERS = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.none() | st.text(max_size=5), "value": st.none() | st.binary(max_size=5)}),
    max_size=3,
)
ROW = st.fixed_dictionaries(
    {
        "key": st.none() | st.binary(max_size=10),
        "value": st.none() | st.binary(max_size=50),
        "timestamp": st.datetimes(timezones=st.just(UTC)),
        "headers": HEADERS,
    }
)
ROWS = st.lists(ROW, min_size=1, max_size=20)
COMPRESSION = st.sampled_from(chunk.COMPRESSIONS)
EVERY_COMPRESSION = pytest.mark.parametrize("compression", chunk.COMPRESSIONS)

SMALL = [
    {"key": b"k", "value": b"v" * 40, "timestamp": EPOCH, "headers": [{"key": "h", "value": b"x"}]},
    {"key": None, "value": None, "timestamp": EPOCH + dt.timedelta(seconds=1), "headers": None},
]


def batch_of(rows, schema_id=schema.RECORD_WITH_HEADERS_ID):
    names = schema.RECORD_SCHEMAS[schema_id].names
    rows = [{name: row[name] for name in names} for row in rows]
    return pa.RecordBatch.from_pylist(rows, schema.RECORD_SCHEMAS[schema_id])


def encoded(rows=SMALL, compression="none", schema_id=schema.RECORD_WITH_HEADERS_ID):
    return chunk.encode(batch_of(rows, schema_id), schema_id, compression)[1]


def decoded(data, schemas=schema.RECORD_SCHEMAS):
    data = pa.py_buffer(data)
    return chunk.decode(data, chunk.verify(data, "the chunk"), schemas, "the chunk")


@given(rows=ROWS, compression=COMPRESSION, schema_id=st.sampled_from([0, 1]))
def test_rows_come_back_and_the_header_knows_them(rows, compression, schema_id):
    batch = batch_of(rows, schema_id)
    header, data = chunk.encode(batch, schema_id, compression)
    assert decoded(data).equals(batch)
    assert chunk.verify(pa.py_buffer(data), "x") == header
    micros = [(row["timestamp"] - EPOCH) // dt.timedelta(microseconds=1) for row in rows]
    assert (header.rows, header.min_timestamp, header.max_timestamp) == (len(rows), min(micros), max(micros))
    assert len(data) == header.length


def test_the_layout_is_as_drawn():
    data = encoded(SMALL[:1], schema_id=0)
    assert data[:8] == b"PLCK" + b"\1\0" + b"\0\0"
    assert int.from_bytes(data[8:12], "little") == len(data)
    assert (data[12:20], data[20:36]) == (b"\1\0\0\0" + bytes(4), bytes(16))
    assert data[60:64] == google_crc32c.value(data[:60] + data[64:]).to_bytes(4, "little")


@EVERY_COMPRESSION
def test_a_slice_of_a_batch_stores_its_own_rows_only(compression):
    rows = [{"key": b"%d" % i, "value": bytes(1000), "timestamp": EPOCH} for i in range(100)]
    header, data = chunk.encode(batch_of(rows, 0).slice(40, 2), 0, compression)
    assert decoded(data).to_pylist() == rows[40:42]
    assert header.length < 10_000


@EVERY_COMPRESSION
def test_many_rows_are_stored_as_few_are(compression):
    rows = [{"key": b"%d" % i, "value": bytes(50), "timestamp": EPOCH, "headers": []} for i in range(1000)]
    header, pieces = chunk.encode_in_pieces(batch_of(rows), 1, compression)
    assert len(pieces) > 10, "Arrow's buffers are not copied"
    data = b"".join(pieces)
    assert (header.length, header.rows) == (len(data), 1000)
    assert decoded(data).to_pylist() == rows
    with mock.patch.object(chunk, "_FEW_ROWS", 1000):
        assert chunk.encode(batch_of(rows), 1, compression) == (header, data)


def test_metadata_of_a_schema_is_not_stored():
    nested = pa.list_(schema.HEADERS.value_field.with_metadata({"spark": "x" * 5000}))
    other = pa.schema([*schema.RECORD, pa.field("headers", nested)], metadata={"pandas": "y" * 5000})
    plain, described = batch_of(SMALL), pa.RecordBatch.from_pylist(SMALL, other)
    stored = [chunk.encode(batch, 1, "none")[1] for batch in (plain, described, plain)]
    assert stored[0] == stored[1] == stored[2]


@EVERY_COMPRESSION
def test_every_flipped_byte_every_cut_and_every_addition_is_noticed(compression):
    whole = encoded(compression=compression)
    for byte in range(len(whole)):
        data = bytearray(whole)
        data[byte] ^= 1 << byte % 8
        for damaged in (bytes(data), whole[:byte], whole + whole[: byte + 1]):
            with pytest.raises(CorruptObject, match="the chunk"):
                decoded(damaged)


def test_a_schema_that_the_topic_does_not_have_is_named():
    with pytest.raises(CorruptObject, match="schema 1, and the topic has 1"):
        decoded(encoded(), schema.RECORD_SCHEMAS[:1])


def test_a_newer_version_is_distinguished_from_damage():
    with mock.patch.object(chunk, "_VERSION", 2):
        newer = encoded()
    with pytest.raises(NewerFormat, match=r"the chunk.*upgrade"):
        decoded(newer)


def with_ends(ends, data):
    """Return a column of bytes with any offsets."""
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(np.array(ends, np.int32)), data])


TYPED = schema.typed(parse("id bigint not null, text string"))
TEXT = with_ends([0, 1, 2], pa.py_buffer(b"\xff\xff")).view(pa.string())
WRONG = {
    "a value outside of the chunk": (schema.RECORD, {"value": with_ends([0, 2**31 - 1, 2], pa.py_buffer(b"vv"))}),
    "a text that is none": (TYPED, {"text": TEXT}),
    "a null in a column without nulls": (TYPED, {"id": pa.nulls(2, pa.int64())}),
}


@EVERY_COMPRESSION
@pytest.mark.parametrize("name", WRONG)
def test_values_that_no_writer_writes_are_not_read(name, compression):
    kind, wrong = WRONG[name]
    columns = {"id": pa.array([1, 2]), "timestamp": pa.array([EPOCH] * 2, schema.TIMESTAMP)} | wrong
    arrays = [columns.get(each.name, pa.nulls(2, each.type)) for each in kind]
    _, data = chunk.encode(pa.RecordBatch.from_arrays(arrays, schema=kind), 0, compression)
    with pytest.raises(CorruptObject, match="the chunk"):
        decoded(data, (kind,))


@EVERY_COMPRESSION
@pytest.mark.parametrize("kind", ["array<string>", "map<string, array<int>>", "struct<x: array<string>>"])
def test_empty_lists_of_lists_without_offsets_are_read_with_one(kind, compression):
    """Arrow itself reads that offset, for example when it is asked for the size of the rows."""
    typed = schema.typed(parse(f"a array<{kind}>"))
    lists = random_columns.lists_without_offsets(typed.field("a").type.value_type, 3)
    batch = pa.RecordBatch.from_arrays([lists, pa.array([EPOCH] * 3, schema.TIMESTAMP)], schema=typed)
    found = decoded(chunk.encode(batch, 0, compression)[1], (typed,))
    assert random_columns.has_offsets(found.column("a"))
    assert found.to_pylist() == batch.to_pylist()
