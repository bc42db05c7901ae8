"""Moving journals to other nodes: interrupted anywhere or without a store, and what other processes see of it."""

import contextlib

import msgspec
import pytest

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit
from pyspark_log_coordinator.journal import journal_nodes
from pyspark_log_coordinator.log import ended_journals, journal_move
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.maintenance import cluster_cleanup
from pyspark_log_coordinator.rebuild import execute
from pyspark_log_coordinator.rebuild.survey import survey
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    CorruptObject,
    InvalidOption,
    LogError,
    LogMoved,
    NodeMissing,
    StoreError,
)
from pyspark_log_storage.objects import node
from pyspark_log_storage.stores import store_threads
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.journal_disks import URLS
from tests.support.coordinator.migrated_journals import NEW, assert_whole, cluster_of_six, finish, move, write, written
from tests.support.coordinator.several_nodes import one_after_another
from tests.support.memory_store import MemoryStore, wipe
from tests.support.rings import deep


@pytest.fixture
def six():
    """A cluster of six nodes with two topics, and one that was deleted; its journals are on the first three."""
    return cluster_of_six()


# What a move does


def test_journals_migrate_back_and_forth(six):
    slept = six.log()
    slept.topic("t")
    for ids in (("3", "4", "5"), ("0", "3", "4"), ("0", "1", "2"), ("0", "1", "2", "4", "5")):
        done = move(six, *ids)
        assert (done.changed, done.topics) == (True, 2)
        write(six.log(), "u", len(ids))
    before = six.log().cluster.number
    again = move(six, *reversed(ids))
    assert (again.changed, again.topics, six.log().cluster.number) == (False, 0, before)
    assert six.log().journals.nodes.generation == 5
    with pytest.raises(LogMoved):
        slept.topic("t")
    slept.open(create=False)
    assert written(slept, "t") == 1
    assert slept.topic("t").journal.place.generation == 5
    assert_whole(six, *URLS, "/disk/4", "/disk/5")


@pytest.mark.parametrize("how", ["empty", "only the marker", "marker damaged"])
def test_a_process_with_old_addresses_continues_after_the_former_nodes_are_gone(six, how):
    move(six, "2", "3", "4")
    for url in ("/disk/a", "/disk/b"):
        marker = six.at[url].read(layout.MARKER)
        for key in list(six.at[url].list("")):
            six.at[url].delete(key)
        if how in {"only the marker", "marker damaged"}:
            six.at[url].create(layout.MARKER, marker if how == "only the marker" else marker[:-1])
    write(six.log(), "t", 2)
    assert written(six.log("/disk/b", "/disk/c"), "t") == 2


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


def test_nothing_is_moved_if_a_journal_is_damaged(six):
    log = six.log()
    folder = log.topic("u").journal.folder
    log.topic("u").journal.create_snapshot()
    store_threads.finish_calls(60)  # a majority has answered; the third store may still be written
    for url in URLS:
        for key in list(six.at[url].list(folder)):
            six.at[url].put(key, b"damaged")
    before = log.cluster.number
    with pytest.raises(CorruptObject):
        move(six, "3", "4", "5")
    assert six.log().cluster.number == before
    write(six.log(), "t", 2)


@pytest.mark.parametrize(
    ("url", "every"), [(URLS[0], 60), ("/disk/3", 60), *(deep(url, 7) for url in (*URLS, *NEW[:2]))]
)
def test_any_store_may_be_lost_at_any_call_of_a_migration(url, every):
    healthy = cluster_of_six()
    before = dict(healthy.calls)
    move(healthy, "0", "3", "4")
    for call in range(before.get(url, 0) + 1, healthy.calls[url], every):
        disks = cluster_of_six()
        log = disks.log()
        disks.away_from = {url: call}
        with contextlib.suppress(LogError):
            journal_move.move(log, ("0", "3", "4"))
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


def test_a_process_that_sleeps_in_a_migration_while_the_journals_move_on_begins_none_of_them_again(six):
    sleeper = six.log()
    journal = sleeper.journals.of_topic("t", sleeper.topic("t").topic_id)
    there = sleeper.journals.place_of(move(six, "0", "1", "3").nodes)
    move(six, "0", "1", "4")
    write(six.log(), "t", 5)
    six.log().topic("t").journal.create_snapshot()
    store_threads.finish_calls(60)
    before = [list(store.list("topics/")) for store in six.at.values()]
    with pytest.raises(LogMoved):
        journal.refresh()  # the stores 0 and 1 show where it has gone on
    ended_journals.begin(journal, there)
    assert [list(store.list("topics/")) for store in six.at.values()] == before
    assert written(six.log(), "t") == 5


def test_a_store_has_the_newest_list_and_gets_each_list_once():
    store = MemoryStore("/disk/a")
    first = journal_nodes.JournalNodes(
        "c", tuple(journal_nodes.JournalNode(each, f"/disk/{each}", "i") for each in "ab")
    )
    lists = [first, *(msgspec.structs.replace(first, generation=generation) for generation in (2, 9, 10, 11))]
    for each in lists:
        assert journal_nodes.write(each, store)
        assert not journal_nodes.write(each, store)
        assert (journal_nodes.read(store).nodes, journal_nodes.read(store).generation) == (each.nodes, each.generation)
    assert not journal_nodes.write(lists[1], store)
    assert journal_nodes.read(store).former == first.nodes
    new = MemoryStore("/disk/b")
    assert journal_nodes.write(lists[-1], new)
    assert list(new.list("")) == [layout.JOURNAL_NODES]
    assert journal_nodes.newest([store, new], real_environment()).generation == 11
    assert journal_nodes.find([new, store], real_environment()).generation == 11


# Other processes


def test_a_process_that_runs_gets_an_error_and_goes_on_after_it_has_opened_the_log_again(six):
    log = six.log()
    handle, group = log.topic("t"), log.group("g", create=True)
    move(six, "3", "4", "5")
    for call in (
        handle.refresh,
        lambda: handle.submit(AlterConfig({"retention.ms": "3"})),
        lambda: group.submit(OffsetCommit({"id": {0: Offset(2)}})),
        lambda: log.topic("t"),
        lambda: log.create_topic("new", 1),
        log.cluster.refresh,
    ):
        with pytest.raises(LogMoved, match="Start the query again"):
            call()
    assert written(six.log(*NEW), "t") == 1
    log.open(create=False)
    write(log, "t", 3)
    assert written(six.log(*NEW), "t") == 3


@pytest.mark.parametrize("also", [(), ("3", "4", "0")], ids=["one move", "two moves"])
def test_a_process_finds_the_journals_after_the_stores_it_knew_are_gone(six, also):
    log = Log([six.open(URLS[0])], fake_environment(), open_node=six.open, probe=one_after_another)
    log.open(create=False)
    move(six, "3", "4", "5")
    if also:
        move(six, *also)
    write(six.log(*NEW), "t", 2)
    for url in URLS:
        for key in list(six.at[url].list("")):
            if key == layout.MARKER or key.startswith(("topics/", "cluster/entries", "cluster/snapshots")):
                six.at[url].delete(key)
    log.open(create=False)
    assert written(log, "t") == 2


def test_a_process_does_not_follow_the_list_of_another_cluster_that_uses_a_disk_now(six):
    log = six.log()
    other = msgspec.structs.replace(six.found("/other/a", "/other/b", "/other/c"), generation=5)
    journal_nodes.replace(other, six.open(URLS[0]))
    for away in (set(URLS[1:]), {*URLS, *NEW}):  # and if it finds none at all
        six.away = away
        with pytest.raises(StoreError):
            log.open(create=False)
        assert log.journals.nodes.urls == URLS


# When all journals are lost after a move


def forget_where_they_went(disks, *urls):
    """Let nodes say where the journals were at first, as those do that were away when they moved."""
    for url in urls:
        known = journal_nodes.read(disks.at[url])
        if known is not None and known.former:
            first = journal_nodes.JournalNodes(known.cluster, known.former[: len(URLS)])
            disks.at[url].put(layout.JOURNAL_NODES, journal_nodes.encode(first))


def test_a_rebuilt_cluster_begins_where_no_store_says_it_was(six):
    left = URLS[1:]  # they still have something of the journals that they had
    log = six.log()
    move(six, "0", "3", "5", log=log)
    number = log.topic("t").journal.number
    for url in six.at.keys() - left:
        for key in list(six.at[url].list("")):
            if "/entries" in key or "/snapshots/" in key:
                six.at[url].delete(key)
    old = MemoryStore("/disk/5")
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


def test_the_next_cleanup_announces_the_journal_nodes_to_one_that_was_unreachable(six):
    move(six, "0", "3", "4")
    for key in list(six.at["/disk/4"].list(layout.CLUSTER_JOURNAL, "cluster/j")):
        if key.startswith(layout.JOURNAL_NODES):
            six.at["/disk/4"].delete(key)
    assert list(six.log().journals.missing_nodes()) == ["4"]
    cluster_cleanup.clean_up_cluster(six.log())
    assert six.log().journals.missing_nodes() == {}
    assert six.log("/disk/4").journals.nodes.generation == 2


def test_a_store_without_a_marker_is_not_told_where_the_journals_are(six):
    log = six.log(*URLS)
    move(six, "0", "3", "4", log=log)
    store_threads.finish_calls(60)  # a majority has answered; the third store may still be written
    disk = six.at["/disk/3"]
    for key in list(disk.list("")):
        disk.delete(key)
    log.journals.announce()
    assert list(disk.list("")) == []


def test_a_store_that_begins_anew_is_not_told_where_the_journals_were(six):
    log = six.log()
    assert log.journals.missing_nodes() == {}, "it has seen each store"
    disk = six.at[URLS[2]]
    marker = node.read_marker(disk)
    disk.put(layout.MARKER, node.encode(msgspec.structs.replace(marker, incarnation="f" * 32)))
    disk.delete(layout.JOURNAL_NODES)
    assert log.journals.announce() == []
    assert not disk.exists(layout.JOURNAL_NODES)
