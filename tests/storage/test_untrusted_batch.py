"""Chunks with right checksums and wrong contents: no reader sees other bytes than the chunk's, or fills its memory."""

import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from pyspark_log_storage.columns import schema
from pyspark_log_storage.columns.column_ddl import parse
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.files import chunk, untrusted_batch
from tests.support.storage import hostile_chunks as hostile
from tests.support.storage import random_columns
from tests.support.storage.hostile_chunks import chunk_of, message_of, ordered, with_headers, with_offsets

LISTS = pa.list_(pa.field("element", pa.list_(pa.field("element", pa.int32()))))
WORKER = Path(__file__).parents[1] / "support" / "storage" / "hostile_worker.py"
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


def test_a_struct_without_fields_beside_lists_that_lack_offsets_keeps_its_rows():
    typed = schema.typed(pa.schema([("a", pa.struct([("none", pa.struct([])), ("lists", LISTS)]))]))
    lists = random_columns.lists_without_offsets(LISTS.value_type, 3)
    none = pa.array([{}] * 3, pa.struct([]))
    both = pa.StructArray.from_arrays([none, lists], fields=list(typed.field("a").type))
    batch = pa.RecordBatch.from_arrays([both, hostile.times(3)], schema=typed)
    data = pa.py_buffer(stored(batch))
    assert chunk.decode(data, chunk.verify(data, "the chunk"), (typed,), "the chunk").to_pylist() == batch.to_pylist()


@pytest.mark.parametrize("name", ["timestamp", "id"])
def test_a_null_where_the_columns_say_that_there_is_none_is_damage(name):
    typed = schema.typed(pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())]))
    columns = {"id": pa.array([1, 2]), "text": pa.array(["a", None]), "timestamp": hostile.times(2)}
    data = pa.py_buffer(stored(pa.record_batch(columns | {name: pa.nulls(2, columns[name].type)})))
    with pytest.raises(CorruptObject, match=f"the chunk.*column '{name}' has nulls"):
        chunk.decode(data, chunk.verify(data, "the chunk"), (typed,), "the chunk")


def test_a_record_without_a_timestamp_is_damage():
    times = pa.nulls(2, schema.TIMESTAMP)
    batch = pa.record_batch([pa.array([b"k", None]), pa.array([None, b"v"]), times], schema.RECORD)
    with pytest.raises(CorruptObject, match="column 'timestamp' has nulls"):
        decoded(stored(batch))


@FEW_AND_MANY
@EVERY_COMPRESSION
def test_a_value_outside_of_the_chunk_is_not_read(rows, compression):
    batch = with_offsets(ordered(rows, fall=rows // 2), b"v" * rows)
    with pytest.raises(CorruptObject, match=r"the chunk.*cannot read it"):
        decoded(stored(batch, compression))


@FEW_AND_MANY
def test_headers_outside_of_the_chunk_are_not_read(rows):
    batch = with_headers(ordered(rows, fall=rows // 2), [b"k"] * rows)
    with pytest.raises(CorruptObject, match="the chunk"):
        decoded(stored(batch, schema_id=1))


@FEW_AND_MANY
def test_the_key_of_a_header_outside_of_the_chunk_is_not_read(rows):
    batch = with_headers(ordered(rows), [b"k"] * rows, key_ends=ordered(rows, fall=rows // 2))
    with pytest.raises(CorruptObject, match="the chunk"):
        decoded(stored(batch, schema_id=1))


@FEW_AND_MANY
def test_the_key_of_a_header_that_is_no_text_is_an_error(rows):
    batch = with_headers(ordered(rows), [b"k"] * (rows - 1) + [b"\xff"])
    with pytest.raises(CorruptObject, match="UTF8"):
        decoded(stored(batch, schema_id=1))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("rows", [1, hostile.MANY])
def test_a_small_chunk_does_not_become_large_rows(compression, rows):
    data = hostile.bomb(65, rows, compression)
    with pytest.raises(CorruptObject, match=r"its rows would take \d+ bytes"):
        decoded(data)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_large_rows_that_would_become_a_small_chunk_are_stored_as_they_are(compression):
    size = chunk.DECODED_BYTES + 1
    batch = with_offsets([0, size], np.zeros(size, np.uint8))
    header, data = chunk.encode(batch, 0, compression)
    assert header.length > size
    assert decoded(data).equals(batch)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_buffer_that_columns_share_is_as_large_as_those_of_its_own_for_each(compression):
    columns = 40
    one = pa.array([bytes(chunk.DECODED_BYTES // columns + 1)])
    stored = schema.typed(pa.schema([(f"column {number}", one.type) for number in range(columns)]))
    batch = pa.RecordBatch.from_arrays([*[one] * columns, hostile.times(1)], schema=stored)
    header, data = chunk.encode(batch, 0, compression)
    assert chunk.decode(pa.py_buffer(data), header, (stored,), "the chunk").equals(batch)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_large_rows_that_become_half_as_large_are_compressed(compression):
    half = np.frombuffer(np.random.default_rng(1).bytes(chunk.DECODED_BYTES // 2), np.uint8)
    batch = with_offsets([0, 2 * half.size], np.concatenate([half, np.zeros(half.size, np.uint8)]))
    header, data = chunk.encode(batch, 0, compression)
    assert header.length < 1.1 * half.size
    assert decoded(data).equals(batch)


def test_a_length_that_no_memory_holds_is_an_error():
    body = bytearray(message_of(with_offsets([0, 4000], np.zeros(4000, np.uint8)), "zstd"))
    place = body.index((4000).to_bytes(8, "little") + b"\x28\xb5\x2f\xfd")  # in front of what zstd made
    for claim in (2**62, 2**40, 2**63, 2**64 - 2):
        body[place : place + 8] = claim.to_bytes(8, "little")
        with pytest.raises(CorruptObject, match="the chunk"):
            decoded(chunk_of(bytes(body) + bytes(4096)))


@pytest.mark.parametrize("claim", [-2, -(2**33), -(2**63)])
def test_no_buffer_makes_up_for_others_with_a_negative_size(claim):
    body = bytearray(message_of(with_offsets([0, 4000], np.zeros(4000, np.uint8)), "zstd"))
    place = body.index((4000).to_bytes(8, "little") + b"\x28\xb5\x2f\xfd")
    body[place : place + 8] = claim.to_bytes(8, "little", signed=True)
    with pytest.raises(untrusted_batch.WrongBatchError, match=f"decompressed size of {claim} bytes"):
        untrusted_batch.measure(pa.py_buffer(bytes(body)))


def test_a_message_has_a_bounded_number_of_buffers():
    batch = pa.record_batch([pa.array([1])] * 5, [str(number) for number in range(5)])
    body = message_of(batch, "zstd")
    with mock.patch.object(untrusted_batch, "BUFFERS_MAX", 10):
        assert untrusted_batch.measure(pa.py_buffer(body))
    with (
        mock.patch.object(untrusted_batch, "BUFFERS_MAX", 9),
        pytest.raises(untrusted_batch.WrongBatchError, match="10 buffers"),
    ):
        untrusted_batch.measure(pa.py_buffer(body))


def test_another_kind_of_message_is_not_read():
    dictionary = pa.array(["a"]).dictionary_encode()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("d", dictionary.type)])) as stream:
        stream.write_batch(pa.record_batch([dictionary], ["d"]))
    whole = sink.getvalue().to_pybytes()
    _, first = chunk._PREFIX.unpack_from(whole)
    for body in (whole, whole[8 + first :], schema.encode(schema.RECORD), b"\xff" * 8, b"", bytes(5000)):
        with pytest.raises(CorruptObject, match="the chunk"):
            decoded(chunk_of(body + bytes(4096)))


def test_a_message_with_metadata_of_its_own_is_not_read():
    """An old version of Arrow names the compression there, and would decompress what was not measured."""
    sink = pa.BufferOutputStream()
    batch = with_offsets(ordered(3), b"v" * 3)
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch, custom_metadata={"ARROW:experimental_compression": "zstd"})
    whole = sink.getvalue().to_pybytes()
    _, first = chunk._PREFIX.unpack_from(whole)
    with pytest.raises(CorruptObject, match="custom metadata"):
        decoded(chunk_of(whole[8 + first :] + bytes(4096), 3))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("chunk", 2000),
        ("body", 2000),
        ("segment", 100),
        ("rows", 100),
        ("index", 100),
        ("row group", 1000),
        ("footer", 1000),
        ("keyed lists", 1000),
        ("keyed footer", 300),
        ("keyed index", 300),
    ],
)
@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_changed_there_is_a_value_or_an_error(kind, count, seed):
    """In a process of its own: one that reads outside of its buffers may die."""
    done = subprocess.run(
        [sys.executable, str(WORKER), kind, str(seed), str(count)], capture_output=True, text=True, check=False
    )
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"{kind} {seed} died with {done.returncode} after {last}: {done.stderr[-2000:]}"
    refused, mebibytes = map(int, last[0].split())
    assert refused > count / 10, "most changes do not fit"
    assert mebibytes < 400, "what is read takes no more than the files hold"
