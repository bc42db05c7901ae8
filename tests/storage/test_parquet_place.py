"""A Parquet segment says whose rows it has: one in the place of another is refused, and wrong positions are found."""

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
    """One of another partition, or of the same with the same offsets, as others see it who rolled the same rows."""
    entry, *_ = segment.scan(whole, KEY)
    of_same_rows = NAME.replace("abc", "abd")
    elsewhere = ("topics/t/1/0/", "topics/t/2/2/", "topics/u/1/2/", "2/2/")
    for key in (f"topics/t/1/2/{of_same_rows}", *(f"{place}{NAME}" for place in elsewhere)):
        other = MemoryStore()
        other.put(key, whole.read(KEY))
        with pytest.raises(CorruptObject, match="it is another segment, t/1/2"):
            row_group.read(other, key, entry.place(), RECORD_SCHEMAS, "x")
        with pytest.raises(CorruptObject, match="it is another segment, t/1/2"):
            segment.scan(other, key)


@pytest.mark.parametrize("place", ["", "2/", "1/2/", "kept/topics/t/1/2/"])
def test_a_segment_that_was_copied_elsewhere_is_read(whole, place):
    whole.put(f"{place}{NAME}", whole.read(KEY))
    assert segment.scan(whole, f"{place}{NAME}") == segment.scan(whole, KEY)
