"""Upkeep of a cluster: the bytes of deleted topics go, after the delay, and nothing else does."""

import os
import threading
from functools import partial

import pytest

from pyspark_log.client.read.fetch import fetch
from pyspark_log.client.read.planning import Range, find_again, split_of
from pyspark_log_coordinator.journal import journal as journal_module
from pyspark_log_coordinator.journal import snapshot
from pyspark_log_coordinator.maintenance import cluster_cleanup
from pyspark_log_coordinator.maintenance.cluster_cleanup import clean_up_cluster
from pyspark_log_coordinator.topic.machine import CommitBatch
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, ObjectMissing, StoreUnavailable, UnknownTopic
from pyspark_log_storage.local import LocalStore
from pyspark_log_storage.memory import MemoryStore
from tests.coordinator.spares import lose_both, replace_both
from tests.coordinator.stored_topic import StoredTopic
from tests.coordinator.troubled_store import TroubledStore

DELAY_MS = 60_000
DELETED_MS = 1_000_000
LATER_MS = DELETED_MS + DELAY_MS
LEFT = "f" * 32
"""What a store calls a temporary file."""


def filled(store=None, **settings):
    """A topic with segments, unrolled chunks, released files, a snapshot and manifests."""
    topic = StoredTopic(store, partitions=2, **settings)
    topic.fill(4, partitions=(0, 1))
    topic.roll(2, partition=0)
    topic.roll(2, partition=0)
    topic.merge(partition=0)
    topic.fill(2, partitions=(0, 1))
    return topic


def delete(topic):
    """Delete the topic at a time of its own."""
    topic.clock.now_ms = DELETED_MS
    topic.log.delete_topic("t")


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


def contents(store):
    return {key: store.read(key) for key in store.list("")}


def end_of(topic):
    """Return the keys of what stays of a deleted topic for ever."""
    return sorted(topic.handle.journal.end_keys())


def left_of(topic):
    return list(topic.store.list(topic.folder))


# What goes, and when


def test_the_bytes_of_a_deleted_topic_go_when_the_delay_is_over(topic):
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


def test_what_stays_for_ever_does_not_grow_with_what_the_topic_held():
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


def test_a_topic_that_is_there_is_left_alone(topic):
    before = contents(topic.store)
    topic.clock.now_ms = LATER_MS
    assert clean_up_cluster(topic.log).deleted_topics == ()
    assert contents(topic.store) == before


def test_a_topic_that_was_made_again_under_the_name_is_untouched(deleted):
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


def test_several_lives_of_a_name_go_each_at_its_time(topic):
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


def test_topics_whose_names_begin_alike_are_told_apart(deleted):
    others = [deleted.log.create_topic(name, 1) for name in ("t-1", "t.1", "t0", "tt", "s")]
    assert [each.topic for each in clean_up_cluster(deleted.log).deleted_topics] == ["t"]
    for each in others:
        each.refresh()
        assert len(list(deleted.store.list(layout.topic_folder(each.name, each.topic_id)))) > 0


def test_a_topic_that_is_made_while_the_folders_are_listed_is_untouched(deleted):
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


def test_a_dry_run_tells_what_would_go_and_changes_nothing(deleted):
    before = contents(deleted.store)
    told = clean_up_cluster(deleted.log, dry_run=True)
    assert contents(deleted.store) == before
    assert told.deleted_topics == clean_up_cluster(deleted.log).deleted_topics
    assert clean_up_cluster(deleted.log, dry_run=True).deleted_topics == ()


def test_no_more_than_so_many_objects_go_at_a_time(deleted):
    total = len(left_of(deleted)) - 1  # the last entry stays, its snapshot comes
    counts = []
    while done := clean_up_cluster(deleted.log, objects_max=5).deleted_topics:
        counts.append(done[0].objects)
    assert counts[0] == 5
    assert max(counts) == 5
    assert sum(counts) <= total
    assert left_of(deleted) == end_of(deleted)


def test_what_is_left_of_topics_long_deleted_costs_one_look_each(deleted):
    clean_up_cluster(deleted.log)
    deleted.store = TroubledStore(deleted.store)
    log = deleted.open()
    deleted.store.reads.clear()
    assert clean_up_cluster(log).deleted_topics == ()
    assert [key for key in deleted.store.reads if key.startswith(deleted.folder)] == []


# Who is still under way


def test_a_reader_that_planned_before_reads_on_until_the_delay_is_over(topic):
    split = split_of(topic.log, topic.handle, Range("t", 0, 0, 18))
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


def test_what_a_slow_writer_adds_is_refused_and_goes_the_next_time(deleted):
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
def test_a_writer_that_slept_is_refused_although_its_slot_is_free_again(topic, slept_from):
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


def test_an_entry_that_a_sleeper_writes_into_a_free_slot_counts_for_nothing_and_goes(topic):
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


def test_a_process_that_still_believes_in_the_topic_does_not_begin_it_again(topic):
    stale = topic.open()
    stale.topics()
    record = stale.cluster.state.topics["t"]
    delete(topic)
    topic.clock.now_ms = LATER_MS
    clean_up_cluster(topic.log)
    with pytest.raises(UnknownTopic, match="deleted"):
        stale._handle(record).refresh()
    assert left_of(topic) == end_of(topic)


# What goes wrong


class DyingStore(MemoryStore):
    """Ends its process at one of its operations that change something."""

    def __init__(self):
        super().__init__("the url")
        self.deletions_left = 10**9

    def live(self, key):
        self.deletions_left -= 1
        if self.deletions_left < 0:
            raise StoreUnavailable(self.url, key, "the process has ended")

    def create(self, key, data):
        self.live(key)
        return super().create(key, data)

    def delete(self, key):
        self.live(key)
        super().delete(key)


def test_wherever_it_is_cut_short_the_next_one_goes_on(monkeypatch):
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 4)
    for step in range(200):
        store = DyingStore()
        topic = filled(store)
        delete(topic)
        topic.clock.now_ms = LATER_MS
        store.deletions_left = step
        try:
            clean_up_cluster(topic.log)
        except StoreUnavailable:
            cut = True
        else:
            cut = False
        store.deletions_left = 10**9
        other = topic.open()
        with pytest.raises(UnknownTopic):
            other.topic("t")
        assert topic.open()._handle(topic.log._handles["t"]._record).journal.refresh().deleted
        clean_up_cluster(other)
        assert left_of(topic) == end_of(topic)
        if not cut:
            return
    raise AssertionError("it takes more steps than were tried")


def test_a_cluster_that_has_forgotten_a_topic_removes_nothing_of_it(topic):
    """Its own journal was restored from an old backup."""
    newest = topic.log.cluster.number
    lose_both(topic.store, f"cluster/entries/{layout.number(newest)}")
    before = contents(topic.store)
    log = topic.open()
    assert log.topics() == {}
    topic.clock.now_ms = 10**12
    assert clean_up_cluster(log).deleted_topics == ()
    assert contents(topic.store) == before


def test_a_topic_whose_name_has_not_gone_yet_is_left_alone(topic):
    topic.handle.submit(cluster_cleanup.topic.DeleteTopic())
    topic.clock.now_ms = LATER_MS
    before = contents(topic.store)
    assert clean_up_cluster(topic.log).deleted_topics == ()
    assert contents(topic.store) == before


def test_a_deleted_topic_that_cannot_be_read_is_told_and_the_others_go_on(deleted):
    for name in ("a", "z"):
        deleted.log.create_topic(name, 1)
        deleted.log.delete_topic(name)
    deleted.clock.now_ms += DELAY_MS
    entry = min(deleted.handle.journal.end_keys())
    replace_both(deleted.store, entry, deleted.store.read(entry)[:-1])
    told = []
    done = clean_up_cluster(deleted.log, failed=lambda folder, error: told.append((folder, error)))
    assert [each.topic for each in done.deleted_topics] == ["a", "z"]
    [(folder, error)] = told
    assert folder == deleted.folder
    assert isinstance(error, CorruptObject)
    assert entry in error.message
    with pytest.raises(CorruptObject, match=entry):
        clean_up_cluster(deleted.log)


def test_many_at_once_leave_what_one_leaves(tmp_path):
    topic = filled(LocalStore(str(tmp_path / "root")))
    delete(topic)
    topic.clock.now_ms = LATER_MS
    logs, errors = [topic.open() for _ in range(6)], []

    def work(log):
        try:
            clean_up_cluster(log)
        except Exception as error:  # noqa: BLE001 -- told by the test
            errors.append(error)

    threads = [threading.Thread(target=work, args=(log,)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert left_of(topic) == end_of(topic)


def test_empty_folders_of_a_deleted_topic_go(tmp_path):
    topic = filled(LocalStore(str(tmp_path)))
    delete(topic)
    topic.clock.now_ms = LATER_MS
    clean_up_cluster(topic.log)
    folder = tmp_path / topic.folder
    end = {tmp_path / key for key in topic.handle.journal.end_keys()}
    folders = {each.parent for each in end} | {folder / "journal", folder / "journal/spares"}
    assert set(folder.rglob("*")) == end | folders


def test_empty_folders_that_an_earlier_upkeep_left_go(tmp_path):
    topic = filled(LocalStore(str(tmp_path)))
    delete(topic)
    topic.clock.now_ms = LATER_MS
    clean_up_cluster(topic.log)
    left = tmp_path / topic.folder / "0"
    left.mkdir()
    clean_up_cluster(topic.log, dry_run=True)
    assert left.exists()
    clean_up_cluster(topic.log)
    assert not left.exists()


def test_a_topic_that_was_made_again_keeps_its_empty_folders(tmp_path):
    topic = filled(LocalStore(str(tmp_path)))
    delete(topic)
    again = topic.log.create_topic("t", 1)
    topic.clock.now_ms = LATER_MS
    empty = tmp_path / layout.topic_folder("t", again.topic_id) / "append"
    empty.mkdir(parents=True, exist_ok=True)
    clean_up_cluster(topic.log)
    clean_up_cluster(topic.log)
    assert empty.exists()


def test_strange_files_among_the_topics_are_left_alone(deleted):
    strange = [f"{layout.TOPICS}{name}" for name in (".nfs1", "t/notes.txt", "backup/2024/rows.csv")]
    for key in strange:
        deleted.store.create(key, b"mine")
    assert [each.topic for each in clean_up_cluster(deleted.log).deleted_topics] == ["t"]
    assert set(strange) <= set(deleted.store.list(""))


# The rest of a cluster's upkeep


def test_the_clusters_own_journal_is_trimmed(monkeypatch):
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 4)
    monkeypatch.setattr(journal_module, "SNAPSHOTS_KEPT", 1)
    topic = StoredTopic()
    for number in range(10):
        topic.log.create_topic(f"topic-{number}", 1)
    before = len(list(topic.store.list("cluster/")))
    done = clean_up_cluster(topic.log)
    assert done.trimmed == before - len(list(topic.store.list("cluster/"))) > 0
    assert len(topic.open().topics()) == 11


def test_what_killed_writers_left_is_swept(tmp_path):
    topic = StoredTopic(LocalStore(str(tmp_path / "root")))
    left = tmp_path / "root" / ".tmp" / LEFT
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    assert clean_up_cluster(topic.log, dry_run=True).temporary_files == (f".tmp/{LEFT}",)
    assert left.exists()
    assert clean_up_cluster(topic.log).temporary_files == (f".tmp/{LEFT}",)
    assert not left.exists()
