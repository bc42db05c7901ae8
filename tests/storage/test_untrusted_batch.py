"""Chunks with right checksums and wrong contents: no reader sees other bytes than the chunk's, or fills its memory."""

from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from pyspark_log_storage.columns import schema
from pyspark_log_storage.columns.column_ddl import parse
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.files import chunk, untrusted_batch
from pyspark_log_storage.files.untrusted_batch import WrongBatchError
from tests.support.storage import hostile_chunks as hostile
from tests.support.storage import random_columns
from tests.support.storage.hostile_chunks import chunk_of, message_of, ordered, with_headers, with_offsets

EVERY_COMPRESSION = pytest.mark.parametrize("compression", chunk.COMPRESSIONS)
FEW_AND_MANY = pytest.mark.parametrize("rows", [3, hostile.MANY])


def decoded(data):
    data = pa.py_buffer(data)
    return chunk.decode(data, chunk.verify(data, "the chunk"), schema.RECORD_SCHEMAS, "the chunk")


def stored(batch, compression="none", schema_id=0):
    return chunk_of(message_of(batch, compression), batch.num_rows, schema_id)


@FEW_AND_MANY
@EVERY_COMPRESSION
def test_offsets_in_order_are_read(rows, compression):
    batch = with_offsets(ordered(rows), b"v" * rows)
    assert decoded(stored(batch, compression)).equals(batch)


@FEW_AND_MANY
@EVERY_COMPRESSION
@pytest.mark.parametrize("kind", ["array<string>", "map<string, array<int>>", "struct<x: array<string>>"])
def test_empty_lists_of_lists_without_offsets_are_read_with_one(kind, rows, compression):
    """Arrow itself reads that offset, for example when it is asked for the size of the rows."""
    typed = schema.typed(parse(f"a array<{kind}>, b int"))
    lists = random_columns.lists_without_offsets(typed.field("a").type.value_type, rows)
    batch = pa.RecordBatch.from_arrays([lists, pa.array([1] * rows, pa.int32()), hostile.times(rows)], schema=typed)
    data = pa.py_buffer(stored(batch, compression))
    found = chunk.decode(data, chunk.verify(data, "the chunk"), (typed,), "the chunk")
    assert random_columns.has_offsets(found.column("a"))
    assert found.to_pylist() == batch.to_pylist()
    assert found.nbytes > 0


@pytest.mark.parametrize("name", ["timestamp", "id"])
def test_a_null_where_the_columns_say_that_there_is_none_is_damage(name):
    typed = schema.typed(pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())]))
    columns = {"id": pa.array([1, 2]), "text": pa.array(["a", None]), "timestamp": hostile.times(2)}
    data = pa.py_buffer(stored(pa.record_batch(columns | {name: pa.nulls(2, columns[name].type)})))
    with pytest.raises(CorruptObject, match=f"the chunk.*column '{name}' has nulls"):
        chunk.decode(data, chunk.verify(data, "the chunk"), (typed,), "the chunk")


@FEW_AND_MANY
@EVERY_COMPRESSION
def test_a_value_outside_of_the_chunk_or_a_key_that_is_no_text_is_not_read(rows, compression):
    fall = ordered(rows, fall=rows // 2)
    wrong = [
        with_headers(fall, [b"k"] * rows),
        with_headers(ordered(rows), [b"k"] * rows, key_ends=fall),
        with_headers(ordered(rows), [b"k"] * (rows - 1) + [b"\xff"]),
    ]
    with pytest.raises(CorruptObject, match=r"the chunk.*cannot read it"):
        decoded(stored(with_offsets(fall, b"v" * rows), compression))
    for batch in wrong:
        with pytest.raises(CorruptObject, match="the chunk"):
            decoded(stored(batch, compression, schema_id=1))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("rows", [1, hostile.MANY])
def test_a_small_chunk_does_not_become_large_rows(compression, rows):
    data = hostile.bomb(65, rows, compression)
    with pytest.raises(CorruptObject, match=r"its rows would take \d+ bytes"):
        decoded(data)


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_large_rows_that_would_become_a_small_chunk_are_stored_as_they_are(compression):
    size = chunk.DECODED_BYTES + 1
    batch = with_offsets([0, size], np.zeros(size, np.uint8))
    header, data = chunk.encode(batch, 0, compression)
    assert header.length > size
    assert decoded(data).equals(batch)
    half = np.frombuffer(np.random.default_rng(1).bytes(chunk.DECODED_BYTES // 2), np.uint8)
    batch = with_offsets([0, 2 * half.size], np.concatenate([half, np.zeros(half.size, np.uint8)]))
    header, data = chunk.encode(batch, 0, compression)
    assert header.length < 1.1 * half.size, "these become half as large"
    assert decoded(data).equals(batch)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_buffer_that_columns_share_is_as_large_as_those_of_its_own_for_each(compression):
    columns = 40
    one = pa.array([bytes(chunk.DECODED_BYTES // columns + 1)])
    stored = schema.typed(pa.schema([(f"column {number}", one.type) for number in range(columns)]))
    batch = pa.RecordBatch.from_arrays([*[one] * columns, hostile.times(1)], schema=stored)
    header, data = chunk.encode(batch, 0, compression)
    assert chunk.decode(pa.py_buffer(data), header, (stored,), "the chunk").equals(batch)


@pytest.mark.parametrize("claim", [2**62, 2**40, -2, -(2**33), -(2**63)])
def test_no_buffer_has_a_length_that_no_memory_holds_or_makes_up_for_others_with_a_negative_one(claim):
    body = bytearray(message_of(with_offsets([0, 4000], np.zeros(4000, np.uint8)), "zstd"))
    place = body.index((4000).to_bytes(8, "little") + b"\x28\xb5\x2f\xfd")  # in front of what zstd made
    body[place : place + 8] = claim.to_bytes(8, "little", signed=True)
    with pytest.raises(CorruptObject, match="the chunk"):
        decoded(chunk_of(bytes(body) + bytes(4096)))
    if claim < 0:
        with pytest.raises(WrongBatchError, match=f"decompressed size of {claim} bytes"):
            untrusted_batch.measure(pa.py_buffer(bytes(body)))


def test_a_message_has_a_bounded_number_of_buffers():
    body = message_of(pa.record_batch([pa.array([1])] * 5, [str(number) for number in range(5)]), "zstd")
    with mock.patch.object(untrusted_batch, "BUFFERS_MAX", 10):
        assert untrusted_batch.measure(pa.py_buffer(body))
    with mock.patch.object(untrusted_batch, "BUFFERS_MAX", 9), pytest.raises(WrongBatchError, match="10 buffers"):
        untrusted_batch.measure(pa.py_buffer(body))


def first_batch_of(batch, **options):
    """Return the first message after the schema of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch, **options)
    whole = sink.getvalue().to_pybytes()
    _, first = chunk._PREFIX.unpack_from(whole)
    return whole[8 + first :]


def test_another_kind_of_message_or_one_with_metadata_of_its_own_is_not_read():
    """An old version of Arrow names the compression there, and would decompress what was not measured."""
    dictionary = first_batch_of(pa.record_batch([pa.array(["a"]).dictionary_encode()], ["d"]))
    for body in (dictionary, schema.encode(schema.RECORD), b"\xff" * 8, b"", bytes(5000)):
        with pytest.raises(CorruptObject, match="the chunk"):
            decoded(chunk_of(body + bytes(4096)))
    batch = with_offsets(ordered(3), b"v" * 3)
    named = first_batch_of(batch, custom_metadata={"ARROW:experimental_compression": "zstd"})
    with pytest.raises(CorruptObject, match="custom metadata"):
        decoded(chunk_of(named + bytes(4096), 3))
