"""Chunks: the rows that went in come out, and from damaged bytes none do."""

import datetime as dt
from unittest import mock

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import CorruptObject, NewerFormat
from pyspark_log_storage.files import chunk

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


def resealed(data, position, value):
    """Change a chunk as its writer could have written it: with the right checksum."""
    fields = bytearray(data[:60])
    fields[position : position + len(value)] = value
    crc = chunk._checksum(bytes(fields), data[64:])
    return bytes(fields) + crc.to_bytes(4, "little") + data[64:]


@given(rows=ROWS, compression=COMPRESSION, schema_id=st.sampled_from([0, 1]))
def test_rows_come_back_and_the_header_knows_them(rows, compression, schema_id):
    batch = batch_of(rows, schema_id)
    header, data = chunk.encode(batch, schema_id, compression)
    assert decoded(data).equals(batch)
    assert chunk.verify(pa.py_buffer(data), "x") == header
    micros = [(row["timestamp"] - EPOCH) // dt.timedelta(microseconds=1) for row in rows]
    assert (header.rows, header.min_timestamp, header.max_timestamp) == (len(rows), min(micros), max(micros))
    assert (len(data), len(data) % chunk.ALIGNMENT) == (header.length, 0), "the next chunk begins aligned"


def test_the_layout_is_as_drawn():
    data = encoded(SMALL[:1], schema_id=0)
    assert data[:8] == b"PLCK" + b"\1\0" + b"\0\0"
    assert int.from_bytes(data[8:12], "little") == len(data)
    assert (data[16:24], data[24:40]) == (b"\1\0\0\0" + bytes(4), bytes(16))
    assert data[60:64] == google_crc32c.value(data[:60] + data[64:]).to_bytes(4, "little")


@EVERY_COMPRESSION
def test_what_is_null_and_what_is_empty_stay_apart(compression):
    headers = [None, [], [{"key": None, "value": None}], [{"key": "", "value": b""}], [{"key": "é", "value": b"1"}] * 2]
    rows = [
        {"key": key, "value": value, "timestamp": EPOCH, "headers": each}
        for each in headers
        for key, value in ((None, b""), (b"", None), (None, None))
    ]
    assert decoded(encoded(rows, compression)).to_pylist() == rows


@EVERY_COMPRESSION
def test_a_slice_of_a_batch_stores_its_own_rows_only(compression):
    rows = [{"key": b"%d" % i, "value": bytes(1000), "timestamp": EPOCH} for i in range(100)]
    header, data = chunk.encode(batch_of(rows, 0).slice(40, 2), 0, compression)
    assert decoded(data).to_pylist() == rows[40:42]
    assert header.length < 10_000


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_compressed_chunk_is_smaller(compression):
    rows = [{"key": b"k", "value": bytes(10_000), "timestamp": EPOCH}]
    assert len(encoded(rows, compression, 0)) < len(encoded(rows, "none", 0)) / 4


def test_nothing_in_a_chunk_depends_on_its_position():
    data = encoded()
    copies = pa.py_buffer(b"x" * 37 + data + data + b"x")
    first, second = copies[37 : 37 + len(data)], copies[37 + len(data) : 37 + 2 * len(data)]
    for copy in (first, second):
        rows = chunk.decode(copy, chunk.verify(copy, "x"), schema.RECORD_SCHEMAS, "x")
        assert rows.to_pylist() == SMALL


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


def test_dictionaries_are_a_bug():
    column = pa.array([b"k"]).dictionary_encode()
    batch = pa.record_batch([column, pa.array([EPOCH], schema.TIMESTAMP)], names=["key", "timestamp"])
    with pytest.raises(AssertionError):
        chunk.encode(batch, 0, "none")


@EVERY_COMPRESSION
def test_every_flipped_byte_and_every_cut_is_noticed(compression):
    whole = encoded(compression=compression)
    for byte in range(len(whole)):
        data = bytearray(whole)
        data[byte] ^= 1 << byte % 8
        for damaged in (bytes(data), whole[:byte]):
            with pytest.raises(CorruptObject, match="the chunk"):
                decoded(damaged)


@pytest.mark.parametrize("more", [b"\0", b"x" * 64, encoded()], ids=["a byte", "as long as a line", "a chunk"])
def test_bytes_behind_the_end_are_noticed(more):
    with pytest.raises(CorruptObject, match="the chunk"):
        decoded(encoded() + more)


def test_a_length_that_is_not_that_of_the_chunk_is_noticed():
    data = encoded()
    with pytest.raises(CorruptObject, match="bytes long"):
        decoded(resealed(data, 8, (len(data) + chunk.ALIGNMENT).to_bytes(4, "little")))


def test_a_newer_version_is_distinguished_from_damage():
    with pytest.raises(NewerFormat, match=r"the chunk.*upgrade"):
        decoded(resealed(encoded(), 4, b"\x02\x00"))


def test_a_schema_that_the_topic_does_not_have_is_named():
    with pytest.raises(CorruptObject, match="schema 1, and the topic has 1"):
        decoded(encoded(), schema.RECORD_SCHEMAS[:1])


@pytest.mark.parametrize("claim", [1, 3])
def test_another_number_of_rows_than_the_header_says_is_noticed(claim):
    with pytest.raises(CorruptObject, match=f"holds 2 rows where its header says {claim}"):
        decoded(resealed(encoded(), 16, bytes([claim])))


@pytest.mark.parametrize(
    "other",
    [
        schema.RECORD_WITH_HEADERS,
        pa.schema([("key", pa.large_binary()), ("value", pa.large_binary()), ("timestamp", schema.TIMESTAMP)]),
    ],
    ids=["more columns", "longer offsets"],
)
def test_rows_of_another_layout_are_not_read_outside_their_buffers(other):
    with pytest.raises(CorruptObject, match="the chunk"):
        decoded(encoded(schema_id=0), [other])
