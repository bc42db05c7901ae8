"""Chunks with right checksums and wrong contents: no reader sees other bytes than the chunk's."""

import pyarrow as pa
import pytest

from pyspark_log_storage.columns import schema
from pyspark_log_storage.columns.column_ddl import parse
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.files import chunk
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


def test_another_kind_of_message_is_not_read():
    for body in (schema.encode(schema.RECORD), b"\xff" * 8, b"", bytes(5000)):
        with pytest.raises(CorruptObject, match="the chunk"):
            decoded(chunk_of(body + bytes(4096)))
