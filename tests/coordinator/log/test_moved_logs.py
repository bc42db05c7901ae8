"""A log with several nodes is opened at the address that it has recorded; its root or journal nodes may be moved."""

import contextlib

import pytest

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.cluster_state import Cluster
from pyspark_log_coordinator.cluster.machine import MoveCluster, StartCluster
from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT, AddNode, FenceNode, Node, RemoveNode
from pyspark_log_coordinator.journal import journal_nodes
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.log.adoption import MovedLog
from pyspark_log_coordinator.log.log import Log
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CopiedLog, InvalidOption
from pyspark_log_storage.stores.store_threads import finish_calls
from tests.support.coordinator.clusters import NOW, after
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.journal_disks import URLS
from tests.support.coordinator.migrated_journals import NEW, cluster_of_six, move
from tests.support.coordinator.several_nodes import Stores, one_after_another
from tests.support.memory_store import MemoryStore

ROOT = Node("0", AT_THE_ROOT, "", "incarnation of 0")
OTHER = Node("1", "/disk/1", "", "incarnation of 1")
CALLS_SECONDS_MAX = 60
"""How long calls to stores in memory may take on a busy machine."""


def copied(stores, *urls):
    """Copy these stores, and return the addresses of the copies."""
    finish_calls(CALLS_SECONDS_MAX)
    for url in urls:
        copy = stores.open(f"/copy{url}")
        for key in stores.at[url].list(""):
            copy.put(key, stores.at[url].read(key))
    return [f"/copy{url}" for url in urls]


def log_at(stores, *urls):
    """The log at these addresses, not open yet."""
    roots = [stores.open(url) for url in urls]
    return Log(roots, fake_environment(), open_node=stores.open, probe=one_after_another)


def opened(stores, *urls):
    log = log_at(stores, *urls)
    log.open(create=False)
    return log


def adopt(stores, *urls):
    return MovedLog([stores.open(url) for url in urls], log_at(stores, *urls)).record()


def contents(stores):
    return {url: {key: store.read(key) for key in store.list("")} for url, store in stores.at.items()}


@pytest.fixture
def stores():
    """A cluster of three nodes, one of them its root."""
    stores = Stores(MemoryStore)
    stores.with_nodes(3).create_topic("t", 1, replication_factor=3)
    return stores


@pytest.fixture
def six():
    """A cluster of six nodes, whose journals are on the first three."""
    return cluster_of_six()


# A root


def test_a_root_with_other_nodes_is_not_opened_at_an_address_that_it_has_not_recorded(stores):
    (copy,) = copied(stores, "/cluster")
    before = contents(stores)
    for create in (False, True):
        with pytest.raises(CopiedLog, match="has recorded the address /cluster") as refused:
            log_at(stores, copy).open(create=create)
        for way in ("symbolic link", "cluster adopt --moved", "pyspark-log backup", "pyspark-log restore"):
            assert way in refused.value.message
    assert contents(stores) == before


def test_a_root_that_is_all_there_is_is_opened_wherever_it_is_mounted():
    stores = Stores(MemoryStore)
    stores.log().create_topic("t", 1)
    (copy,) = copied(stores, "/cluster")
    log = opened(stores, copy)
    log.delete_topic("t")
    node_admin.join(log, "/disk/1")
    assert log.cluster.state.address == copy


def test_a_moved_root_is_opened_at_its_new_address_and_refused_at_the_former(stores):
    (copy,) = copied(stores, "/cluster")
    assert adopt(stores, copy)
    assert not adopt(stores, copy)
    log = opened(stores, copy)
    log.delete_topic("t")
    assert log.missing_nodes == {}
    stores.at["/cluster"].__dict__.update(stores.at[copy].__dict__ | {"url": "/cluster"})
    with pytest.raises(CopiedLog, match=f"has recorded the address {copy}"):
        opened(stores, "/cluster")


def test_the_first_node_besides_the_root_records_the_address_and_later_ones_do_not_change_it():
    alone = after(Cluster(), StartCluster("c", (ROOT,)))
    assert alone.address == ""
    joined = after(alone, AddNode(OTHER, "/data/log"))
    assert joined.address == "/data/log"
    assert after(joined, AddNode(Node("2", "/disk/2", "", "i2"), "/mnt/log")).address == "/data/log"
    assert after(joined, MoveCluster("/b")).address == "/b"
    assert cluster.decide(joined, MoveCluster("/data/log"), NOW) == []
    # Without other nodes it may have moved.
    alone = after(joined, FenceNode("1"), RemoveNode("1", frozenset(), 1))
    assert after(alone, AddNode(Node("2", "/disk/2", "", "i2"), "/moved")).address == "/moved"


# Journal nodes


@pytest.mark.parametrize("count", [1, 2, 3])
def test_journal_nodes_are_not_opened_at_addresses_that_they_have_not_recorded(six, count):
    copies = copied(six, *URLS[:count])
    before = contents(six)
    for addresses in (copies, [*copies, URLS[2]]):
        with pytest.raises(CopiedLog, match="has recorded the address /disk/a, /disk/b, /disk/c"):
            log_at(six, *addresses).open(create=False)
    assert contents(six) == before


def test_a_former_journal_node_is_known_by_its_older_list_and_a_copy_of_it_is_not(six):
    move(six, *"345")
    (copy,) = copied(six, URLS[0])
    assert opened(six, URLS[0]).journals.nodes.urls == NEW
    with pytest.raises(CopiedLog, match="has recorded the address /disk/3, /disk/4, /disk/5"):
        opened(six, copy)
    six.at[copy].delete(layout.MARKER)
    with pytest.raises(CopiedLog):
        opened(six, copy)


@pytest.mark.parametrize("done", [0, 1, 2])
def test_an_interrupted_move_of_journal_nodes_is_finished_by_the_next(six, monkeypatch, done):
    copies = copied(six, *URLS)
    replace, left = journal_nodes.replace, iter(range(done))
    with monkeypatch.context() as patch:
        patch.setattr(journal_nodes, "replace", lambda *given: next(left) is None or replace(*given))
        with pytest.raises(StopIteration):
            adopt(six, *copies)
    log = log_at(six, *copies)
    with contextlib.suppress(CopiedLog):
        log.open(create=False)
        assert done
        assert {each.url for each in log.stores()}.isdisjoint(URLS)
    assert adopt(six, *copies)
    assert sorted(opened(six, *copies).topics()) == ["t", "u"]


def renew(disks, node_id, url):
    """Replace the disk of a node, and renew it."""
    del disks.at[url]
    node_admin.renew(disks.log(), node_id)


def test_a_journal_node_that_was_renewed_after_its_disk_was_replaced_is_moved(six):
    renew(six, "2", URLS[2])
    copies = copied(six, *URLS)
    assert adopt(six, *copies)
    assert not adopt(six, *copies)
    log = six.log(*copies)
    assert log.journals.nodes.urls == tuple(copies)
    assert {each: log.cluster.state.nodes[each].url for each in "012"} == dict(zip("012", copies, strict=True))
    assert log.journals.replaced_nodes() == ["2"]
    assert sorted(move(six, "0", "1", "2", log=log).nodes.urls) == sorted(copies)
    assert six.log(*copies).journals.replaced_nodes() == []


def test_the_disk_that_a_journal_node_had_before_is_not_adopted(six):
    former = copied(six, URLS[2])
    renew(six, "2", URLS[2])
    copies = copied(six, *URLS[:2])
    with pytest.raises(InvalidOption, match="/copy/disk/c is not the present one of journal node '2'"):
        adopt(six, *copies, *former)
    assert {journal_nodes.read(six.at[each]).urls for each in copies} == {URLS}
    assert sorted(six.log(*URLS).topics()) == ["t", "u"]


def test_of_the_lists_on_moved_stores_the_newest_says_which_journal_nodes_there_are(six):
    move(six, "0", "3", "4")
    copies = copied(six, URLS[0], *NEW[:2])
    kept = six.at[copies[0]]  # it was away when the journals migrated, and has its first list
    known = journal_nodes.read(kept)
    kept.put(layout.JOURNAL_NODES, journal_nodes.encode(journal_nodes.JournalNodes(known.cluster, known.former)))
    assert adopt(six, *copies)
    assert not adopt(six, *copies)
    assert {journal_nodes.read(six.at[each]).urls for each in copies} == {tuple(copies)}
    assert sorted(six.log(*copies).topics()) == ["t", "u"]


@pytest.mark.parametrize(
    "addresses",
    [(1, 2, 0), ("/disk/x", 2, "/disk/y"), (1, "/disk/x", 2)],
    ids=["all exchanged", "the last one moves away", "the first one moves in"],
)
def test_journal_nodes_may_move_to_addresses_that_others_of_them_had(six, addresses):
    urls = [each if isinstance(each, str) else URLS[each] for each in addresses]
    finish_calls(CALLS_SECONDS_MAX)
    stores = [six.at.pop(url) for url in URLS]
    for url, store in zip(urls, stores, strict=True):
        copy = six.open(url)
        for key in store.list(""):
            copy.put(key, store.read(key))
    assert adopt(six, *urls)
    assert not adopt(six, *urls)
    log = six.log(*urls)
    assert sorted(log.topics()) == ["t", "u"]
    assert log.journals.missing_nodes() == {}
    assert [log.cluster.state.nodes[each].url for each in "012"] == urls
