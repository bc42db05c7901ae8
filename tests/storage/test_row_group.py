"""A row group is read as it was written, by its footer and its bytes alone."""

import random
import threading
from collections import OrderedDict

import pyarrow as pa
import pytest

from pyspark_log_storage.columns.schema import RECORD, TIMESTAMP
from pyspark_log_storage.parquet import parquet_footer, row_group
from pyspark_log_storage.parquet.parquet_segment import ParquetRows, ParquetSegmentWriter
from tests.support.memory_store import MemoryStore
from tests.support.rings import sample
from tests.support.storage import random_columns

BASE = 1000
KEY = "t/0/00000000000000001000-00000000000000000007-abc.parquet"


def records(count):
    """Return rows without keys and values."""
    times = pa.array([0] * count, TIMESTAMP)
    return pa.record_batch([pa.nulls(count, pa.binary()), pa.nulls(count, pa.binary()), times], RECORD)


def test_only_the_footers_that_were_used_last_stay_in_memory(monkeypatch):
    monkeypatch.setattr(row_group, "_FOOTERS_MAX", 2)
    monkeypatch.setattr(row_group, "_footers", OrderedDict())
    store = written([records(5)], RECORD)
    place = parquet_footer.read(store, KEY).entries[0].place()
    for url in ("a", "b", "a", "c"):
        store.url = url
        row_group.read(store, KEY, place, (RECORD,), "it")
    assert [url for url, _ in row_group._footers] == ["a", "c"]


def written(batches, schema):
    store = MemoryStore()
    writer = ParquetSegmentWriter(store, KEY, ((0, BASE),), ParquetRows(0, (schema,), "lz4"))
    for each in batches:
        writer.append(each, 0, 0)
    writer.close()
    return store


@pytest.mark.parametrize("seed", sample(range(40), 8))
def test_row_groups_are_read_as_they_were_written(seed):
    chance = random.Random(seed)
    schema = pa.schema([*random_columns.columns(chance), pa.field("timestamp", TIMESTAMP, nullable=False)])
    batches = [random_columns.rows(chance, schema, 60) for _ in range(3)]
    store = written(batches, schema)
    footer = parquet_footer.read(store, KEY)
    found = [row_group.read_by(store, KEY, footer, entry, (schema,)) for entry in footer.entries]
    assert pa.Table.from_batches(found).to_pylist() == pa.Table.from_batches(batches).to_pylist()


def test_rows_are_decoded_by_the_thread_that_reads_them(monkeypatch):
    """Arrow's own threads would call Python for the bytes, which aborts a process that ends meanwhile."""
    threads = set()
    reading = row_group._Window.read_buffer

    def noted(window, size):
        threads.add(threading.get_ident())
        return reading(window, size)

    monkeypatch.setattr(row_group._Window, "read_buffer", noted)
    store = written([records(50)], RECORD)
    footer = parquet_footer.read(store, KEY)
    row_group.read_by(store, KEY, footer, footer.entries[0], (RECORD,))
    assert threads == {threading.get_ident()}
