"""Rolling and merging a whole topic: to the end, beside other processes, and around damage."""

import itertools

import msgspec
import pytest

from pyspark_log_coordinator.log.log_clock import LogClock
from pyspark_log_coordinator.maintenance import topic_cleanup, topic_roll
from pyspark_log_coordinator.maintenance.topic_roll import SWAPS_MAX
from pyspark_log_coordinator.segments.roll_plan import ROLL_CHUNKS
from pyspark_log_coordinator.segments.tiers import MERGE_COUNT
from pyspark_log_storage.errors import CorruptObject, ObjectMissing
from tests.support.coordinator.compacted_topic import CompactedTopic
from tests.support.coordinator.stored_topic import AT_ONCE, StoredTopic
from tests.support.memory_store import MemoryStore

NOTHING = {"segments": 0, "bytes": 0}


@pytest.fixture
def topic():
    return StoredTopic(**AT_ONCE)


def test_rolling_goes_on_until_nothing_is_left_to_do_and_returns_what_it_did(topic):
    for _ in range(MERGE_COUNT - 1):
        topic.fill(1)
        topic.roll()
    topic.fill(ROLL_CHUNKS)
    size, told = topic.job().bytes, []
    done = topic_roll.roll_and_merge(topic.handle, told.append)
    assert (done["segments"], told[0], sum(told)) == (2, size, done["bytes"])
    assert [each.level for each in topic.handle.refresh().partitions[0].segments] == [2]
    assert topic_roll.roll_and_merge(topic.handle) == NOTHING
    topic.check()


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


class MeanwhileStore(MemoryStore):
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


def each_plan_has_a_time_of_its_own(topic):
    times = itertools.count(topic.now_ms)
    environment = msgspec.structs.replace(topic.log.environment, now_ms=times.__next__)
    topic.log.clock = LogClock(environment, lambda: topic.log.journals.place)


@pytest.mark.timeout(30)
def test_a_compaction_that_fails_is_not_tried_again_and_again_while_rows_are_written():
    store = MeanwhileStore()
    topic = CompactedTopic(store, min_cleanable_dirty_ratio="0")
    for _ in range(3):
        topic.write([(b"a", b"1"), (b"b", b"1")])
    each_plan_has_a_time_of_its_own(topic)
    store.delete(topic.handle.append_file(topic.handle.journal.state.files[1].name))

    def write_more():
        topic.write([(b"a", b"2")])
        store.meanwhile = write_more

    store.meanwhile = write_more
    with pytest.raises(ObjectMissing):
        topic_roll.roll_and_merge(topic.log.topic("t"))
    told = []
    topic_roll.roll_and_merge(topic.log.topic("t"), failed=lambda *each: told.append(each))
    assert {job.verb for job, _ in told} == {"compacted"}
