"""Row groups that are small and would become large are refused before they are decoded, and none is written."""

import random
import threading
from collections import OrderedDict

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_log_storage.columns.schema import HEADERS, RECORD, RECORD_WITH_HEADERS, TIMESTAMP
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.files.row_files import NotAsParquet
from pyspark_log_storage.parquet import parquet_footer, parquet_segment, row_group, row_group_size
from pyspark_log_storage.parquet.parquet_segment import ParquetRows, ParquetSegmentWriter
from tests.support.memory_store import MemoryStore
from tests.support.rings import sample
from tests.support.storage import random_columns
from tests.support.storage.hostile_parquet import BASE, KEY, forged

BYTES_MAX, VALUES_MAX = 2**16, 1000
TEXT = b"a" * 1000


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(row_group_size, "DECODED_BYTES", BYTES_MAX)
    monkeypatch.setattr(row_group_size, "VALUES_MAX", VALUES_MAX)
    monkeypatch.setattr(parquet_segment, "VALUES_MAX", VALUES_MAX)


def times(count):
    return pa.array(np.zeros(count, np.int64)).cast(TIMESTAMP)


def records(count, **columns):
    """Return rows without keys and values, but for these columns."""
    empty = {"key": pa.nulls(count, pa.binary()), "value": pa.nulls(count, pa.binary()), "timestamp": times(count)}
    return pa.table(empty | columns)


def headers(count, value=TEXT):
    """Return the headers of one row, which are many."""
    return pa.array([[{"key": "k", "value": value}] * count], RECORD_WITH_HEADERS.field("headers").type)


MANY = VALUES_MAX // 2
LARGE = {
    "nulls": records(MANY),
    "text in place of a time": records(100, timestamp=pa.array([TEXT] * 100)),
    "texts of one length": records(100, key=pa.array([TEXT] * 100, pa.binary(len(TEXT)))),
    "a list in place of a text": records(1, key=pa.array([[0] * 100])),
    "headers without values": records(1, headers=headers(MANY, None)),
    "a header that is repeated": records(1, headers=headers(100)),
}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("name", LARGE)
def test_a_row_group_that_would_become_large_is_refused_before_it_is_decoded(monkeypatch, name, version):
    store = forged(LARGE[name], data_page_version=version, compression="zstd")
    assert len(store.read(KEY)) < 8000
    reading = pq.ParquetFile.read_row_group

    def only_as_dictionaries(file, *args, **options):
        assert any("dictionary" in str(each.type) for each in file.schema_arrow), "it is decoded"
        return reading(file, *args, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", only_as_dictionaries)
    schema = RECORD_WITH_HEADERS if "headers" in LARGE[name].column_names else RECORD
    footer = parquet_footer.read(store, KEY)
    with pytest.raises(CorruptObject, match=r"would take|values|has type"):
        row_group.read_by(store, KEY, footer, footer.entries[0], (schema,))


def test_a_row_group_of_another_number_of_rows_than_its_parquet_footer_says_is_refused():
    store = forged(records(5))
    footer = parquet_footer.read(store, KEY)
    other = msgspec.structs.replace(footer, parquet=parquet_footer.read(forged(records(6)), KEY).parquet)
    with pytest.raises(CorruptObject, match="says 6 rows"):
        row_group.read_by(store, KEY, other, footer.entries[0], (RECORD,))


def test_a_row_group_of_a_schema_that_the_topic_does_not_have_is_damage():
    store = forged(records(5))
    footer = parquet_footer.read(store, KEY)
    other = msgspec.structs.replace(footer.entries[0], schema_id=1)
    with pytest.raises(CorruptObject, match="it names schema 1, and the topic has 1"):
        row_group.read_by(store, KEY, footer, other, (RECORD,))


def test_a_text_of_a_row_group_that_is_no_text_is_damage():
    name = pa.array([b"\xff"]).view(pa.string())
    header = pa.StructArray.from_arrays([name, pa.array([b""])], fields=list(HEADERS.value_type))
    store = forged(records(1, headers=pa.ListArray.from_arrays([0, 1], header).cast(HEADERS)))
    footer = parquet_footer.read(store, KEY)
    with pytest.raises(CorruptObject, match="UTF"):
        row_group.read_by(store, KEY, footer, footer.entries[0], (RECORD_WITH_HEADERS,))


def test_only_the_footers_that_were_used_last_stay_in_memory(monkeypatch):
    monkeypatch.setattr(row_group, "_FOOTERS_MAX", 2)
    monkeypatch.setattr(row_group, "_footers", OrderedDict())
    store = forged(records(5))
    place = parquet_footer.read(store, KEY).entries[0].place()
    for url in ("a", "b", "a", "c"):
        store.url = url
        row_group.read(store, KEY, place, (RECORD,), "it")
    assert [url for url, _ in row_group._footers] == ["a", "c"]


def written(batches, schema):
    store = MemoryStore()
    folder, name = KEY.rsplit("/", 1)
    writer = ParquetSegmentWriter(store, f"{folder}/", name, BASE, ((0, BASE),), ParquetRows(0, (schema,), "lz4"))
    for each in batches:
        writer.append(each, 0, 0)
    writer.close()
    return store


@pytest.mark.parametrize("seed", sample(range(40), 8))
def test_row_groups_are_written_so_that_they_are_read(monkeypatch, seed):
    chance = random.Random(seed)
    schema = pa.schema([*random_columns.columns(chance), pa.field("timestamp", TIMESTAMP, nullable=False)])
    batches = [random_columns.rows(chance, schema, 60) for _ in range(3)]
    monkeypatch.setattr(row_group_size, "DECODED_BYTES", 2**26)
    store = written(batches, schema)
    footer = parquet_footer.read(store, KEY)
    found = [row_group.read_by(store, KEY, footer, entry, (schema,)) for entry in footer.entries]
    assert pa.Table.from_batches(found).to_pylist() == pa.Table.from_batches(batches).to_pylist()


def test_a_row_of_too_many_values_is_not_written():
    rows = records(1, headers=headers(VALUES_MAX, b"")).to_batches()
    with pytest.raises(NotAsParquet):
        written(rows, RECORD_WITH_HEADERS)


def test_rows_are_decoded_by_the_thread_that_reads_them(monkeypatch):
    """Arrow's own threads would call Python for the bytes, which aborts a process that ends meanwhile."""
    threads = set()
    reading = row_group._Window.read_buffer

    def noted(window, size):
        threads.add(threading.get_ident())
        return reading(window, size)

    monkeypatch.setattr(row_group._Window, "read_buffer", noted)
    store = written(records(50).to_batches(), RECORD)
    footer = parquet_footer.read(store, KEY)
    row_group.read_by(store, KEY, footer, footer.entries[0], (RECORD,))
    assert threads == {threading.get_ident()}
