"""A log at an address that its records do not know is a copy: it is read, and nothing in it or its original changes."""

import pytest

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.machine import AddNode, FenceNode, MoveCluster, RecordAddress, RemoveNode
from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT, Node
from pyspark_log_coordinator.log import adoption, node_admin
from pyspark_log_coordinator.log.log import Log
from pyspark_log_storage.errors import CopiedLog, NodeMissing
from pyspark_log_storage.stores.copied import OriginalsStore, ReadOnlyStore
from tests.support.coordinator.clusters import NOW, after
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.several_nodes import Stores, one_after_another
from tests.support.memory_store import MemoryStore

ROOT = Node("0", AT_THE_ROOT, "", "incarnation of 0")
OTHER = Node("1", "/disk/1", "", "incarnation of 1")


def copied(stores, url="/cluster", to="/copy"):
    """Copy the objects of a store."""
    target = stores.open(to)
    for key in stores.at[url].list(""):
        target.put(key, stores.at[url].read(key))


def log_at(stores, url="/copy"):
    """The log at an address, not open yet."""
    return Log(stores.open(url), fake_environment(), open_node=stores.open, probe=one_after_another)


def opened(stores, url="/copy"):
    log = log_at(stores, url)
    log.open(create=False)
    return log


def contents(stores):
    return {url: {key: store.read(key) for key in store.list("")} for url, store in stores.at.items()}


@pytest.fixture
def stores():
    stores = Stores(MemoryStore)
    log = stores.with_nodes(3)
    log.create_topic("t", 1, replication_factor=3)
    copied(stores)
    return stores


ACTS = [
    lambda log: log.create_topic("u", 1),
    lambda log: log.delete_topic("t"),
    lambda log: log.group("g", create=True),
    lambda log: node_admin.join(log, "/disk/3"),
    lambda log: node_admin.set_fenced(log, "1", fenced=True),
    lambda log: log.node_store("0").delete("node"),
    lambda log: log.store.put("node", b""),
]


@pytest.mark.parametrize("act", ACTS)
def test_whatever_acts_is_refused_and_changes_no_store(stores, act):
    log, before = opened(stores), contents(stores)
    with pytest.raises((CopiedLog, NodeMissing)):
        act(log)
    assert {url: each for url, each in contents(stores).items() if each} == before


WRITES = [
    lambda store: store.create("a", b""),
    lambda store: store.create_unflushed("a", b""),
    lambda store: store.put("a", b""),
    lambda store: store.delete("a"),
    lambda store: store.remove_folders("a/"),
    lambda store: store.open_write("a"),
    lambda store: store.delete_unfinished(),
]
READS = [
    lambda store: store.read("a"),
    lambda store: store.size("a"),
    lambda store: store.exists("a"),
    lambda store: store.list(""),
    lambda store: store.folders(""),
    lambda store: store.delete_unfinished(dry_run=True),
]


@pytest.mark.parametrize("act", WRITES)
def test_a_store_of_a_copy_refuses_whatever_changes_it(act):
    with pytest.raises(CopiedLog, match="it is a copy"):
        act(ReadOnlyStore(MemoryStore(), "it is a copy"))


@pytest.mark.parametrize("act", [*WRITES, *READS])
@pytest.mark.parametrize("url", ["/disk/1", "original+/disk/1"])
def test_a_store_of_the_original_refuses_everything_under_one_address(act, url):
    store = OriginalsStore(url)
    assert store.url == "original+/disk/1"
    with pytest.raises(NodeMissing, match="/disk/1 belongs to the original"):
        act(store)


def test_a_copy_is_read_from_its_own_store_and_never_from_those_of_the_original(stores):
    log = opened(stores)
    assert list(log.topics()) == ["t"]
    assert sorted(log.missing_nodes) == ["1", "2"]
    assert [each.url for each in log.nodes_to_read] == [AT_THE_ROOT, "original+/disk/1", "original+/disk/2"]
    for node in ("1", "2"):
        with pytest.raises(NodeMissing, match="belongs to the original"):
            log.node_store(node).read("node")


def test_a_root_that_is_all_there_is_works_wherever_it_is_mounted():
    stores = Stores(MemoryStore)
    stores.log().create_topic("t", 1)
    copied(stores)
    log = opened(stores)
    log.delete_topic("t")
    node_admin.join(log, "/disk/1")
    assert log.cluster.state.addresses == ("/copy",)


def test_a_moved_log_is_used_at_its_new_address_and_refused_at_the_former(stores):
    assert adoption.adopt([stores.open("/copy")], log_at(stores))
    assert not adoption.adopt([stores.open("/copy")], log_at(stores))
    log = opened(stores)
    log.delete_topic("t")
    assert log.missing_nodes == {}
    copied(stores, "/copy", "/cluster")
    with pytest.raises(CopiedLog):
        opened(stores, "/cluster").create_topic("u", 1)


def test_a_second_path_of_the_same_storage_is_used_besides_the_first(stores):
    stores.at["/copy"] = MemoryStore("/copy")
    stores.at["/copy"].__dict__.update(stores.at["/cluster"].__dict__ | {"url": "/copy"})
    adoption.adopt([stores.open("/copy")], log_at(stores), keep=True)
    opened(stores).create_topic("u", 1)
    opened(stores, "/cluster").create_topic("v", 1)
    assert opened(stores).topics().keys() == {"t", "u", "v"}


def test_the_first_node_besides_the_root_records_the_address_and_later_ones_do_not_change_it():
    alone = after(cluster.Cluster(), cluster.StartCluster("c", (ROOT,)))
    assert alone.addresses == ()
    joined = after(alone, AddNode(OTHER, "/data/log"))
    assert joined.addresses == ("/data/log",)
    assert after(joined, AddNode(Node("2", "/disk/2", "", "i2"), "/mnt/log")).addresses == ("/data/log",)
    assert cluster.decide(joined, RecordAddress("/mnt/log"), NOW) == []
    # Without other nodes it may have moved.
    alone = after(joined, FenceNode("1"), RemoveNode("1", frozenset(), frozenset(), 1))
    assert after(alone, AddNode(Node("2", "/disk/2", "", "i2"), "/moved")).addresses == ("/moved",)


def test_a_move_forgets_the_former_addresses_and_a_second_path_keeps_them():
    joined = after(cluster.Cluster(), cluster.StartCluster("c", (ROOT,)), AddNode(OTHER, "/a"))
    assert after(joined, MoveCluster("/b")).addresses == ("/b",)
    both = after(joined, MoveCluster("/b", keep=True))
    assert both.addresses == ("/a", "/b")
    assert cluster.decide(both, MoveCluster("/b", keep=True), NOW) == []
