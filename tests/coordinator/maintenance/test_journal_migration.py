"""Migrating journals to other nodes: what it does, what it refuses, and interrupted anywhere or without a store."""

import contextlib

import msgspec
import pytest

from pyspark_log_coordinator.cluster.machine import StartJournalMigration
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit
from pyspark_log_coordinator.journal import journal_nodes
from pyspark_log_coordinator.journal.history import state_at
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.maintenance import journal_migration
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    InvalidInput,
    InvalidOption,
    LogError,
    NodeMissing,
    UnknownVersion,
)
from pyspark_log_storage.stores.store_threads import finish_calls
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.journal_disks import URLS, Disks
from tests.support.coordinator.migrated_journals import NEW, assert_whole, cluster_of_six, finish, move, write, written
from tests.support.coordinator.stand_in_threads import PromptThreads
from tests.support.elsewhere import PlainStore, wipe

CALLS_SECONDS_MAX = 60
"""How long calls to stores in memory may take on a busy machine."""


@pytest.fixture
def six():
    """A cluster of six nodes with two topics, and one that was deleted; its journals are on the first three."""
    return cluster_of_six()


# What a move does


def test_the_journals_continue_on_the_new_nodes(six):
    log = six.log()
    done = move(six, "3", "4", "5", log=log)
    assert (done.changed, done.topics, done.nodes.urls) == (True, 2, NEW)
    assert log.journals.nodes.urls == NEW
    assert_whole(six, *URLS, *NEW)
    six.away = set(URLS)
    assert_whole(six, *NEW)
    write(six.log(*NEW), "t", 2)
    six.log(*NEW).create_topic("new", 1)
    assert written(six.log("/disk/4"), "t") == 2


def test_during_a_migration_new_topics_begin_on_the_new_nodes_and_other_journals_are_read_on_the_former(six):
    log = six.log()
    log.group("g", create=True).submit(OffsetCommit({"id": {0: Offset(3)}}))
    log.cluster.submit(StartJournalMigration(("3", "4", "5"), log.journals.nodes.nodes))
    log.create_topic("new", 1)
    write(log, "new", 7)
    fresh = six.log()
    assert [fresh.topic(name).journal.place.generation for name in ("t", "new")] == [1, 2]
    assert fresh.group("g").refresh().committed("id", 0).offset == 3
    move(six, "3", "4", "5")
    after = six.log(*NEW)
    assert (written(after, "t"), written(after, "new")) == (1, 7)
    assert after.group("g").refresh().committed("id", 0).offset == 3


def test_commands_that_wait_in_an_inbox_do_not_stay_in_the_old_place(six):
    log = six.log()
    handle = log.topic("t")
    place, folder = handle.journal.place, layout.inbox(handle.journal.folder)
    handle.inbox.put(place, handle.journal.number, AlterConfig({"retention.ms": "5"}))
    place.stores[0].create(f"{folder}note", b"of somebody else")
    assert len(list(place.stores[0].list(folder))) == 2
    move(six, "3", "4", "5")
    assert list(place.stores[0].list(folder)) == [f"{folder}note"], "what the product did not make stays"
    write(six.log(), "t", 2)


def test_a_migration_to_the_present_nodes_changes_nothing(six):
    before = six.log().cluster.number
    done = move(six, "2", "0", "1")
    assert (done.changed, done.topics) == (False, 0)
    assert six.log().cluster.number == before


def test_journals_migrate_back_and_forth(six):
    slept = six.log()
    slept.topic("t")
    for ids in (("3", "4", "5"), ("0", "3", "4"), ("0", "1", "2"), ("0", "1", "2", "4", "5")):
        assert move(six, *ids).changed
        write(six.log(), "u", len(ids))
    assert six.log().journals.nodes.generation == 5
    assert written(slept, "t") == 1
    assert slept.topic("t").journal.place.generation == 5
    assert_whole(six, *URLS, "/disk/4", "/disk/5")


@pytest.mark.parametrize("how", ["empty", "only the marker", "away", "marker damaged"])
def test_a_process_with_old_addresses_continues_after_the_former_nodes_are_gone(six, how):
    move(six, "2", "3", "4")
    for url in ("/disk/a", "/disk/b"):
        marker = six.at[url].read(layout.MARKER)
        for key in list(six.at[url].list("")):
            six.at[url].delete(key)
        if how in {"only the marker", "marker damaged"}:
            six.at[url].create(layout.MARKER, marker if how == "only the marker" else marker[:-1])
        elif how == "away":
            six.away.add(url)
    write(six.log(), "t", 2)
    assert written(six.log("/disk/b", "/disk/c"), "t") == 2


def test_an_address_of_another_cluster_is_refused_after_a_move_too(six):
    move(six, "2", "3", "4")
    six.log("/cluster", create=True)
    with pytest.raises(InvalidOption, match="/cluster is not"):
        six.log("/disk/c", "/cluster")


def test_a_node_that_was_lost_is_replaced(six):
    six.away = {"/disk/b"}
    move(six, "0", "2", "3")
    six.away = {"/disk/b", "/disk/a"}
    log = six.log("/disk/c")
    assert log.journals.nodes.urls == ("/disk/a", "/disk/c", "/disk/3")
    write(log, "t", 2)


def test_a_node_that_was_renewed_holds_journals_again(six):
    wipe(six.at["/disk/b"])
    log = six.log()
    assert list(log.journals.missing_nodes()) == ["1"]
    node_admin.renew(log, "1")
    assert list(six.log().journals.missing_nodes()) == ["1"]
    assert move(six, "0", "1", "2").changed
    assert six.log().journals.missing_nodes() == {}
    six.away = {"/disk/a"}
    write(six.log("/disk/b", "/disk/c"), "t", 2)


def test_older_versions_cannot_be_read_any_more_and_the_error_names_the_oldest(six):
    log = six.log()
    for value in range(5):
        write(log, "t", value)
    moved = log.topic("t").journal.number + 1
    move(six, "3", "4", "5")
    write(log, "t", 9)
    journal = log.topic("t").journal
    assert [state_at(journal, number).config.retention_ms for number in (moved, moved + 1)] == [4, 9]
    with pytest.raises(UnknownVersion, match=f"versions {moved} "):
        state_at(journal, moved - 1)


def test_what_the_journals_leave_behind_is_what_says_where_they_are(six):
    finish_calls(CALLS_SECONDS_MAX)
    # A store that answers after the other two may get an object after what it had was deleted: that does no harm.
    prompt = msgspec.structs.replace(fake_environment(), store_threads=lambda _: PromptThreads())
    log = six.log(environment=prompt)
    for value in range(20):
        write(log, "t", value)
    number = log.topic("t").journal.number + 1
    done = move(six, "3", "4", "5", log=log)
    assert done.removed > 100
    folder = layout.topic_journal("t", log.topic("t").topic_id)
    for url in URLS:
        left = {key.removeprefix(folder) for key in six.at[url].list(folder)}
        assert any(layout.number(number) in key for key in left)
        assert all(layout.number(number) in key or key.startswith("snapshots/") for key in left), left
        assert len([key for key in left if key.startswith("snapshots/")]) <= 1


# What is refused


def test_nodes_that_are_not_there_are_refused_and_nothing_changes(six):
    before = six.log().cluster.number
    for ids in (("3", "4", "9"), ("3", "4")):
        with pytest.raises(InvalidOption):
            move(six, *ids)
    wipe(six.at["/disk/4"])
    with pytest.raises(NodeMissing):
        move(six, "3", "4", "5")
    assert six.log().cluster.number == before


def test_journals_of_a_cluster_on_one_store_stay_there():
    disks = Disks("/cluster")
    log = disks.log("/cluster", create=True)
    for url in NEW:
        node_admin.join(log, url)
    with pytest.raises(InvalidOption, match="at the cluster root"):
        journal_migration.migrate(log, ("1", "2", "3"))


def test_a_journal_node_is_removed_after_the_move_and_not_before(six):
    log = six.log()
    node_admin.set_fenced(log, "1", fenced=True)
    with pytest.raises(InvalidInput, match="is a journal node"):
        node_admin.remove(log, "1")
    move(six, "0", "2", "3")
    for name in ("t", "u"):
        log.delete_topic(name)
    assert node_admin.remove(log, "1")


def creates_of_a_move():
    disks = cluster_of_six()
    move(disks, "0", "3", "4")
    return 10**9 - disks.creates_left


@pytest.mark.no_faults("makes faults of its own, at every call in turn")
@pytest.mark.parametrize("part", range(4))
def test_a_killed_migration_is_finished_by_another_process(part):
    for creates in range(part, creates_of_a_move(), 20):
        disks = cluster_of_six()
        slept = disks.log()
        slept.topic("t")
        log = disks.log()
        disks.creates_left = creates
        with contextlib.suppress(LogError):
            journal_migration.migrate(log, ("0", "3", "4"))
        finish(disks)
        assert written(slept, "t") == 1
        write(slept, "t", 2)
        assert written(disks.log("/disk/3"), "t") == 2


@pytest.mark.no_faults("makes faults of its own, at every call in turn")
@pytest.mark.parametrize("url", [*URLS, "/disk/3", "/disk/4"])
def test_any_store_may_be_lost_at_any_call_of_a_migration(url):
    healthy = cluster_of_six()
    before = dict(healthy.calls)
    move(healthy, "0", "3", "4")
    for call in range(before.get(url, 0) + 1, healthy.calls[url], 23):
        disks = cluster_of_six()
        log = disks.log()
        disks.away_from = {url: call}
        with contextlib.suppress(LogError):
            journal_migration.migrate(log, ("0", "3", "4"))
        # Whatever came of it: without the store all is there, and it is finished without it, or with it.
        disks.calls[url] = 10**8
        disks.away_from = {url: 1}
        others = [each for each in URLS if each != url]
        reader = disks.log(*others)
        assert written(reader, "t") == 1
        write(reader, "u", 7)
        finish(disks)
        assert written(disks.log("/disk/3", "/disk/4"), "u") == 7


# The lists


def test_a_store_has_the_newest_list_and_gets_each_list_once():
    store = PlainStore("/disk/a")
    first = journal_nodes.JournalNodes("c", ())
    lists = [first, *(msgspec.structs.replace(first, generation=generation) for generation in (2, 9, 10, 11))]
    for each in lists:
        assert journal_nodes.write(each, store)
        assert not journal_nodes.write(each, store)
        assert journal_nodes.read(store) == each
    assert not journal_nodes.write(lists[1], store)
    assert b"generation" not in store.read(layout.JOURNAL_NODES)
    new = PlainStore("/disk/b")
    assert journal_nodes.write(lists[-1], new)
    assert list(new.list("")) == [layout.JOURNAL_NODES]
    assert journal_nodes.newest([store, new], real_environment()) == lists[-1]
    assert journal_nodes.find([new, store], real_environment()) == lists[-1]
