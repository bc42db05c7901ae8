"""Clusters and topics on a store: opened, created, deleted, and found wiped."""

import contextlib
import shutil

import pytest

from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.model.batch import SequencedFile
from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    InvalidName,
    NoCluster,
    NodeMissing,
    StoreRefused,
    StoreUnavailable,
    TopicExists,
    UnknownTopic,
)
from pyspark_log_storage.objects import node
from pyspark_log_storage.stores.local import LocalStore
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.several_nodes import Stores
from tests.support.coordinator.topics import claim, commit, file
from tests.support.coordinator.troubled_store import TroubledStore

CLUSTER_ENTRIES = f"{layout.CLUSTER_JOURNAL}entries/"


def open_log(store, *, create=False):
    """Return the log of a new process."""
    log = Log(store, fake_environment())
    log.open(create=create)
    return log


def rows_for(handle, rows):
    """Return a file with this number of rows for partition 0, held by the topic's node."""
    (member, incarnation), *_ = handle.journal.state.incarnations.items()
    return SequencedFile(layout.born_name(0, str(rows)), (Holder(member, incarnation),), file({0: rows}).chunks)


@pytest.fixture
def store():
    return TroubledStore()


@pytest.fixture
def log(store):
    return open_log(store, create=True)


# The cluster


def test_a_cluster_is_created_once_and_found_by_the_next_process(store):
    with pytest.raises(NoCluster, match=store.url):
        open_log(store)
    assert list(store.list("")) == []
    store.lose_answers(layout.MARKER, times=1)
    with pytest.raises(StoreUnavailable):
        open_log(store, create=True)
    log = open_log(store, create=True)
    assert open_log(store).cluster.state == log.cluster.state
    assert open_log(store, create=True).cluster.number == log.cluster.number


def test_a_new_cluster_is_a_warning_that_names_the_address_once(store, caplog):
    open_log(store, create=True)
    open_log(store, create=True)
    (warning,) = caplog.messages
    assert f"created a new log at {store.url} " in warning
    assert "if you expected an existing log there, mount its disk" in warning


def test_a_root_without_its_marker_or_in_another_incarnation_is_refused(log, store):
    marker = node.read_marker(store)
    assert marker
    store.put(layout.MARKER, node.encode(node.Marker(marker.cluster, marker.node, "another")))
    with pytest.raises(NodeMissing, match="another incarnation"):
        open_log(store)
    store.delete(layout.MARKER)
    with pytest.raises(NodeMissing, match="has no marker"):
        open_log(store)


def test_opening_again_looks_for_the_next_two_entries_and_the_marker(log, store):
    store.reads.clear()
    store.creates.clear()
    log.open(create=True)
    next_two = [f"{CLUSTER_ENTRIES}{layout.number(log.cluster.number + number)}" for number in (1, 2)]
    assert store.reads == [*next_two, layout.MARKER]
    assert store.creates == []


# Topics


def test_a_created_topic_is_found_by_the_next_process(log, store):
    with pytest.raises(UnknownTopic):
        log.topic("flights")
    handle = log.create_topic("flights", 2)
    assert [each.names[3:] for each in handle.schemas] == [[], ["headers"]]
    found = open_log(store).topic("flights")
    assert found.topic_id == handle.topic_id
    assert found.journal.state == handle.journal.state
    assert len(found.journal.state.partitions) == 2
    with pytest.raises(TopicExists):
        open_log(store).create_topic("flights", 2)
    store.reads.clear()
    log.topic("flights")
    assert len(store.reads) == 2, "the next two entries of the topic's journal"


@pytest.mark.parametrize("act", ["topic", "create_topic", "ensure_topic"])
def test_a_name_that_cannot_be_a_path_touches_nothing(log, store, act):
    store.reads.clear()
    with pytest.raises(InvalidName):
        getattr(log, act)("../x", *([1] if act != "topic" else []))
    assert store.reads == []


def test_a_process_that_loses_the_race_to_create_a_topic_takes_the_other_ones(log, store):
    others = []
    neighbour = open_log(TroubledStore(store.inner))
    store.be_slow(CLUSTER_ENTRIES, meanwhile=lambda: others.append(neighbour.create_topic("flights", 2).topic_id))
    assert log.ensure_topic("flights", 2).topic_id == others[0]


def test_a_topic_without_a_journal_can_be_deleted(log, store):
    store.refuse("topics/", times=1)
    with pytest.raises(StoreRefused):
        log.create_topic("flights", 2)
    log.delete_topic("flights")
    assert log.topics() == {}


# Deletion


def test_a_deletion_of_all_rows_that_is_repeated_deletes_none_that_were_written_meanwhile(log, monkeypatch):
    handle = log.create_topic("t", 1)
    handle.submit(commit(claim(0), rows_for(handle, 2)))

    def repeated(act):
        found = act()
        if act != handle.refresh:  # its answer was lost
            handle.submit(commit(claim(1), rows_for(handle, 3)))
            found = act()
        return found

    monkeypatch.setattr(log, "with_reserves", repeated)
    assert handle.delete_records(0, -1) == 2


def test_a_deletion_that_is_repeated_keeps_a_topic_that_was_created_meanwhile(log, store, monkeypatch):
    log.create_topic("t", 1)
    made = []

    def repeated(act):
        found = act()
        if "t" not in log.topics():  # its answer was lost
            made.append(open_log(store).create_topic("t", 1).topic_id)
            found = act()
        return found

    monkeypatch.setattr(log, "with_reserves", repeated)
    log.delete_topic("t")
    assert [log.topic("t").topic_id] == made


@pytest.mark.parametrize("times", [1, 2])
def test_a_reserve_that_freed_space_is_made_again_also_if_that_was_not_enough(tmp_path, times):
    log, tried = open_log(LocalStore(str(tmp_path)), create=True), []
    reserve = tmp_path / ".tmp" / "reserve"

    def free_space():
        tried.append(reserve.exists())
        if len(tried) <= times:
            raise StoreRefused(str(tmp_path), "", "the disk is full")

    with contextlib.suppress(StoreRefused):
        log.with_reserves(free_space)
    assert (tried, reserve.exists()) == ([True, False], True)


# Rights


def test_a_new_topic_has_the_folder_that_executors_write_into_on_each_node(tmp_path):
    log = Stores(lambda url: LocalStore(f"{tmp_path}{url}")).with_nodes(3)
    shutil.rmtree(tmp_path / "disk/1")  # since the nodes were probed
    (tmp_path / "disk/1").mkdir()
    log.missing_nodes = {"2": StoreUnavailable("/disk/2", "", "it is away")}
    handle = log.create_topic("t", 1, replication_factor=3)
    folder = layout.append_files("t", handle.topic_id)
    assert list((tmp_path / "cluster" / folder).iterdir()) == []
    assert [*(tmp_path / "disk/1").iterdir(), *tmp_path.glob("disk/2/topics")] == []
