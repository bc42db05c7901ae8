"""Readers without Spark find the newest row of each key, whatever has been folded, merged or only written."""

import pytest
from hypothesis import given, settings

from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.newest_rows import check_compacted, keyed_partition, newest_rows_of
from pyspark_log.reading.planning import Range, split_of
from pyspark_log_coordinator.topic.machine import DeleteRecords
from pyspark_log_storage.errors import DataLoss
from tests.support.coordinator.compacted_topic import CompactedTopic
from tests.support.coordinator.compaction_stories import VERSIONS, stories, tell


def newest(topic: CompactedTopic) -> list[int]:
    """Return the offsets of the newest rows."""
    handle = topic.handle.refresh() and topic.handle
    end = topic.partition.high_watermark
    if not end:
        return []
    split = split_of(handle, Range("t", 0, topic.partition.log_start, end))

    def never(_: int):
        raise AssertionError("no file is gone")

    found = newest_rows_of(topic.log.store_at, split, keyed_partition(handle, 0), never)
    return [at for rows in fetch(topic.log.store_at, split) for at in found.only(*rows)[0].tolist()]


def is_right(topic: CompactedTopic) -> None:
    assert newest(topic) == sorted(row.offset for row in topic.newest().values())


def test_a_version_that_ends_among_rows_that_were_compacted_since_is_a_loss():
    topic = CompactedTopic()
    topic.write([(b"a", b"1"), (b"a", b"2")])
    topic.do(topic.fold_job())
    topic.write([(b"a", b"3")])
    topic.handle.refresh()
    check_compacted(topic.handle, [Range("t", 0, 0, 2)])
    with pytest.raises(DataLoss, match="up to offset 1 have been compacted, and the version ends at 1"):
        check_compacted(topic.handle, [Range("t", 0, 0, 1)])


@settings(max_examples=60, deadline=None)
@given(stories())
def test_the_newest_rows_are_read_at_each_step(story):
    topic = CompactedTopic()
    tell(topic, story, lambda: is_right(topic))


@settings(max_examples=250, deadline=None)
@given(stories(keys=(b"a", b"b", b"c", None), versions=VERSIONS))
def test_with_versions_rows_that_are_older_than_a_compacted_one_are_not_read(story):
    topic = CompactedTopic(has_versions=True)
    tell(topic, story, lambda: is_right(topic))


def test_a_row_without_a_key_that_stays_because_a_segment_has_rows_is_not_read():
    topic = CompactedTopic()
    topic.write([(None, b"1"), (None, b"2")])
    assert newest(topic) == []
    topic.do(topic.fold_job())
    assert [row.offset for row in topic.keyed_rows()] == [1]
    assert newest(topic) == []


def test_a_late_row_is_compared_with_the_row_of_its_key_that_is_not_superseded():
    topic = CompactedTopic(has_versions=True)
    topic.write([(b"a", None), (b"b", b"1")], [5, 5])
    topic.do(topic.fold_job())
    topic.write([(b"a", b"1"), (b"b", b"2")], [4, 6])
    assert newest(topic) == [3]
    topic.write([(b"a", b"2")], [4])
    topic.do(topic.fold_job(1))
    topic.do(topic.fold_job())  # its only row stays, and is superseded
    topic.now_ms += 1000
    topic.do(topic.merge_job(0, 1))
    assert [row.offset for row in topic.keyed_rows()] == [1, 3, 4]
    topic.write([(b"a", b"3")], [3])  # what deleted the key is gone
    assert newest(topic) == [3, 5]
    topic.do(topic.fold_job())
    assert newest(topic) == [3, 5]


def test_a_row_that_was_deleted_is_not_newer_than_those_that_are_there():
    topic = CompactedTopic(has_versions=True)
    topic.write([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")], [5, 5, 5])
    topic.do(topic.fold_job())
    topic.handle.submit(DeleteRecords(0, 2))
    topic.write([(b"a", b"2"), (b"c", b"2")], [4, 4])
    assert newest(topic) == [2, 3]
    topic.do(topic.fold_job())
    assert newest(topic) == [2, 3]
