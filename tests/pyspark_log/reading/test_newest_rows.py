"""Readers without Spark find the newest row of each key, whatever has been folded, merged or only written."""

import pytest
from hypothesis import given, settings

from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.newest_rows import check_compacted, keyed_partition, newest_rows_of
from pyspark_log.reading.planning import Range, split_of
from pyspark_log_storage.errors import DataLoss
from tests.support.coordinator.compacted_topic import CompactedTopic
from tests.support.coordinator.compaction_stories import VERSIONS, stories, tell
from tests.support.rings import deep


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


@pytest.mark.parametrize("has_versions", [False, True])
@pytest.mark.parametrize("examples", [25, deep(250)])
def test_the_newest_rows_are_read_at_each_step(has_versions, examples):
    """With versions, rows that are older than a compacted one are not read."""

    @settings(max_examples=examples, deadline=None)
    @given(stories(keys=(b"a", b"b", b"c", None), versions=VERSIONS) if has_versions else stories())
    def holds(story):
        topic = CompactedTopic(has_versions=has_versions)
        tell(topic, story, lambda: is_right(topic))

    holds()


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
