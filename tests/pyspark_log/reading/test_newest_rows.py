"""Readers without Spark find the newest row of each key, whatever has been cleaned, merged or only written."""

import pytest
from hypothesis import given, settings

from pyspark_log.reading.newest_rows import check_compacted, keyed_partition
from pyspark_log.reading.planning import Range, split_of
from pyspark_log.reading.rows import of_handle, read_rows
from pyspark_log_coordinator.maintenance import compaction_task
from pyspark_log_coordinator.segments import compaction_plan
from pyspark_log_storage.errors import DataLoss
from tests.support.coordinator.compacted_topic import CompactedTopic
from tests.support.coordinator.compaction_stories import stories, tell
from tests.support.rings import deep


def newest(topic: CompactedTopic) -> list[int]:
    """Return the offsets of the newest rows."""
    handle = topic.handle.refresh() and topic.handle
    end = topic.partition.high_watermark
    if not end:
        return []
    split = split_of(handle, Range("t", 0, topic.partition.log_start, end))
    found = read_rows(split, of_handle(handle), newest=keyed_partition(handle, 0))
    return [at for offsets, _ in found for at in offsets.tolist()]


def is_right(topic: CompactedTopic) -> None:
    assert newest(topic) == sorted(row.offset for row in topic.newest().values())


def test_a_version_that_ends_among_rows_that_were_compacted_since_is_a_loss():
    topic = CompactedTopic()
    topic.write([(b"a", b"1"), (b"a", b"2")])
    topic.do(topic.clean_job())
    topic.write([(b"a", b"3")])
    topic.handle.refresh()
    check_compacted(topic.handle, [Range("t", 0, 0, 2)])
    with pytest.raises(DataLoss, match="up to offset 1 have been compacted, and the version ends at 1"):
        check_compacted(topic.handle, [Range("t", 0, 0, 1)])


@pytest.mark.parametrize("is_typed", [False, True])
@pytest.mark.parametrize("examples", [25, deep(250)])
def test_the_newest_rows_are_read_at_each_step(is_typed, examples):
    @settings(max_examples=examples, deadline=None)
    @given(stories())
    def holds(story):
        topic = CompactedTopic(is_typed=is_typed)
        tell(topic, story, lambda: is_right(topic))

    holds()


def test_a_placeholder_is_no_newest_row(monkeypatch):
    def narrow(sources, *, makes_one):
        return compaction_plan.outputs(sources, makes_one=makes_one, span_max=4)

    monkeypatch.setattr(compaction_task, "outputs", narrow)
    topic = CompactedTopic()
    for rows in ([(b"a", b"1"), (b"b", b"1")], [(b"a", b"2"), (b"b", b"2"), (b"b", b"3")]):
        topic.write(rows)
        topic.do(topic.clean_job())
    assert topic.partition.segments[0].keyed.placeholder == 1
    assert newest(topic) == [2, 4]
    topic.write([(b"c", b"1")])
    assert newest(topic) == [2, 4, 5]
