"""Cleaning up a topic deletes only what no process needs, and readers that run meanwhile get every row."""

import random

import pytest

from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, split_of
from pyspark_log_coordinator.maintenance import topic_cleanup
from pyspark_log_coordinator.segments.roll_plan import ROLL_CHUNKS
from pyspark_log_coordinator.topic.machine import CommitBatch, MaintainSegments
from pyspark_log_storage.errors import CorruptObject, ObjectMissing, StaleFile
from pyspark_log_storage.segments import segment
from tests.support.coordinator.stored_topic import AT_ONCE, StoredTopic
from tests.support.elsewhere import PlainStore

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
    topic.clock.now_ms = 5999
    assert topic_cleanup.delete_pending(topic.handle, 5999) == []
    assert topic.keys("append/") == released
    assert topic_cleanup.delete_pending(topic.handle, 6000) == [topic.folder + key for key in released]
    assert topic.keys("append/") == []
    assert len(topic.handle.journal.state.pending_deletions) == 0
    topic.check()


def test_a_replaced_segment_is_deleted_with_its_index(topic):
    for _ in range(2):
        topic.fill(2)
        topic.roll()
    old = topic.keys("0/")
    topic.merge()
    topic_cleanup.delete_pending(topic.handle, 0)
    assert len(old) == 4
    assert set(topic.keys("0/")).isdisjoint(old)
    topic.check()


def test_files_are_deleted_in_order_even_if_clocks_differ():
    topic = StoredTopic(retention_ms="-1", file_delete_delay_ms="1000")
    topic.fill(2)
    topic.clock.now_ms = 9000
    topic.roll(1)
    topic.clock.now_ms = 100
    topic.roll(1)
    assert topic_cleanup.delete_pending(topic.handle, 2000) == []
    assert len(topic.handle.refresh().pending_deletions) == 2
    assert len(topic_cleanup.delete_pending(topic.handle, 10_000)) == 2
    assert len(topic.handle.refresh().pending_deletions) == 0


def test_an_interrupted_deletion_is_repeated(topic):
    topic.fill(3)
    topic.roll()
    topic.store.delete(topic.folder + topic.keys("append/")[0])
    topic_cleanup.delete_pending(topic.handle, 0)
    assert topic.keys("append/") == []
    assert len(topic.handle.journal.state.pending_deletions) == 0


def test_a_clean_up_refreshes_once_before_its_entry_and_the_journal_for_its_own_clean_up(topic, monkeypatch):
    topic.fill(ROLL_CHUNKS)
    topic.roll()
    for _ in range(3):
        topic_cleanup.clean_up_topic(topic.handle)
    journal, refreshed = topic.handle.journal, []
    refresh = journal.refresh
    monkeypatch.setattr(journal, "refresh", lambda: refreshed.append(journal.number) or refresh())
    topic_cleanup.clean_up_topic(topic.handle)
    assert len(refreshed) <= 4, "at its begin, by the entry that raises the floor, by trim and by mend"


def test_cleaning_up_twice_is_cleaning_up_once(topic):
    topic.fill(ROLL_CHUNKS)
    topic.roll()
    for _ in range(3):
        topic_cleanup.clean_up_topic(topic.handle)
    before = topic.keys("append/"), topic.keys("0/")
    assert topic_cleanup.clean_up_topic(topic.handle).deleted == 0
    assert (topic.keys("append/"), topic.keys("0/")) == before
    topic.check()


def test_cleaning_up_applies_retention():
    topic = StoredTopic(retention_ms="1000", segment_ms="1000", file_delete_delay_ms="0")
    topic.append({0: [b"old"]}, times_ms=[1])
    topic.roll()
    topic.append({0: [b"new"]}, times_ms=[5000])
    topic.clock.now_ms = 5000
    done = topic_cleanup.clean_up_topic(topic.handle)
    assert [(each.partition, each.log_start, each.rows) for each in done.expired] == [(0, 1, 1)]
    assert topic.read() == [b"new"]
    assert topic.keys("0/") == ["0/leader-epoch-checkpoint"]


# Orphans


def test_without_a_delay_what_expires_is_deleted_at_once_even_if_its_entry_takes_a_while(monkeypatch):
    topic = StoredTopic(retention_ms="0", file_delete_delay_ms="0")
    topic.fill(2)
    topic.roll()
    submit = topic.handle.submit

    def slow(command):
        topic.clock.now_ms += 5
        return submit(command)

    monkeypatch.setattr(topic.handle, "submit", slow)
    topic.clock.now_ms += 100_000
    deleted, (expired,) = topic_cleanup.expire(topic.handle)
    assert (expired.log_start, topic.keys("0/")) == (expired.rows, [])
    assert deleted >= 2


def test_a_file_of_a_dead_task_is_deleted_when_the_floor_has_passed_it():
    topic = StoredTopic(retention_ms="-1", orphan_retention_ms=str(HOUR))
    topic.fill(1)
    topic.stage({0: [b"never sequenced"]})
    topic.fill(1)
    seen = []
    for hour in range(4):
        topic.clock.now_ms = hour * HOUR
        topic_cleanup.clean_up_topic(topic.handle)
        seen.append(len(topic.keys("append/")))
    assert seen == [3, 2, 2, 2]
    topic.check()


def test_orphans_are_neither_named_nor_pending_nor_young(topic):
    topic.fill(3)
    topic.roll(2)
    lost = topic.stage({0: [b"lost"]}).name
    stale = topic.carry_out(topic.job()).segment.name
    topic.fill(1)
    assert topic_cleanup.orphans(topic.store, topic.handle) == []
    raise_floor(topic)
    young = topic.stage({0: [b"young"]})
    assert topic_cleanup.orphans(topic.store, topic.handle) == [
        f"{topic.folder}append/{lost}",
        f"{topic.folder}0/{stale}.index",
        f"{topic.folder}0/{stale}.log",
    ]
    topic.handle.submit(CommitBatch(None, (young,)))
    topic.expected[0].append(b"young")
    topic.check()


def raise_floor(topic):
    """Raise the orphan floor to the newest entry."""
    for _ in range(2):
        topic.handle.submit(topic_cleanup.RaiseOrphanFloor(topic.handle.journal.number))


def test_a_deleted_orphan_is_never_sequenced_afterwards(topic):
    topic.fill(1)
    late = topic.stage({0: [b"late"]})
    late_swap = topic.carry_out(topic.job())
    topic.fill(1)
    for _ in range(2):
        topic_cleanup.clean_up_topic(topic.handle)
    assert late.name not in "".join(topic.keys())
    with pytest.raises(StaleFile):
        topic.handle.submit(CommitBatch(None, (late,)))
    assert topic.handle.submit(MaintainSegments((late_swap,))).events == []
    topic.check()


@pytest.mark.parametrize("name", [".nfs0001", "notes.txt", "a-b-c", "leader-epoch-checkpoint", "0-1-2"])
def test_foreign_files_stay(topic, name):
    topic.fill(2)
    for folder in ("append", "0", "journal/entries", "journal/manifests", "journal/snapshots"):
        topic.store.create(f"{topic.folder}{folder}/{name}", b"mine")
    raise_floor(topic)
    topic_cleanup.clean_up_topic(topic.handle)
    left = topic.keys()
    assert len([key for key in left if key.endswith(f"/{name}")]) == 5
    topic.check()


def test_inline_maintenance_lists_all_files_only_when_the_floor_has_risen():
    class ListingStore(PlainStore):
        def list(self, prefix, after=""):
            listed.append(prefix)
            return super().list(prefix, after)

    listed = []
    topic = StoredTopic(ListingStore(), retention_ms="-1", orphan_retention_ms=str(HOUR))
    topic.fill(1)
    files, seen = f"{topic.folder}append/", []
    for minutes in (0, 1, 59, 60, 61):
        topic.clock.now_ms = minutes * 60_000
        listed.clear()
        topic_cleanup.clean_up_topic(topic.handle, thorough=False)
        seen.append(files in listed)
    assert seen == [False, False, False, True, False]


def test_an_object_store_is_listed_once_for_all_partitions():
    class Bucket(PlainStore):
        is_object_store = True

        def list(self, prefix, after=""):
            listed.append(prefix)
            return super().list(prefix, after)

    listed = []
    topic = StoredTopic(Bucket(), partitions=20, **AT_ONCE)
    topic.fill(2, partitions=range(20))
    late = topic.stage({3: [b"late"]})
    late_swap = topic.carry_out(topic.job(1, partition=7))
    topic.fill(1)
    raise_floor(topic)
    listed.clear()
    found = topic_cleanup.orphans(topic.store, topic.handle)
    segment = topic.handle.segment(7, late_swap.segment.name)
    assert found == [topic.handle.append_file(late.name), f"{segment}.index", f"{segment}.log"]
    assert listed == [topic.folder]


# Readers


def find_again(topic, asked):
    def find(offset):
        asked.append(offset)
        handle = topic.open().topic("t")
        return split_of(handle, Range("t", 0, offset, handle.journal.state.partitions[0].high_watermark))

    return find


def test_a_reader_that_planned_earlier_is_served_after_its_files_were_deleted(topic):
    topic.fill(20)
    split, asked = split_of(topic.handle, Range("t", 0, 0, 60)), []
    topic.roll()
    topic_cleanup.delete_pending(topic.handle, 0)
    batches = [each for _, each in fetch(topic.log.store_at, split, find_again(topic, asked))]
    rows = [row for each in batches for row in each["value"].to_pylist()]
    assert rows == topic.expected[0]
    assert asked == [0]


def test_a_reader_whose_files_are_deleted_while_it_reads_gets_each_row_once(topic):
    dice = random.Random(5)
    for _ in range(40):  # more than a reader joins before it gives the first away
        topic.append({0: [dice.randbytes(600_000)]})
    split, asked, rows = split_of(topic.handle, Range("t", 0, 0, 40)), [], []
    for offset, each in fetch(topic.log.store_at, split, find_again(topic, asked)):
        assert offset == len(rows)
        rows += each["value"].to_pylist()
        if not topic.handle.journal.state.partitions[0].segments:
            topic.roll()
            topic_cleanup.delete_pending(topic.handle, 0)
    assert rows == topic.expected[0]
    assert len(asked) == 1
    assert asked[0] > 0


def test_a_reader_that_cannot_plan_again_names_the_missing_file(topic):
    topic.fill(3)
    split = split_of(topic.handle, Range("t", 0, 0, 9))
    topic.roll()
    [first, *_] = topic_cleanup.delete_pending(topic.handle, 0)
    with pytest.raises(ObjectMissing, match=first):
        list(fetch(topic.log.store_at, split))


def test_a_segment_that_was_cut_between_two_chunks_and_lost_its_index_is_an_error_of_the_reader(topic):
    topic.fill(1)
    topic.append({0: [random.Random(6).randbytes(300_000)]})
    topic.roll()
    key = topic.segment_key()
    cut = segment.scan(topic.store, key)[-1].position
    topic.store.put(f"{key}.log", topic.store.read(f"{key}.log")[:cut])
    topic.store.delete(f"{key}.index")
    with pytest.raises(CorruptObject, match="topic 't', partition 0, offset 3"):
        topic.read()
