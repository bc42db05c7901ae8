"""A Parquet segment says which one it is: one in the place of another is refused."""

import pytest

from pyspark_log_storage.columns.schema import RECORD_SCHEMAS
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.parquet import row_group
from pyspark_log_storage.parquet.parquet_segment import ParquetRows, ParquetSegmentWriter
from pyspark_log_storage.segments import segment
from tests.support.memory_store import MemoryStore
from tests.support.plain_log import record

NAME = "00000000000000001000-00000000000000000007-abc.parquet"
KEY = f"topics/t/1/2/{NAME}"
RECORDS = record([b"a", b"b"])


@pytest.fixture
def whole():
    store = MemoryStore()
    kind = ParquetRows(2, RECORD_SCHEMAS, "lz4")
    writer = ParquetSegmentWriter(store, "topics/t/1/2/", NAME, 1000, ((3, 1000),), kind)
    writer.append(RECORDS, 0, 3)
    writer.close()
    return store


def test_a_reader_refuses_another_segment(whole):
    """One of the same rows, as others see it who rolled them."""
    entry, *_ = segment.scan(whole, KEY)
    key, other = KEY.replace("abc", "abd"), MemoryStore()
    other.put(key, whole.read(KEY))
    with pytest.raises(CorruptObject, match="it does not belong here"):
        row_group.read(other, key, entry.place(), RECORD_SCHEMAS, "x")
    with pytest.raises(CorruptObject, match="it does not belong here"):
        segment.scan(other, key)
