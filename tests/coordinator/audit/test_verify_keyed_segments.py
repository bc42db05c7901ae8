"""`verify` reads the lists of keyed segments, compares the key index with the rows' keys, and finds keys twice."""

import pytest

from pyspark_log_coordinator.audit import live_rows
from pyspark_log_coordinator.audit.verify import verify
from pyspark_log_storage.columns import key_index
from pyspark_log_storage.parquet import keyed_segment, parquet_footer
from pyspark_log_storage.parquet.keyed_segment import KeyedSegmentWriter
from pyspark_log_storage.parquet.parquet_segment import ParquetRows
from tests.support.coordinator.compacted_topic import CompactedTopic
from tests.support.memory_store import MemoryStore


@pytest.fixture
def topic():
    """Two keyed segments, of which the second supersedes a row of the first."""
    made = CompactedTopic()
    for rows in ([(b"a", b"1"), (b"b", b"1")], [(b"b", b"2"), (b"c", None), (b"d", b"1")]):
        made.write(rows)
        made.do(made.fold_job())
    assert verify(made.handle).findings == []
    return made


def key_of(topic, number):
    return topic.handle.segment(0, topic.partition.segments[number].name)


@pytest.mark.parametrize("at_once", [2**24, 1])
def test_a_key_of_which_a_compaction_left_an_older_row_is_found(topic, monkeypatch, at_once):
    monkeypatch.setattr(live_rows, "KEYS_AT_ONCE", at_once)
    topic.write([(b"a", b"2"), (b"d", b"2"), (b"e", b"1")])
    monkeypatch.setattr(key_index, "compared", lambda found, *_: (key_index.NONE, found.wanted[:0]))
    topic.do(topic.fold_job())
    (finding,) = verify(topic.handle).findings
    assert "the row at offset 0 has another live row, at offset 5" in finding.problem
    assert "2 such rows" in finding.problem
    monkeypatch.undo()
    topic.write([(b"a", b"3"), (b"d", b"3")])
    topic.do(topic.fold_job())
    assert verify(topic.handle).findings == []


@pytest.mark.parametrize("place", [0, 8, 20])
def test_a_flipped_bit_in_a_list_is_found(topic, place):
    """The first eight bytes after the rows are the superseded row, the others the key index."""
    key = key_of(topic, 1)
    data = bytearray(topic.store.read(key))
    data[parquet_footer.read(topic.store, key).segment.rows_end + place] ^= 4
    topic.store.put(key, bytes(data))
    (finding,) = verify(topic.handle).findings
    assert "its checksum does not match its bytes" in finding.problem


def test_a_key_index_with_right_checksums_that_is_not_that_of_the_rows_is_found(topic):
    key = key_of(topic, 1)
    footer = parquet_footer.read(topic.store, key)
    folder, _, name = key.rpartition("/")
    other = MemoryStore()
    kind = ParquetRows(0, topic.handle.schemas, "lz4")
    writer = KeyedSegmentWriter(other, f"{folder}/", name, 2, footer.segment.leader_epochs, kind)
    for entry in footer.entries:
        batch, offsets = keyed_segment.read_rows(topic.store, key, footer, entry, topic.handle.schemas)
        writer.append_at(batch, offsets, entry.schema_id, entry.leader_epoch)
    keys = keyed_segment.read_keys(topic.store, key, footer)
    wrong = keys._replace(checks=keys.checks ^ 1)
    writer.close_at(5, keyed_segment.read_superseded(topic.store, key, footer), wrong, 1)
    for ending in ("", ".index"):
        topic.store.put(f"{key}{ending}", other.read(f"{key}{ending}"))
    (finding,) = verify(topic.handle).findings
    assert "its key index is not that of its rows" in finding.problem
