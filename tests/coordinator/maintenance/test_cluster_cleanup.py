"""Cleaning up a cluster: the bytes of deleted topics are deleted after the delay, and nothing else is."""

import pytest

from pyspark_log_coordinator.cluster.nodes import FenceNode, UnfenceNode
from pyspark_log_coordinator.journal import journal as journal_module
from pyspark_log_coordinator.maintenance.cluster_cleanup import clean_up_cluster
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, StoreUnavailable
from pyspark_log_storage.stores.local import LocalStore
from tests.support.coordinator.journal_end import end_keys
from tests.support.coordinator.replicated_topic import ALL
from tests.support.coordinator.rolled_nodes import breakable
from tests.support.coordinator.stored_topic import StoredTopic
from tests.support.counted_bucket import CountedBucket

DAY_MS = 24 * 3_600_000
DELAY_MS = 60_000
DELETED_MS = 1_000_000
LATER_MS = DELETED_MS + DELAY_MS


def filled(store=None, **settings):
    """A topic with segments, unrolled chunks, released files and a snapshot."""
    topic = StoredTopic(store, partitions=2, **settings)
    topic.fill(4, partitions=(0, 1))
    topic.roll(2, partition=0)
    topic.roll(2, partition=0)
    topic.merge(partition=0)
    topic.fill(2, partitions=(0, 1))
    return topic


def contents(store):
    return {key: store.read(key) for key in store.list("")}


def end_of(topic):
    """Return the keys of what stays of a deleted topic forever."""
    return sorted(end_keys(topic.handle.journal))


def left_of(topic):
    return list(topic.store.list(topic.folder))


@pytest.fixture
def topic(monkeypatch):
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 4)
    return filled()


def delete(topic, now_ms=LATER_MS):
    """Delete the topic, and let time pass: until the delay is over, unless the test says otherwise."""
    topic.clock.now_ms = DELETED_MS
    topic.log.delete_topic("t")
    topic.clock.now_ms = now_ms


@pytest.fixture
def deleted(topic):
    """The topic, deleted, and the delay over."""
    delete(topic)
    return topic


def cleaned_up(log, **how):
    return [each.topic_id for each in clean_up_cluster(log, **how).deleted_topics]


# What is deleted, and when


@pytest.mark.parametrize("delay_ms", [DELAY_MS, 5000])
def test_the_files_of_a_deleted_topic_are_deleted_after_its_delay(monkeypatch, delay_ms):
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 4)
    topic = filled(file_delete_delay_ms=str(delay_ms))
    topic.clock.now_ms = LATER_MS
    assert cleaned_up(topic.log) == []
    delete(topic, DELETED_MS + delay_ms - 1)
    before = contents(topic.store)
    assert cleaned_up(topic.log) == []
    assert contents(topic.store) == before
    topic.clock.now_ms += 1
    told = clean_up_cluster(topic.log, dry_run=True).deleted_topics
    assert contents(topic.store) == before
    [gone] = clean_up_cluster(topic.log).deleted_topics
    assert left_of(topic) == end_of(topic)
    lost = {key: data for key, data in before.items() if key not in contents(topic.store)}
    assert told == (gone,)
    assert (gone.topic, gone.topic_id) == ("t", topic.handle.topic_id)
    assert (gone.objects, gone.bytes) == (len(lost), sum(map(len, lost.values())))
    assert all(key.startswith(topic.folder) for key in lost)
    assert cleaned_up(topic.log, dry_run=True) == []


def test_topics_created_again_and_those_with_similar_names_are_left_unchanged(deleted):
    again = StoredTopic(deleted.store)
    again.clock.now_ms = LATER_MS
    again.fill(3)
    again.roll()
    others = [again.handle, *(again.log.create_topic(name, 1) for name in ("t-1", "t.1", "t0", "tt", "s"))]
    folders = tuple(layout.topic_folder(each.name, each.topic_id) for each in others)
    before = {key: data for key, data in contents(again.store).items() if key.startswith(folders)}
    assert cleaned_up(again.log) == [deleted.handle.topic_id]
    assert {key: data for key, data in contents(again.store).items() if key.startswith(folders)} == before
    again.fill(1)
    again.check()
    assert left_of(deleted) == end_of(deleted)


def test_at_most_objects_max_objects_are_deleted_at_a_time(deleted):
    total = len(left_of(deleted)) - 1  # the last entry stays, its snapshot comes
    counts = []
    while done := clean_up_cluster(deleted.log, objects_max=5).deleted_topics:
        counts.append(done[0].objects)
    assert (counts[0], max(counts)) == (5, 5)
    assert sum(counts) <= total
    assert left_of(deleted) == end_of(deleted)


def test_empty_folders_are_deleted_except_those_of_a_topic_created_again(tmp_path):
    topic = filled(LocalStore(str(tmp_path)))
    delete(topic)
    again = topic.log.create_topic("t", 1)
    empty = tmp_path / layout.topic_folder("t", again.topic_id) / "append"
    empty.mkdir(parents=True, exist_ok=True)
    folder = tmp_path / topic.folder
    end = {tmp_path / key for key in end_keys(topic.handle.journal)}
    folders = {each.parent for each in end} | {folder / "journal"}
    clean_up_cluster(topic.log)
    assert set(folder.rglob("*")) == end | folders
    (folder / "0").mkdir()  # as an earlier cleanup leaves it
    clean_up_cluster(topic.log, dry_run=True)
    assert (folder / "0").exists()
    clean_up_cluster(topic.log)
    assert not (folder / "0").exists()
    assert empty.exists()


@pytest.mark.parametrize("generations", [1, 3])
def test_a_cleanup_costs_the_same_after_one_deleted_topic_and_after_fifty(generations):
    def requests(deleted, present):
        topic = StoredTopic(bucket := CountedBucket())
        for name in [f"u{n}" for n in range(deleted)] * generations:
            topic.log.create_topic(name, 1)
            topic.log.delete_topic(name)
        for number in range(present):
            topic.log.create_topic(f"v{number}", 1)
        topic.clock.now_ms = DAY_MS
        for _ in range(2):
            clean_up_cluster(topic.log)
        assert topic.open().cluster.state.deletions == {}
        bucket.requests.clear()
        clean_up_cluster(topic.log)
        return bucket.requests

    assert requests(1, 0) == requests(50, 20)


def test_a_deletion_is_unfinished_as_long_as_a_writer_may_be_slow(deleted):
    for now_ms, unfinished in ((DELETED_MS + DAY_MS - 1, {deleted.handle.topic_id: "t"}), (DELETED_MS + DAY_MS, {})):
        deleted.clock.now_ms = now_ms
        clean_up_cluster(deleted.log, dry_run=True)
        assert deleted.open().cluster.state.deletions == {deleted.handle.topic_id: "t"}
        for _ in range(2):
            clean_up_cluster(deleted.log)
        assert deleted.open().cluster.state.deletions == unfinished


def test_a_deletion_is_unfinished_until_every_store_was_looked_at():
    topic = breakable(file_delete_delay_ms="0", orphan_retention_ms="0")
    topic.append(on=ALL, acks="all")
    topic.log.delete_topic("t")
    clean_up_cluster(topic.log)

    def is_finished():
        clean_up_cluster(topic.log, failed=lambda *_: None)
        return topic.log.cluster.refresh().deletions == {}

    topic.stores.at["/disk/1"].broken = StoreUnavailable
    assert not is_finished(), "a store fails"
    topic.log.probe_nodes()
    assert topic.log.missing_nodes.keys() == {"1"}
    assert not is_finished(), "a node is missing"
    topic.stores.at["/disk/1"].broken = None
    topic.log.cluster.submit(FenceNode("1"))
    topic.log.probe_nodes()
    assert not is_finished(), "a node is fenced"
    topic.log.cluster.submit(UnfenceNode("1"))
    assert is_finished()


def test_what_comes_after_a_deletion_was_finished_is_found_by_a_thorough_cleanup(deleted):
    for _ in range(2):
        deleted.clock.now_ms += DAY_MS
        clean_up_cluster(deleted.log)
    deleted.store.create(deleted.handle.append_file(f"{layout.number(3)}-abc"), b"late")
    assert cleaned_up(deleted.log) == []
    assert cleaned_up(deleted.log, thorough=True) == [deleted.handle.topic_id]
    assert left_of(deleted) == end_of(deleted)


# What fails


def test_a_cluster_that_does_not_know_an_existing_topic_deletes_nothing_of_it(topic):
    """Its own journal was restored from an old backup."""
    newest = topic.log.cluster.number
    topic.store.delete(f"cluster/entries/{layout.number(newest)}")
    before = contents(topic.store)
    log = topic.open()
    assert log.topics() == {}
    topic.clock.now_ms = 10**12
    assert cleaned_up(log) == []
    assert contents(topic.store) == before


def test_a_store_that_fails_is_an_error_after_the_others_were_cleaned_up():
    topic = breakable(file_delete_delay_ms="0")
    topic.append(on=ALL, acks="all")
    topic.log.delete_topic("t")
    topic.stores.at["/disk/1"].broken = StoreUnavailable
    with pytest.raises(StoreUnavailable, match="/disk/1 was taken away"):
        clean_up_cluster(topic.log)
    assert (topic.keys("0"), topic.keys("2")) == ([], [])
    told = []
    clean_up_cluster(topic.log, failed=lambda url, _: told.append(url))
    assert told == ["/disk/1"]
    topic.stores.at["/disk/1"].broken = None
    assert len(cleaned_up(topic.log)) == 1
    assert (topic.keys("1"), cleaned_up(topic.log)) == ([], [])


def test_a_deleted_topic_that_cannot_be_read_is_reported_and_the_others_go_on(deleted):
    for name in ("a", "z"):
        deleted.log.create_topic(name, 1)
        deleted.log.delete_topic(name)
    deleted.clock.now_ms += DELAY_MS
    entry = min(end_keys(deleted.handle.journal))
    deleted.store.put(entry, deleted.store.read(entry)[:-1])
    told = []
    done = clean_up_cluster(deleted.log, failed=lambda folder, error: told.append((folder, error)))
    assert [each.topic for each in done.deleted_topics] == ["a", "z"]
    [(folder, error)] = told
    assert folder == deleted.folder
    assert isinstance(error, CorruptObject)
    assert entry in error.message
    with pytest.raises(CorruptObject, match=entry):
        clean_up_cluster(deleted.log)
