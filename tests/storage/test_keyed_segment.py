"""Keyed segments: some rows of a range at their offsets; never wrong rows, and no part unchecked."""

import itertools

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log_storage.columns.schema import RECORD, RECORD_SCHEMAS, TIMESTAMP
from pyspark_log_storage.errors import NewerFormat
from pyspark_log_storage.files import index
from pyspark_log_storage.files.row_files import KeyedCounts
from pyspark_log_storage.parquet import parquet_footer, parquet_segment, row_group
from pyspark_log_storage.parquet.parquet_segment import ParquetRows, ParquetSegmentWriter
from pyspark_log_storage.segments import segment, transfer
from tests.support.counting_store import CountingStore
from tests.support.memory_store import MemoryStore
from tests.support.storage import parquet_rows
from tests.support.storage.parquet_rows import BASE, EPOCHS, KEY

END = BASE + 100


def batch_of(rows):
    """Return rows, given as key and value. The time is their number, in microseconds."""
    keys, values = zip(*rows, strict=True)
    times = pa.array(range(len(rows)), TIMESTAMP)
    return pa.record_batch([pa.array(keys, pa.binary()), pa.array(values, pa.binary()), times], RECORD)


def write(store, rows, end=END, *, cuts=(), tombstones=None, placeholder=None):
    """Write a keyed segment. A row is its offset, key and value; `cuts` are the rows at which batches begin."""
    writer = ParquetSegmentWriter(store, KEY, EPOCHS, ParquetRows(2, RECORD_SCHEMAS, "lz4"))
    bounds = sorted({0, len(rows), *cuts})
    for first, last in itertools.pairwise(bounds):
        part = rows[first:last]
        offsets = np.array([each for each, _, _ in part], np.int64)
        writer.append(batch_of([row[1:] for row in part]), 0, 3, offsets)
    tombstones = sum(value is None for _, _, value in rows) if tombstones is None else tombstones
    return writer.close(end, tombstones, placeholder)


def rows_in(store, key=KEY):
    """Return offset, key and value of all rows."""
    footer = parquet_footer.read(store, key)
    found = []
    for entry in footer.entries:
        batch, offsets = row_group.keyed_rows(store, key, footer, entry, RECORD_SCHEMAS)
        assert all(entry.base_offset <= each < entry.end_offset for each in offsets)
        values = (batch.column(name).to_pylist() for name in ("key", "value"))
        found += zip(offsets.tolist(), *values, strict=True)
    return found


def keys_in(store, key=KEY):
    """Return offset and key of all rows, of which nothing else is decoded."""
    footer = parquet_footer.read(store, key)
    found = []
    for entry in footer.entries:
        rows, offsets = row_group.keyed_rows(store, key, footer, entry, RECORD_SCHEMAS, ["key"])
        assert rows.schema.names == ["key"]
        found += zip(offsets.tolist(), rows.column("key").to_pylist(), strict=True)
    return found


ROWS = [(BASE + 3 * number, b"key-%d" % number, None if number % 4 == 0 else b"value" * 5) for number in range(12)]


@pytest.fixture
def store(monkeypatch):
    """A keyed segment of offsets 1000 to 1099 with 12 rows in four row groups."""
    monkeypatch.setattr(parquet_segment, "ROW_GROUP_BYTES", 250)
    made = CountingStore()
    write(made, ROWS, cuts=range(0, len(ROWS), 3))
    assert [each.rows for each in segment.scan(made, KEY)] == [3, 3, 3, 3]
    return made


def test_the_footer_is_as_drawn_and_the_rows_are_ordinary_parquet(store):
    file = pq.ParquetFile(pa.BufferReader(store.read(KEY)))
    assert file.read().column("offset").to_pylist() == [offset for offset, _, _ in ROWS]
    statistics = file.metadata.row_group(1).column(1).statistics
    assert (statistics.min, statistics.max) == (1009, 1015)
    stored = msgspec.json.decode(file.metadata.metadata[b"pyspark-log.segment"])
    assert stored["keyed"] == [len(ROWS), 3, None]
    parquet_rows.write(dense := MemoryStore(), parquet_rows.simple(3))
    none = msgspec.json.decode(parquet_footer.read(dense, KEY).parquet.metadata[b"pyspark-log.segment"])
    assert set(none) == {"name", "leader_epochs", "entries"}
    assert parquet_footer.read(dense, KEY).segment.keyed is None


# What is written is found


keyed_rows = st.dictionaries(
    st.integers(BASE, END - 1),
    st.tuples(st.none() | st.binary(max_size=12), st.none() | st.binary(max_size=40)),
    min_size=1,
    max_size=20,
).map(lambda found: [(offset, *found[offset]) for offset in sorted(found)])


@settings(max_examples=30)
@given(keyed_rows, st.integers(1, 400), st.sets(st.integers(1, 19)), st.integers(0, 2**31))
def test_rows_and_keys_are_read_back_and_the_index_covers_the_range(rows, group_bytes, cuts, beyond):
    store, other = MemoryStore(), MemoryStore()
    end, placeholder = rows[-1][0] + 1 + beyond, rows[0][0] if len(rows) == 1 else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_segment, "ROW_GROUP_BYTES", group_bytes)
        done = write(store, rows, end, placeholder=placeholder, cuts=[each for each in cuts if each < len(rows)])
    assert rows_in(store) == rows
    assert keys_in(store) == [row[:2] for row in rows]
    entries = segment.scan(store, KEY, RECORD_SCHEMAS)
    assert (entries[0].base_offset, entries[-1].end_offset) == (BASE, end)
    assert all(one.end_offset == other.base_offset for one, other in itertools.pairwise(entries))
    assert sum(each.rows for each in entries) == len(rows)
    counts = KeyedCounts(len(rows), sum(value is None for _, _, value in rows), placeholder)
    assert (done.base_offset, done.end_offset, done.chunks, done.log_bytes) == (
        BASE,
        end,
        len(entries),
        store.size(KEY),
    )
    assert done.keyed == parquet_footer.read(store, KEY).segment.keyed == counts
    assert (done.min_timestamp, done.max_timestamp) == (0, max(each.max_timestamp for each in entries))
    assert index.read(store, KEY) == entries
    transfer.copy(store, other, KEY, done)
    assert other.read(KEY) == store.read(KEY)
    other.delete(f"{KEY}.index")
    assert transfer.check(other, KEY, done)
    assert other.read(f"{KEY}.index") == store.read(f"{KEY}.index"), "it is made from the file alone"


# Damage


def test_a_newer_segment_is_distinguished_from_a_damaged_one(monkeypatch):
    store = MemoryStore()
    with monkeypatch.context() as patch:
        patch.setattr(parquet_footer, "_VERSION", 2)
        write(store, ROWS)
    for read in (parquet_footer.read, segment.scan):
        with pytest.raises(NewerFormat):
            read(store, KEY)
