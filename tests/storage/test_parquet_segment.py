"""Parquet segments: ordinary Parquet files for others, and never wrong rows for readers of the product."""

import datetime as dt

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_storage.columns.schema import HEADERS, RECORD_SCHEMAS, RECORD_WITH_HEADERS, TIMESTAMP
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.files import chunk, index
from pyspark_log_storage.files.row_files import NotAsParquet
from pyspark_log_storage.parquet import parquet_footer, parquet_segment, row_group
from pyspark_log_storage.segments import segment, transfer
from tests.support.counting_store import CountingStore
from tests.support.memory_store import MemoryStore
from tests.support.segment_reads import entries_between
from tests.support.storage.parquet_rows import BASE, EPOCHS, KEY, START, batch_of, rows_of, simple, whole, write

headers = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)}), max_size=2
)
plain = st.lists(st.tuples(st.none() | st.binary(max_size=20), st.integers(-50, 50)), min_size=1, max_size=5)
headed = st.lists(st.tuples(st.none() | st.binary(max_size=20), st.integers(-50, 50), headers), min_size=1, max_size=5)
stored = st.lists(
    st.one_of(
        plain.map(lambda rows: (batch_of(rows), 0)),
        headed.map(lambda rows: (batch_of(rows, RECORD_WITH_HEADERS), 1)),
    ),
    min_size=1,
    max_size=8,
)


# What is written is found


@given(stored, st.sampled_from(chunk.COMPRESSIONS), st.integers(1, 400))
def test_every_row_is_read_back_at_its_offset_and_the_file_alone_makes_the_index(chunks, compression, group_bytes):
    store = MemoryStore()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_segment, "ROW_GROUP_BYTES", group_bytes)
        done = write(store, [(*each, 3) for each in chunks], compression=compression)
    expected = whole(batch for batch, _ in chunks)
    found = rows_of(store, entries_between(store, KEY, done.base_offset, done.end_offset))
    assert [{"headers": None, **each} for each in found] == [{"headers": None, **each} for each in expected]
    entries = segment.scan(store, KEY, RECORD_SCHEMAS)
    assert (done.end_offset, done.chunks, done.log_bytes) == (entries[-1].end_offset, len(entries), store.size(KEY))
    times = [row["timestamp"] for row in expected]
    low, high = ((each - START) // dt.timedelta(microseconds=1) for each in (min(times), max(times)))
    assert (done.min_timestamp, done.max_timestamp) == (low, high)
    written = store.read(f"{KEY}.index")
    assert index.is_right(store, KEY, entries)
    store.delete(f"{KEY}.index")
    assert transfer.check(store, KEY, done)
    assert store.read(f"{KEY}.index") == written


@pytest.fixture
def memory(monkeypatch):
    """A segment of four row groups of offsets 1000 to 1011."""
    monkeypatch.setattr(parquet_segment, "ROW_GROUP_BYTES", 100)
    row_group._footers.clear()
    store = CountingStore()
    write(store, [*simple(3, 3), *simple(3, 3, epoch=5)])
    assert [each.rows for each in segment.scan(store, KEY)] == [3, 3, 3, 3]
    return store


def test_a_reader_of_one_row_group_reads_its_bytes_and_once_the_footer(memory):
    assert [(each.rows, each.leader_epoch) for each in segment.scan(memory, KEY)] == [(3, 3), (3, 3), (3, 5), (3, 5)]
    assert segment.epochs_of(memory, KEY) == EPOCHS
    [entry] = entries_between(memory, KEY, 1003, 1004)
    memory.forget()
    row_group.read(memory, KEY, entry.place(), RECORD_SCHEMAS, "x")
    assert memory.received <= entry.length + memory.size(KEY)
    memory.forget()
    row_group.read(memory, KEY, entry.place(), RECORD_SCHEMAS, "x")
    assert (memory.reads, memory.received) == (1, entry.length)


def test_rows_and_columns_that_no_reader_would_decode_are_refused(monkeypatch):
    monkeypatch.setattr(parquet_segment, "ROW_BYTES_MAX", 1000)
    monkeypatch.setattr(parquet_segment, "ROW_GROUP_BYTES", 500)
    with pytest.raises(NotAsParquet):
        write(MemoryStore(), [(batch_of([(b"v", 1), (b"v" * 2000, 2)]), 0, 3)])
    schema, store = pa.schema([pa.field("nothing", pa.struct([])), TIME]), MemoryStore()
    with pytest.raises(NotAsParquet):
        write(store, [], schemas=(schema,))
    assert list(store.list("")) == [], "no file is begun"


def test_a_footer_that_no_reader_would_take_is_refused(monkeypatch):
    store = MemoryStore()
    rows = [(batch_of([(b"v", 1)]), 0, 3)]
    write(store, rows)
    monkeypatch.setattr(parquet_footer, "TAIL_BYTES_MAX", len(store.read(KEY)) - 4 - segment.scan(store, KEY)[0].length)
    write(MemoryStore(), rows)
    monkeypatch.setattr(parquet_footer, "TAIL_BYTES_MAX", parquet_footer.TAIL_BYTES_MAX - 1)
    with pytest.raises(CorruptObject, match="its row groups end at byte"):
        parquet_footer.read(store, KEY)
    with pytest.raises(NotAsParquet):
        write(MemoryStore(), rows)


# Rows of several schemas


OLD = pa.schema([("name", pa.string()), ("count", pa.int32()), pa.field("timestamp", TIMESTAMP)])
TIME = pa.field("timestamp", TIMESTAMP)
POSITIONS = ["partition", "offset", "timestamp"]
NEW = pa.schema([("name", pa.string()), ("count", pa.int64()), ("price", pa.float64()), OLD.field("timestamp")])


def test_rows_of_an_older_schema_have_the_columns_of_the_newest():
    store = MemoryStore()
    old = pa.RecordBatch.from_pylist([{"name": "a", "count": 1, "timestamp": START}], OLD)
    new = pa.RecordBatch.from_pylist([{"name": "b", "count": 2**40, "price": 0.5, "timestamp": START}], NEW)
    write(store, [(old, 0, 3), (new, 1, 3), (old, 0, 5)], schemas=(OLD, NEW))
    table = pq.read_table(pa.BufferReader(store.read(KEY)))
    assert table.column_names == ["partition", "offset", "timestamp", "name", "count", "price"]
    assert table.column("count").to_pylist() == [1, 2**40, 1]
    assert table.column("price").to_pylist() == [None, 0.5, None]
    found = rows_of(store, segment.scan(store, KEY, (OLD, NEW)), (OLD, NEW))
    assert [each["count"] for each in found] == [1, 2**40, 1]


def required(kind):
    """Return a struct with a field that is not null, and one that may be."""
    return pa.struct([pa.field("must", kind, nullable=False), pa.field("may", kind)])


PAIR = required(pa.int32())
MAP = pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", PAIR))


def one_column(values):
    """Return rows with these values, as the only chunk of a typed topic."""
    schema = pa.schema([pa.field("x", values.type), pa.field("timestamp", TIMESTAMP, nullable=False)])
    return pa.RecordBatch.from_arrays([values, pa.array([0] * len(values), TIMESTAMP)], schema=schema)


BELOW_NULLS = [
    *(required(kind) for kind in (pa.string(), pa.bool_(), pa.decimal128(5, 2), PAIR, MAP)),
    required(pa.list_(pa.field("element", PAIR))),
    pa.list_(pa.field("element", PAIR)),
    MAP,
]


def with_nulls(kind):
    """Return three values with nulls as Spark writes them: those of structs have nulls in all fields."""
    bounds = pa.array([0, 1, 3, 3], pa.int32())
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(bounds, pa.array(["a", "b", "c"]), pa.nulls(3, kind.item_type), type=kind)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(bounds, pa.nulls(3, kind.value_type), type=kind)
    return pa.nulls(3, kind)


@pytest.mark.parametrize("kind", BELOW_NULLS, ids=str)
def test_a_null_struct_is_one_in_the_file_also_if_its_fields_are_not_null(kind):
    values = with_nulls(kind)
    for rows in (values, values.slice(1), values.slice(1, 1)):
        store, batch = MemoryStore(), one_column(rows)
        write(store, [(batch, 0, 3)], schemas=(batch.schema,))
        found = rows_of(store, segment.scan(store, KEY, (batch.schema,)), (batch.schema,))
        assert [each["x"] for each in found] == rows.to_pylist()


@pytest.mark.parametrize(
    "values",
    [
        pa.StructArray.from_arrays([pa.array([1, None], pa.int32()), pa.nulls(2, pa.int32())], fields=list(PAIR)),
        pa.array([[1], [None]], pa.list_(pa.field("element", pa.int32(), nullable=False))),
        pa.array([[("a", None)]], pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False))),
    ],
    ids=["field", "element", "value"],
)
def test_a_nested_null_where_the_columns_say_that_there_is_none_is_read_as_it_was_written(values):
    store, batch = MemoryStore(), one_column(values)
    write(store, [(batch, 0, 3)], schemas=(batch.schema,))
    found = rows_of(store, segment.scan(store, KEY, (batch.schema,)), (batch.schema,))
    assert [each["x"] for each in found] == values.to_pylist()


# What others find in the file


def test_others_read_ordinary_columns_with_statistics_and_page_indexes(memory):
    file = pq.ParquetFile(pa.BufferReader(memory.read(KEY)))
    columns = [("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", TIMESTAMP)]
    others = [("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS)]
    assert file.schema_arrow == pa.schema([*(pa.field(*each, nullable=False) for each in columns), *others])
    assert b"ARROW:schema" not in file.metadata.metadata
    table = file.read()
    assert table.column("offset").to_pylist() == list(range(1000, 1012))
    assert table.column("partition").unique().to_pylist() == [2]
    for number, (low, high) in enumerate([(1000, 1002), (1003, 1005), (1006, 1008), (1009, 1011)]):
        group = file.metadata.row_group(number)
        offsets = group.column(1)
        assert (offsets.statistics.min, offsets.statistics.max) == (low, high)
        assert offsets.has_column_index
        assert offsets.has_offset_index
        assert group.column(0).statistics.has_min_max
        assert group.column(2).statistics.has_min_max
        assert "DELTA_BINARY_PACKED" in offsets.encodings


# Damage


def test_a_reader_refuses_damaged_bytes_and_another_row_group(memory):
    first, second, *_ = segment.scan(memory, KEY)
    data = memory.read(KEY)
    swapped = data[:4] + data[second.position : second.position + second.length]
    assert first.length == second.length
    swapped += data[first.position : first.position + first.length] + data[len(swapped) + first.length :]
    memory.put(KEY, swapped)
    with pytest.raises(CorruptObject, match=r"offset 7.*its checksum does not match"):
        row_group.read(memory, KEY, first.place(), RECORD_SCHEMAS, "offset 7")
    moved = msgspec.structs.replace(first.place(), position=first.position + 1)
    with pytest.raises(CorruptObject, match="checksum"):
        row_group.read(memory, KEY, moved, RECORD_SCHEMAS, "offset 7")
    memory.put(other := KEY.replace("abc", "abd"), data)
    with pytest.raises(CorruptObject, match="it was written as"):
        row_group.read(memory, other, first.place(), RECORD_SCHEMAS, "x")


def test_columns_that_repeat_have_a_dictionary_and_floats_no_statistics_because_these_leave_out_nan():
    store = MemoryStore()
    kind = pa.schema([("x", pa.float64()), ("y", pa.float32()), ("z", pa.int64()), ("name", pa.string()), TIME])
    rows = [
        {"x": float(number), "y": number / 8, "z": number, "name": "ab"[number % 2], "timestamp": START}
        for number in range(100)
    ]
    write(store, [(pa.RecordBatch.from_pylist(rows, kind), 0, 3)], schemas=(kind,))
    columns = pq.ParquetFile(pa.BufferReader(store.read(KEY))).metadata.row_group(0).to_dict()["columns"]
    assert [each["path_in_schema"] for each in columns if each["statistics"]] == [*POSITIONS, "z", "name"]
    assert [each["path_in_schema"] for each in columns if each["has_dictionary_page"]] == ["partition", "name"]


def test_the_name_of_a_nested_column_may_have_dots():
    store = MemoryStore()
    kind = pa.schema(
        [("a.b", pa.struct([("c.d", pa.int64())])), ("a", pa.struct([("b", pa.string())])), ("a.c", pa.binary()), TIME]
    )
    rows = [{"a.b": {"c.d": 1}, "a": {"b": "x"}, "a.c": b"y", "timestamp": START}]
    write(store, [(pa.RecordBatch.from_pylist(rows, kind), 0, 3)], schemas=(kind,))
    entries = parquet_footer.read(store, KEY).entries
    assert rows_of(store, entries, (kind,)) == [{"offset": BASE, **rows[0]}]
    [entry] = entries
    for name in kind.names:
        found = row_group.read(store, KEY, entry.place(), (kind,), "x", [name])
        assert found.to_pylist() == [{name: rows[0][name]}]
