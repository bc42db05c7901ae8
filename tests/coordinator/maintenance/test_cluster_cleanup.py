"""Cleaning up a cluster: the bytes of deleted topics are deleted after the delay, and nothing else is."""

from functools import partial

import pytest

from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, find_again, split_of
from pyspark_log_coordinator.journal import journal as journal_module
from pyspark_log_coordinator.journal import snapshot
from pyspark_log_coordinator.maintenance.cluster_cleanup import clean_up_cluster
from pyspark_log_coordinator.topic.machine import CommitBatch
from pyspark_log_storage import layout
from pyspark_log_storage.errors import ObjectMissing, UnknownTopic
from tests.support.coordinator.deleted_topics import DELETED_MS, LATER_MS, contents, delete, end_of, filled, left_of
from tests.support.coordinator.stored_topic import StoredTopic
from tests.support.coordinator.troubled_store import TroubledStore


@pytest.fixture
def topic(monkeypatch):
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 4)
    return filled()


@pytest.fixture
def deleted(topic):
    """The topic, deleted, and the delay over."""
    delete(topic)
    topic.clock.now_ms = LATER_MS
    return topic


# What goes, and when


def test_the_files_of_a_deleted_topic_are_deleted_after_the_delay(topic):
    delete(topic)
    before = contents(topic.store)
    topic.clock.now_ms = LATER_MS - 1
    assert clean_up_cluster(topic.log).deleted_topics == ()
    assert contents(topic.store) == before
    topic.clock.now_ms = LATER_MS
    [gone] = clean_up_cluster(topic.log).deleted_topics
    assert left_of(topic) == end_of(topic)
    lost = {key: data for key, data in before.items() if key not in contents(topic.store)}
    assert (gone.topic, gone.topic_id) == ("t", topic.handle.topic_id)
    assert (gone.objects, gone.bytes) == (len(lost), sum(map(len, lost.values())))
    assert all(key.startswith(topic.folder) for key in lost)


def test_the_delay_is_that_of_the_topic(monkeypatch):
    topic = filled(file_delete_delay_ms="5000")
    delete(topic)
    topic.clock.now_ms = DELETED_MS + 4999
    assert clean_up_cluster(topic.log).deleted_topics == ()
    topic.clock.now_ms = DELETED_MS + 5000
    assert len(clean_up_cluster(topic.log).deleted_topics) == 1


def test_what_stays_for_ever_does_not_grow_with_the_topic():
    sizes = []
    for batches in (1, 60):
        topic = StoredTopic(partitions=2)
        for _ in range(3):
            topic.fill(batches, partitions=(0, 1))
            topic.roll(partition=0)
        delete(topic)
        topic.clock.now_ms = LATER_MS
        clean_up_cluster(topic.log)
        _, _, key, _ = topic.handle.journal.end_keys()
        sizes.append(len(snapshot.decode(topic.store.read(key), key).state))
        assert left_of(topic) == end_of(topic)
    assert sizes[1] - sizes[0] < 30  # the digits of its numbers


def test_an_existing_topic_is_left_unchanged(topic):
    before = contents(topic.store)
    topic.clock.now_ms = LATER_MS
    assert clean_up_cluster(topic.log).deleted_topics == ()
    assert contents(topic.store) == before


def test_a_topic_created_again_under_the_name_is_left_unchanged(deleted):
    again = StoredTopic(deleted.store)
    again.clock.now_ms = LATER_MS
    again.fill(3)
    again.roll()
    before = {key: data for key, data in contents(again.store).items() if key.startswith(again.folder)}
    [gone] = clean_up_cluster(again.log).deleted_topics
    assert gone.topic_id == deleted.handle.topic_id != again.handle.topic_id
    assert {key: data for key, data in contents(again.store).items() if key.startswith(again.folder)} == before
    again.check()
    again.fill(1)
    again.check()
    assert left_of(deleted) == end_of(deleted)


def test_each_incarnation_of_a_name_is_deleted_after_its_own_delay(topic):
    delete(topic)
    second = StoredTopic(topic.store)
    second.fill(2)
    second.clock.now_ms = DELETED_MS + 10
    second.log.delete_topic("t")
    third = StoredTopic(topic.store)
    third.fill(2)
    third.clock.now_ms = LATER_MS + 9
    assert [each.topic_id for each in clean_up_cluster(third.log).deleted_topics] == [topic.handle.topic_id]
    third.clock.now_ms = LATER_MS + 10
    assert [each.topic_id for each in clean_up_cluster(third.log).deleted_topics] == [second.handle.topic_id]
    third.check()


def test_topics_whose_names_begin_alike_are_distinguished(deleted):
    others = [deleted.log.create_topic(name, 1) for name in ("t-1", "t.1", "t0", "tt", "s")]
    assert [each.topic for each in clean_up_cluster(deleted.log).deleted_topics] == ["t"]
    for each in others:
        each.refresh()
        assert len(list(deleted.store.list(layout.topic_folder(each.name, each.topic_id)))) > 0


def test_a_topic_created_while_the_folders_are_listed_is_left_unchanged(deleted):
    class Interrupted(TroubledStore):
        def folders(self, prefix):
            if prefix == layout.TOPICS and not made:
                made.append(StoredTopic(self.inner))
                made[0].fill(2)
            return self.inner.folders(prefix)

    made = []
    deleted.store = Interrupted(deleted.store)
    log = deleted.open()
    assert [each.topic_id for each in clean_up_cluster(log).deleted_topics] == [deleted.handle.topic_id]
    made[0].check()


def test_a_dry_run_returns_what_would_be_deleted_and_changes_nothing(deleted):
    before = contents(deleted.store)
    told = clean_up_cluster(deleted.log, dry_run=True)
    assert contents(deleted.store) == before
    assert told.deleted_topics == clean_up_cluster(deleted.log).deleted_topics
    assert clean_up_cluster(deleted.log, dry_run=True).deleted_topics == ()


def test_at_most_objects_max_objects_are_deleted_at_a_time(deleted):
    total = len(left_of(deleted)) - 1  # the last entry stays, its snapshot comes
    counts = []
    while done := clean_up_cluster(deleted.log, objects_max=5).deleted_topics:
        counts.append(done[0].objects)
    assert counts[0] == 5
    assert max(counts) == 5
    assert sum(counts) <= total
    assert left_of(deleted) == end_of(deleted)


def test_what_is_left_of_a_deleted_topic_costs_one_look(deleted):
    clean_up_cluster(deleted.log)
    deleted.store = TroubledStore(deleted.store)
    log = deleted.open()
    deleted.store.reads.clear()
    assert clean_up_cluster(log).deleted_topics == ()
    assert [key for key in deleted.store.reads if key.startswith(deleted.folder)] == []


# Who is still under way


def test_a_reader_that_planned_before_reads_on_until_the_delay_is_over(topic):
    split = split_of(topic.handle, Range("t", 0, 0, 18))
    delete(topic)
    topic.clock.now_ms = LATER_MS - 1
    clean_up_cluster(topic.log)
    values = [value for _, batch in fetch(topic.log.store_at, split) for value in batch.column("value").to_pylist()]
    assert values == topic.expected[0]
    topic.clock.now_ms = LATER_MS
    clean_up_cluster(topic.log)
    with pytest.raises(ObjectMissing):
        list(fetch(topic.log.store_at, split))
    with pytest.raises(UnknownTopic):
        list(fetch(topic.log.store_at, split, partial(find_again, topic.open(), split)))


def test_files_of_a_slow_writer_are_refused_and_deleted_by_the_next_run(deleted):
    other = deleted.open()
    clean_up_cluster(other)
    name = f"{layout.number(3)}-abc"
    deleted.store.create(deleted.handle.append_file(name), b"late")
    with pytest.raises(UnknownTopic, match="deleted"):
        deleted.handle.submit(CommitBatch(None, ()))
    [gone] = clean_up_cluster(other).deleted_topics
    assert (gone.objects, gone.bytes) == (1, 4)
    assert left_of(deleted) == end_of(deleted)


@pytest.mark.parametrize("slept_from", [1, 3, 9])
def test_a_suspended_writer_is_refused_although_its_slot_is_free_again(topic, slept_from):
    asleep = topic.open().topic("t")
    journal = asleep.journal
    journal._reset()
    while journal.number < slept_from:
        journal.take_next()
    delete(topic)
    topic.clock.now_ms = LATER_MS
    clean_up_cluster(topic.log)
    assert journal.entries.read(slept_from + 1) is None
    with pytest.raises(UnknownTopic, match="deleted"):
        asleep.refresh()


def test_an_entry_of_a_writer_that_slept_has_no_effect_and_is_deleted(topic):
    store = TroubledStore(topic.store)
    topic.store, plain = store, topic.store
    sleeper = topic.open().topic("t")
    file = topic.stage({0: [b"late"]})

    def meanwhile():
        topic.fill(1)
        delete(topic)
        topic.clock.now_ms = LATER_MS
        clean_up_cluster(topic.log)

    store.be_slow(f"{topic.folder}journal/entries/", meanwhile)
    topic.store = plain
    with pytest.raises(UnknownTopic, match="deleted"):
        sleeper.submit(CommitBatch(None, (file,)))
    assert len(left_of(topic)) == len(end_of(topic)) + 2
    assert clean_up_cluster(topic.log).deleted_topics[0].objects == 2
    assert left_of(topic) == end_of(topic)


def test_a_process_that_missed_the_deletion_does_not_begin_the_topic_again(topic):
    stale = topic.open()
    stale.topics()
    record = stale.cluster.state.topics["t"]
    delete(topic)
    topic.clock.now_ms = LATER_MS
    clean_up_cluster(topic.log)
    with pytest.raises(UnknownTopic, match="deleted"):
        stale._handle(record).refresh()
    assert left_of(topic) == end_of(topic)
