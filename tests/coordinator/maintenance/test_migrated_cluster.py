"""Processes, rebuilds and clean-up after a cluster's journals were migrated."""

import threading

import msgspec
import pytest

from pyspark_log_coordinator.cluster.machine import StartJournalMigration
from pyspark_log_coordinator.journal import journal_nodes
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.maintenance import cluster_cleanup
from pyspark_log_coordinator.rebuild import execute
from pyspark_log_coordinator.rebuild.survey import survey
from pyspark_log_coordinator.topic.machine import AlterConfig, MoveJournal
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    InvalidOption,
    StoreError,
    StoreUnavailable,
    UnknownTopic,
)
from pyspark_log_storage.stores import addresses, store_threads
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.journal_disks import URLS, patient
from tests.support.coordinator.migrated_journals import NEW, assert_whole, cluster_of_six, finish, move, write, written
from tests.support.coordinator.several_nodes import one_after_another
from tests.support.elsewhere import PlainStore

CALLS_SECONDS_MAX = 20
"""How long a call hangs at most."""


@pytest.fixture
def six():
    """A cluster of six nodes with two topics, and one that was deleted; its journals are on the first three."""
    return cluster_of_six()


# Who slept


def test_a_suspended_process_continues_at_the_new_journal_nodes(six):
    slept = [six.log() for _ in range(3)]
    for log in slept:
        log.topic("t")
    move(six, "3", "4", "5")
    write(six.log(), "t", 2)
    handles = [log._handles["t"] for log in slept]
    assert handles[0].refresh().config.retention_ms == 2
    assert handles[1].submit(AlterConfig({"retention.ms": "3"})).state.config.retention_ms == 3
    slept[2].create_topic("new", 1)
    assert written(six.log("/disk/5"), "t") == 3
    assert "new" in six.log("/disk/5").topics()


@pytest.mark.parametrize("also", [(), ("3", "4", "0")], ids=["one move", "two moves"])
def test_a_suspended_process_finds_the_journals_after_the_stores_it_knew_are_gone(six, also):
    log = Log([six.open(URLS[0])], fake_environment(), open_node=six.open, probe=one_after_another)
    log.open(create=False)
    handle = log.topic("t")
    move(six, "3", "4", "5")
    if also:
        move(six, *also)
    write(six.log(*NEW), "t", 2)
    for url in URLS:
        for key in list(six.at[url].list("")):
            if key == layout.MARKER or key.startswith(("topics/", "cluster/entries", "cluster/snapshots")):
                six.at[url].delete(key)
    assert handle.refresh().config.retention_ms == 2
    assert written(log, "t") == 2


def test_a_former_journal_node_that_hangs_does_not_delay_a_process_that_knows_others(six, monkeypatch):
    monkeypatch.setattr(journal_nodes, "PATIENCE_SECONDS", 0.1)
    move(six, "3", "4", "5")
    hanging, release, ended = six.open(URLS[0]), threading.Event(), []

    def hang(*_):
        ended.append(release.wait(CALLS_SECONDS_MAX))
        raise StoreUnavailable(URLS[0], "", "it was away")

    hanging.read = hang
    log = Log([hanging, *map(six.open, URLS[1:])], fake_environment(), open_node=six.open)
    log.locate()
    assert log.journals.nodes.urls == NEW
    assert ended == []
    release.set()


def test_no_folder_is_looked_at_to_find_out_that_an_address_is_in_a_former_list(six, monkeypatch):
    """That of a new journal node whose file server is down would hang."""
    move(six, "3", "4", "5")
    looked = []
    monkeypatch.setattr(addresses.os.path, "samefile", lambda *paths: looked.append(paths) or False)
    assert six.log(*URLS).journals.nodes.urls == NEW
    assert looked == []


def test_a_handle_is_replaced_after_a_migration_without_a_look_at_the_others(six):
    log = six.log()
    topics = [log.topic(name) for name in ("t", "u")]
    handles = log._handles
    move(six, "3", "4", "5")
    assert all(log.topic(each.name) is not each for each in topics)
    assert log._handles is handles


def test_the_first_entry_of_a_generation_makes_no_process_the_leader(six):
    logs = [six.log(), six.log()]
    handles = [log.topic("t") for log in logs]
    log = six.log()
    log.cluster.submit(StartJournalMigration(("0", "3", "4"), log.journals.nodes.nodes))
    number = handles[0].submit(MoveJournal(2)).number
    for handle in handles:
        handle.refresh()
        assert handle.journal.place.generation == 2
        assert not handle.journal.entries.leads(number + 1)
    assert handles[0].submit(AlterConfig({"retention.ms": "5"})).number == number + 1
    assert handles[0].journal.entries.leads(number + 2)
    finish(six, 5)


def test_a_suspended_process_that_finds_none_of_the_stores_raises_an_error(six):
    log = six.log()
    handle = log.topic("t")
    move(six, "3", "4", "5")
    six.away = {*URLS, *NEW}
    with pytest.raises(StoreError):
        handle.refresh()
    six.away = set(URLS)
    with pytest.raises(StoreError):
        six.log(*URLS)


def test_a_process_does_not_follow_the_list_of_another_cluster_that_uses_a_disk_now(six):
    log = six.log()
    other = msgspec.structs.replace(six.found("/other/a", "/other/b", "/other/c"), generation=5)
    journal_nodes.replace(other, six.open(URLS[0]))
    six.away = set(URLS[1:])
    with pytest.raises(StoreError):
        log.cluster.refresh()
    assert log.journals.nodes.urls == URLS


def test_a_suspended_process_cannot_use_a_topic_that_was_deleted(six):
    slept = six.log()
    handle = slept.topic("u")
    six.log().delete_topic("u")
    move(six, "0", "3", "4")
    move(six, "3", "4", "5")
    cluster_cleanup.clean_up_cluster(later(six))
    cluster_cleanup.clean_up_cluster(later(six))
    six.away = {"/disk/a"}
    with pytest.raises(UnknownTopic):
        handle.submit(AlterConfig({"retention.ms": "3"}))
    with pytest.raises(UnknownTopic):
        handle.refresh()


# When all journals are lost after a move


def forget_where_they_went(disks, *urls):
    """Let nodes say where the journals were at first, as those do that were away when they moved."""
    for url in urls:
        for key in list(disks.at[url].list("")):
            if key.startswith(f"{layout.JOURNAL_NODES}."):
                disks.at[url].delete(key)


def test_a_cluster_whose_journals_went_on_from_stores_that_do_not_know_it_is_not_rebuilt(six):
    move(six, "3", "4", "5")
    forget_where_they_went(six, *URLS)
    with pytest.raises(InvalidOption, match="at /disk/3, /disk/4, /disk/5 can be read"):
        survey([six.open(url) for url in URLS], fake_environment(), open_node=six.open)


def test_a_cluster_whose_journals_move_is_not_rebuilt_before_they_have_begun_there(six):
    log = six.log()
    log.cluster.entries.propose(log.cluster.number + 1, moving_entry(log))
    with pytest.raises(InvalidOption, match="at /disk/a, /disk/b, /disk/c can be read"):
        survey([six.open(url) for url in (*URLS, *NEW)], fake_environment(), open_node=six.open)
    finish(six)


def moving_entry(log):
    """Return the entry with which the cluster's journal moves to the new stores."""
    present = log.journals.nodes.nodes
    return log.cluster._encode(log.cluster._decide(StartJournalMigration(("0", "3", "4"), present)))


@pytest.mark.parametrize("told", [True, False], ids=["told where they went", "not told"])
def test_the_remains_on_former_journal_nodes_do_not_prevent_a_rebuild(six, told):
    move(six, "3", "4", "5")
    for url in NEW:
        six.at[url] = PlainStore(url)
    if not told:
        forget_where_they_went(six, *URLS)
    found = survey([six.open(url) for url in URLS], fake_environment(), URLS, open_node=six.open)
    assert [each.folder.topic for each in found.topics] == ["t", "u"]


@pytest.mark.parametrize("left", [(), URLS[1:]], ids=["nothing is left", "there is something where they were before"])
def test_a_rebuilt_cluster_begins_where_no_store_says_it_was(six, left):
    log = six.log()
    move(six, "0", "3", "5", log=log)
    number = log.topic("t").journal.number
    for url in six.at.keys() - left:
        for key in list(six.at[url].list("")):
            if "/entries" in key or "/snapshots/" in key:
                six.at[url].delete(key)
    old = PlainStore("/disk/5")
    for key in six.at["/disk/5"].list(""):
        old.put(key, six.at["/disk/5"].read(key))
    journal_nodes.write(log.journals.nodes, old)
    forget_where_they_went(six, *left)
    stores = [six.open(url) for url in (*URLS, "/disk/3", "/disk/4")]
    found = survey(stores, fake_environment(), URLS, open_node=six.open)
    execute.rebuild(found, fake_environment(), journals_are_lost=True)
    six.at["/disk/5"] = old
    for urls in (URLS, (*URLS, "/disk/5")):
        rebuilt = six.log(*urls)
        assert rebuilt.journals.nodes.generation == rebuilt.cluster.state.journals.generation == 3
        assert rebuilt.journals.nodes.urls == URLS
        rebuilt.create_topic(f"new{len(urls)}", 1)
    assert rebuilt.cluster.number > number
    assert move(six, "2", "3", "4").nodes.generation == 4


# Upkeep


def later(disks, *urls):
    log = Log([disks.open(url) for url in urls or NEW], patient(), open_node=disks.open, probe=one_after_another)
    log.open(create=False)
    return log


@pytest.mark.parametrize("cleaned_up_before", [False, True])
def test_the_files_of_a_deleted_topic_are_deleted_after_a_migration_too(six, cleaned_up_before):
    log = later(six, *URLS)
    [(name, topic_id)] = cluster_cleanup.deleted_topics(log)
    folder = layout.topic_folder(name, topic_id)
    if cleaned_up_before:
        cluster_cleanup.clean_up_cluster(log)
    for store in six.at.values():
        store.create(f"{folder}append/{layout.born_name(0, 'x')}", b"bytes")
    move(six, "0", "3", "4")
    for _ in range(2):
        cluster_cleanup.clean_up_cluster(later(six, *URLS))
    journal = cluster_cleanup.journal_of(later(six, *URLS), name, topic_id)
    assert journal.refresh().deleted
    for store in six.at.values():
        assert set(store.list(folder)) <= set(journal.end_keys())
    assert cluster_cleanup.clean_up_cluster(later(six, *URLS)).deleted_topics == ()


def test_cleaning_up_a_deleted_topic_during_its_migration_keeps_the_new_objects(six, monkeypatch):
    log = later(six, *URLS)
    end = cluster_cleanup.journal_of(log, *cluster_cleanup.deleted_topics(log)[0])
    real = type(end).end_keys

    def end_keys(journal):
        found = real(journal)
        monkeypatch.setattr(type(end), "end_keys", real)
        move(six, "0", "3", "4")
        return found

    monkeypatch.setattr(type(end), "end_keys", end_keys)
    cluster_cleanup.clean_up_cluster(log)
    moved = later(six, "/disk/3")
    assert moved.journals.nodes.generation == 2
    [life] = cluster_cleanup.deleted_topics(moved)
    assert cluster_cleanup.journal_of(moved, *life).refresh().deleted


def test_the_next_cleanup_announces_the_journal_nodes_to_one_that_was_unreachable(six):
    move(six, "0", "3", "4")
    for key in list(six.at["/disk/4"].list(layout.CLUSTER_JOURNAL, "cluster/j")):
        if key.startswith(layout.JOURNAL_NODES):
            six.at["/disk/4"].delete(key)
    assert list(six.log().journals.missing_nodes()) == ["4"]
    cluster_cleanup.clean_up_cluster(six.log())
    assert six.log().journals.missing_nodes() == {}
    assert six.log("/disk/4").journals.nodes.generation == 2


def test_a_journal_node_that_was_wiped_before_the_migration_is_no_copy(six):
    wiped = [key for key in six.at[URLS[1]].list("") if key != "node"]
    for key in wiped:
        six.at[URLS[1]].delete(key)
    move(six, "0", "3", "4")
    assert any(key.startswith(layout.JOURNAL_NODES) for key in six.at[URLS[1]].list(layout.CLUSTER_JOURNAL))
    log = six.log(*URLS)
    assert log.journals.refusal == ""
    write(log, "t", 2)
    assert_whole(six, *URLS, value=2)


def test_a_store_without_a_marker_is_not_told_where_the_journals_are(six):
    log = six.log(*URLS)
    move(six, "0", "3", "4", log=log)
    store_threads.finish_calls(60)  # a majority has answered; the third store may still be written
    disk = six.at["/disk/3"]
    for key in list(disk.list("")):
        disk.delete(key)
    log.journals.announce()
    assert list(disk.list("")) == []
