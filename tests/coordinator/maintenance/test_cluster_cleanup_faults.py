"""Cleaning up a cluster while processes end, topics cannot be read and several do it at once."""

import os
import threading

import pytest

from pyspark_log_coordinator.journal import journal as journal_module
from pyspark_log_coordinator.journal import trimming
from pyspark_log_coordinator.maintenance import cluster_cleanup
from pyspark_log_coordinator.maintenance.cluster_cleanup import clean_up_cluster
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, StoreUnavailable, UnknownTopic
from pyspark_log_storage.stores.faults import Fault
from pyspark_log_storage.stores.local import LocalStore
from tests.support.coordinator.deleted_topics import DELAY_MS, LATER_MS, contents, delete, end_of, filled, left_of
from tests.support.coordinator.replicated_topic import ALL
from tests.support.coordinator.rolled_nodes import breakable
from tests.support.coordinator.spares import lose_both, replace_both
from tests.support.coordinator.stored_topic import StoredTopic
from tests.support.countdown import Countdown

LEFT = "f" * 32
"""The name of a temporary file."""


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


# What goes wrong


@pytest.mark.no_faults("makes faults of its own, at every call in turn")
def test_an_interrupted_cleanup_is_finished_by_the_next(monkeypatch):
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 4)
    for step in range(200):
        ended = Countdown(Fault.UNAVAILABLE)
        topic = filled(ended.store())
        delete(topic)
        topic.clock.now_ms = LATER_MS
        ended.left = step
        try:
            clean_up_cluster(topic.log)
        except StoreUnavailable:
            cut = True
        else:
            cut = False
        ended.left = None
        other = topic.open()
        with pytest.raises(UnknownTopic):
            other.topic("t")
        assert topic.open()._handle(topic.log._handles["t"]._record).journal.refresh().deleted
        clean_up_cluster(other)
        assert left_of(topic) == end_of(topic)
        if not cut:
            return
    raise AssertionError("it takes more steps than were tried")


def test_a_cluster_that_does_not_know_an_existing_topic_deletes_nothing_of_it(topic):
    """Its own journal was restored from an old backup."""
    newest = topic.log.cluster.number
    lose_both(topic.store, f"cluster/entries/{layout.number(newest)}")
    before = contents(topic.store)
    log = topic.open()
    assert log.topics() == {}
    topic.clock.now_ms = 10**12
    assert clean_up_cluster(log).deleted_topics == ()
    assert contents(topic.store) == before


def test_a_topic_whose_name_is_not_free_yet_is_left_unchanged(topic):
    topic.handle.submit(cluster_cleanup.topic.DeleteTopic())
    topic.clock.now_ms = LATER_MS
    before = contents(topic.store)
    assert clean_up_cluster(topic.log).deleted_topics == ()
    assert contents(topic.store) == before


@pytest.mark.no_faults("names the store that fails")
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


def test_a_deleted_topic_that_cannot_be_read_is_reported_and_the_others_go_on(deleted):
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
    # Another process may delete the folder, which is empty, in which one creates a spare; its error is ignored.
    assert left_of(topic) in (end_of(topic), [key for key in end_of(topic) if "/spares/snapshots/" not in key])


def test_empty_folders_of_a_deleted_topic_are_deleted(tmp_path):
    topic = filled(LocalStore(str(tmp_path)))
    delete(topic)
    topic.clock.now_ms = LATER_MS
    clean_up_cluster(topic.log)
    folder = tmp_path / topic.folder
    end = {tmp_path / key for key in topic.handle.journal.end_keys()}
    folders = {each.parent for each in end} | {folder / "journal", folder / "journal/spares"}
    assert set(folder.rglob("*")) == end | folders


def test_empty_folders_left_by_an_earlier_cleanup_are_deleted(tmp_path):
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


def test_a_topic_created_again_keeps_its_empty_folders(tmp_path):
    topic = filled(LocalStore(str(tmp_path)))
    delete(topic)
    again = topic.log.create_topic("t", 1)
    topic.clock.now_ms = LATER_MS
    empty = tmp_path / layout.topic_folder("t", again.topic_id) / "append"
    empty.mkdir(parents=True, exist_ok=True)
    clean_up_cluster(topic.log)
    clean_up_cluster(topic.log)
    assert empty.exists()


def test_foreign_files_among_the_topics_stay(deleted):
    strange = [f"{layout.TOPICS}{name}" for name in (".nfs1", "t/notes.txt", "backup/2024/rows.csv")]
    for key in strange:
        deleted.store.create(key, b"mine")
    assert [each.topic for each in clean_up_cluster(deleted.log).deleted_topics] == ["t"]
    assert set(strange) <= set(deleted.store.list(""))


# The rest of a cluster's upkeep


def test_the_clusters_own_journal_is_trimmed(monkeypatch):
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 4)
    monkeypatch.setattr(trimming, "SNAPSHOTS_KEPT", 1)
    topic = StoredTopic()
    for number in range(10):
        topic.log.create_topic(f"topic-{number}", 1)
    before = len(list(topic.store.list("cluster/")))
    done = clean_up_cluster(topic.log)
    assert done.trimmed == before - len(list(topic.store.list("cluster/"))) > 0
    assert len(topic.open().topics()) == 11


def test_temporary_files_of_killed_writers_are_deleted(tmp_path):
    topic = StoredTopic(LocalStore(str(tmp_path / "root")))
    left = tmp_path / "root" / ".tmp" / LEFT
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    assert clean_up_cluster(topic.log, dry_run=True).temporary_files == (f".tmp/{LEFT}",)
    assert left.exists()
    assert clean_up_cluster(topic.log).temporary_files == (f".tmp/{LEFT}",)
    assert not left.exists()
