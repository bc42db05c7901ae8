"""Rolling and merging a whole topic: to the end, beside other processes, and around damage."""

import itertools
import threading

import msgspec
import pytest

from pyspark_log_coordinator.maintenance import topic_cleanup, topic_roll
from pyspark_log_coordinator.maintenance.topic_roll import SWAPS_MAX
from pyspark_log_coordinator.segments import swap
from pyspark_log_coordinator.segments.roll_plan import MERGE_COUNT, ROLL_CHUNKS
from pyspark_log_storage.errors import CorruptObject, ObjectMissing
from pyspark_log_storage.stores.local import LocalStore
from tests.support.coordinator.compacted_topic import CompactedTopic
from tests.support.coordinator.stored_topic import AT_ONCE, StoredTopic
from tests.support.elsewhere import PlainStore

NOTHING = {"segments": 0, "bytes": 0}


@pytest.fixture
def topic():
    return StoredTopic(**AT_ONCE)


@pytest.mark.no_faults("makes so many calls that every run meets one")
def test_rolling_goes_on_until_nothing_is_left_to_do(topic):
    for _ in range(MERGE_COUNT):
        topic.fill(ROLL_CHUNKS)
        topic_roll.roll_and_merge(topic.handle)
    [ref] = topic.handle.refresh().partitions[0].segments
    assert ref.level == 2
    topic.check()


def test_rolling_returns_what_it_did_and_reports_its_progress(topic):
    topic.fill(ROLL_CHUNKS)
    size, told = topic.job().bytes, []
    done = topic_roll.roll_and_merge(topic.handle, told.append)
    assert done == {"segments": 1, "bytes": size}
    assert told == [size]
    assert topic_roll.roll_and_merge(topic.handle) == NOTHING


def test_small_segments_of_many_partitions_share_journal_entries():
    topic = StoredTopic(partitions=SWAPS_MAX + 1, flush_messages="1", **AT_ONCE)
    topic.fill(1, partitions=range(SWAPS_MAX + 1))
    before = topic.handle.journal.number
    told = []
    done = topic_roll.roll_and_merge(topic.handle, told.append)
    assert done["segments"] == SWAPS_MAX + 1
    assert topic.handle.journal.number == before + 2
    assert (len(told), sum(told)) == (2, done["bytes"])
    topic.check()


class MeanwhileStore(PlainStore):
    """Lets another process act before the next large object is begun."""

    def __init__(self):
        super().__init__("the url")
        self.meanwhile = None

    def open_write(self, key, *, durable=True, replace=False):
        if self.meanwhile is not None:
            act, self.meanwhile = self.meanwhile, None
            act()
        return super().open_write(key, durable=durable, replace=replace)


def test_work_that_another_process_did_meanwhile_is_no_error():
    store = MeanwhileStore()
    topic = StoredTopic(store, partitions=2, **AT_ONCE)
    topic.fill(ROLL_CHUNKS, partitions=(0, 1))
    other = topic.open().topic("t")

    def act():
        topic_roll.roll_and_merge(other)
        topic_cleanup.clean_up_topic(other)

    store.meanwhile = act
    assert topic_roll.roll_and_merge(topic.handle) == NOTHING
    topic.check()


def test_a_file_that_is_missing_and_still_needed_is_an_error(topic):
    topic.fill(ROLL_CHUNKS)
    topic.store.delete(topic.handle.append_file(topic.handle.journal.state.files[5].name))
    with pytest.raises(ObjectMissing):
        topic_roll.roll_and_merge(topic.handle)


def test_a_job_that_fails_is_reported_and_the_other_partitions_go_on():
    topic = StoredTopic(partitions=4, **AT_ONCE)
    topic.fill(ROLL_CHUNKS, partitions=(0, 1, 2, 3))
    topic.roll(2, partition=3)
    topic.fill(ROLL_CHUNKS, partitions=(0, 1, 2, 3))
    file = topic.handle.append_file(topic.handle.journal.state.files[0].name)
    whole = topic.store.read(file)
    topic.damage(file, topic.handle.journal.state.partitions[0].chunks[0].position + 70)
    told = []
    done = topic_roll.roll_and_merge(topic.handle, failed=lambda *each: told.append(each))
    [(job, error)] = told
    assert (job.partition, isinstance(error, CorruptObject)) == (0, True)
    assert file in error.message
    assert done["segments"] >= 3
    state = topic.handle.refresh()
    assert [len(each.chunks) for each in state.partitions] == [2 * ROLL_CHUNKS, 0, 0, 0]
    # Nothing of what is damaged was dropped: once it is mended all is there.
    topic_cleanup.clean_up_topic(topic.handle)
    topic.store.put(file, whole)
    assert topic_roll.roll_and_merge(topic.handle)["segments"] > 0
    topic.check()


def test_without_a_callback_a_job_that_fails_is_an_error(topic):
    topic.fill(ROLL_CHUNKS)
    topic.damage(topic.handle.append_file(topic.handle.journal.state.files[3].name))
    with pytest.raises(CorruptObject):
        topic_roll.roll_and_merge(topic.handle)


@pytest.mark.timeout(30)
def test_a_compaction_that_fails_is_not_tried_again_and_again():
    """Each plan of a compaction has a time of its own."""
    topic = CompactedTopic(min_cleanable_dirty_ratio="0")
    for _ in range(3):
        topic.write([(b"a", b"1"), (b"b", b"1")])
    topic.log.environment = msgspec.structs.replace(
        topic.log.environment, now_ms=itertools.count(topic.now_ms).__next__
    )
    topic.store.delete(topic.handle.append_file(topic.handle.journal.state.files[1].name))
    with pytest.raises(ObjectMissing):
        topic_roll.roll_and_merge(topic.handle)
    told = []
    assert topic_roll.roll_and_merge(topic.handle, failed=lambda *each: told.append(each)) == NOTHING
    assert [job.verb for job, _ in told] == ["compacted"]


@pytest.mark.timeout(30)
def test_a_compaction_that_is_refused_is_not_tried_again_and_again(monkeypatch):
    topic = CompactedTopic(min_cleanable_dirty_ratio="0")
    topic.write([(b"a", b"1"), (b"a", b"2")])
    topic.log.environment = msgspec.structs.replace(
        topic.log.environment, now_ms=itertools.count(topic.now_ms).__next__
    )
    monkeypatch.setattr(swap, "_fits_keyed", lambda *_: False)
    assert topic_roll.roll_and_merge(topic.handle) == NOTHING


def test_keyed_segments_that_another_process_merged_while_rows_were_folded_are_no_error():
    store = MeanwhileStore()
    topic = CompactedTopic(store, min_cleanable_dirty_ratio="0")
    for number in range(2):
        topic.write([(b"%d" % number, b"1"), (b"b", b"1")])
        topic.do(topic.fold_job())
    topic.write([(b"0", b"2")])

    def merge():
        assert topic.do(topic.merge_job(0, 2))
        topic_cleanup.clean_up_topic(topic.handle)

    store.meanwhile = merge
    assert topic_roll.roll_and_merge(topic.log.topic("t"))["segments"] > 0
    assert topic.partition.compacted_end == 5
    topic.check()


@pytest.mark.timeout(30)
def test_a_compaction_that_fails_is_not_tried_again_and_again_while_rows_are_written():
    store = MeanwhileStore()
    topic = CompactedTopic(store, min_cleanable_dirty_ratio="0")
    for _ in range(3):
        topic.write([(b"a", b"1"), (b"b", b"1")])
    store.delete(topic.handle.append_file(topic.handle.journal.state.files[1].name))

    def write_more():
        topic.write([(b"a", b"2")])
        store.meanwhile = write_more

    store.meanwhile = write_more
    with pytest.raises(ObjectMissing):
        topic_roll.roll_and_merge(topic.log.topic("t"))


def test_a_damaged_segment_leaves_its_partition_unmerged_and_the_others_go_on():
    topic = StoredTopic(partitions=2, **AT_ONCE)
    for _ in range(MERGE_COUNT):
        topic.fill(1, partitions=(0, 1))
        for partition in (0, 1):
            topic.roll(partition=partition)
    topic.damage(f"{topic.segment_key(3, partition=0)}.log")
    told = []
    topic_roll.roll_and_merge(topic.handle, failed=lambda *each: told.append(each))
    assert [job.partition for job, _ in told] == [0]
    assert [len(each.segments) for each in topic.handle.refresh().partitions] == [MERGE_COUNT, 1]


def test_many_processes_that_roll_and_a_writer_at_once_leave_the_same_rows(tmp_path):
    store = LocalStore(str(tmp_path / "root"))
    topic = StoredTopic(store, partitions=2, retention_ms="-1", file_delete_delay_ms="0")
    stop, errors = threading.Event(), []

    def maintain():
        log = topic.open()
        handle = log.topic("t")
        try:
            while not stop.is_set():
                topic_roll.roll_and_merge(handle)
                topic_cleanup.clean_up_topic(handle)
        except Exception as error:  # noqa: BLE001 -- told by the test
            errors.append(error)

    threads = [threading.Thread(target=maintain) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        topic.fill(250, partitions=(0, 1))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []
    topic.check()
    assert all(len(each.segments) >= 1 for each in topic.handle.refresh().partitions)
    assert StoredTopic.read(topic, 1, handle=topic.open().topic("t")) == topic.expected[1]
