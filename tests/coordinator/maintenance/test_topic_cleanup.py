"""Cleaning up a topic deletes only what no process needs, and readers that run meanwhile get every row."""

import pytest

from pyspark_log_coordinator.maintenance import topic_cleanup
from pyspark_log_coordinator.topic.sequencing import CommitBatch
from tests.support.coordinator.stored_topic import AT_ONCE, StoredTopic
from tests.support.coordinator.troubled_store import TroubledStore

HOUR = 3_600_000


@pytest.fixture
def topic():
    return StoredTopic(**AT_ONCE)


def test_replaced_files_are_deleted_after_the_delay():
    topic = StoredTopic(retention_ms="-1", file_delete_delay_ms="1000")
    topic.fill(2)
    topic.clock.now_ms = 5000
    topic.roll()
    released = topic.keys("append/")
    assert topic_cleanup.delete_pending(topic.handle, 5999) == []
    assert topic.keys("append/") == released
    topic.store.delete(topic.folder + released[0])  # by a process that was killed then
    assert topic_cleanup.delete_pending(topic.handle, 6000) == [topic.folder + key for key in released]
    assert topic.keys("append/") == []
    assert len(topic.handle.journal.state.pending_deletions) == 0
    topic.check()


def test_files_that_a_wrong_clock_has_scheduled_hold_up_nothing_that_is_scheduled_later():
    topic = StoredTopic(retention_ms="-1", file_delete_delay_ms="1000")
    topic.fill(3)
    topic.clock.now_ms = 8 * 24 * HOUR
    topic.roll(1)
    topic.clock.now_ms = 100
    topic.roll(1)
    assert topic_cleanup.delete_pending(topic.handle, 1099) == []
    assert len(topic.handle.refresh().pending_deletions) == 2
    topic.clock.now_ms = 9000
    topic.roll(1)
    assert len(topic_cleanup.delete_pending(topic.handle, 9999)) == 2
    assert len(topic.handle.refresh().pending_deletions) == 1


# Orphans


def test_orphans_are_neither_named_nor_pending_nor_young(topic):
    topic.fill(3)
    topic.roll(2)
    lost = topic.stage({0: [b"lost"]}).name
    stale = topic.carry_out(topic.job()).segments[0].name
    topic.fill(1)
    assert topic_cleanup.orphans(topic.store, topic.handle) == []
    raise_floor(topic)
    young = topic.stage({0: [b"young"]})
    assert topic_cleanup.orphans(topic.store, topic.handle) == [
        f"{topic.folder}0/{stale}.index",
        f"{topic.folder}0/{stale}.log",
        f"{topic.folder}append/{lost}",
    ]
    topic.handle.submit(CommitBatch(None, (young,)))
    topic.expected[0].append(b"young")
    topic.check()


def raise_floor(topic):
    """Raise the orphan floor to the newest entry."""
    for _ in range(2):
        topic.handle.submit(topic_cleanup.RaiseOrphanFloor(topic.handle.journal.number))


def test_inline_maintenance_lists_all_files_only_when_the_floor_has_risen():
    topic = StoredTopic(TroubledStore(), retention_ms="-1", orphan_retention_ms=str(HOUR))
    topic.fill(1)
    seen = []
    for minutes in (0, 1, 59, 60, 61):
        topic.clock.now_ms = minutes * 60_000
        topic.store.lists.clear()
        topic_cleanup.clean_up_topic(topic.handle, thorough=False)
        seen.append(topic.folder in topic.store.lists)
    assert seen == [False, False, False, True, False]
