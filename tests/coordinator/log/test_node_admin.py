"""Nodes join, come back and leave, on their stores."""

import threading
import time

import pytest

from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT, FenceNode, Node, UnfenceNode
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.log.node_probe import NodeProbe
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    CorruptObject,
    InvalidOption,
    NodeAway,
    NodeMissing,
    StoreUnavailable,
)
from pyspark_log_storage.objects import node
from pyspark_log_storage.objects.node import Marker
from tests.support.coordinator.several_nodes import Stores
from tests.support.coordinator.troubled_store import TroubledStore
from tests.support.memory_store import MemoryStore, wipe

CLUSTER_ENTRIES = f"{layout.CLUSTER_JOURNAL}entries/"


@pytest.fixture
def stores():
    return Stores(lambda url: TroubledStore(MemoryStore(url)))


@pytest.fixture
def log(stores):
    return stores.log()


def refusal(action, *arguments):
    with pytest.raises(InvalidOption) as raised:
        action(*arguments)
    return raised.value.message


# Joining


def test_a_store_that_joins_has_the_marker_that_the_cluster_knows(log, stores):
    joined, new = node_admin.join(log, "/disk/1", rack="east")
    marker = node.read_marker(stores.at["/disk/1"])
    assert new
    assert joined == log.cluster.state.nodes["1"] == Node("1", "/disk/1", "east", marker.incarnation)
    assert (marker.cluster, marker.node) == (log.cluster.state.cluster_id, "1")
    number = log.cluster.number
    assert node_admin.join(log, "/disk/1") == (joined, False)
    assert node_admin.join(log, "/cluster") == (log.cluster.state.nodes["0"], False)
    assert log.cluster.number == number
    other = stores.log()
    assert other.cluster.state == log.cluster.state
    assert other.node_store("1") is stores.at["/disk/1"]


@pytest.mark.parametrize("url", ["/cluster/below", "/disk"])
def test_a_store_that_overlaps_with_another_node_or_is_one_of_another_cluster_is_refused(log, url):
    other = Stores()
    other.at["/disk/1"] = log.store_at("/disk/1")
    node_admin.join(other.log(), "/disk/1")
    assert "is node '1' of another cluster" in refusal(node_admin.join, log, "/disk/1")
    other.at["/disk/1"].delete(layout.MARKER)
    node_admin.join(log, "/disk/1")
    assert "overlap: one contains the other" in refusal(node_admin.join, log, url)


def test_a_process_that_loses_the_race_for_an_id_leaves_the_store_unchanged(log, stores):
    stores.at["/cluster"].be_slow(CLUSTER_ENTRIES, lambda: node_admin.join(stores.log(), "/disk/1"))
    assert "node '1' already exists" in refusal(node_admin.join, log, "/disk/2")
    assert node.read_marker(stores.at["/disk/2"]) is None
    assert node_admin.join(log, "/disk/2")[0].node_id == "2"


# Who is missing


def opened(stores):
    return stores.log().missing_nodes


@pytest.mark.parametrize("node_id", ["0", "1"])
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("lost", NodeAway),
        ("another", NodeMissing),
        ("damaged", CorruptObject),
    ],
)
def test_a_node_without_its_marker_is_missing_until_it_has_it_again(stores, node_id, change, error):
    log = stores.with_nodes(3)
    assert opened(stores) == {}
    store = stores.at["/disk/1" if node_id == "1" else "/cluster"]
    marker, known = store.read(layout.MARKER), node.read_marker(store)
    another = node.encode(Marker(known.cluster, known.node, "another"))
    store.delete(layout.MARKER)
    if change != "lost":
        store.put(layout.MARKER, another if change == "another" else b"?")
    log.open(create=False)
    assert {name: type(each) for name, each in log.missing_nodes.items()} == {node_id: error}
    store.put(layout.MARKER, marker)
    log.open(create=False)
    assert log.missing_nodes == {}


def test_a_fenced_node_is_not_probed(stores):
    log = stores.with_nodes(3)
    log.cluster.submit(FenceNode("1"))
    stores.at["/disk/1"].reads.clear()
    stores.at["/disk/1"].delete(layout.MARKER)
    assert opened(stores) == {}
    assert stores.at["/disk/1"].reads == []


class Hanging(MemoryStore):
    """Blocks reads until it is released."""

    def __init__(self, url):
        super().__init__(url)
        self.let_go = threading.Event()
        self.reads = 0

    def read(self, key, start=0, length=None):
        self.reads += 1
        self.let_go.wait(10)
        return super().read(key, start, length)


def test_a_hanging_store_is_given_up_and_not_probed_again_until_it_answers():
    hanging, well = Hanging("/disk/1"), MemoryStore("/disk/2")
    members = [(Node(name, store.url, "", "i"), store) for name, store in (("1", hanging), ("2", well))]
    for name, store in (("1", hanging), ("2", well)):
        store.create(layout.MARKER, node.encode(Marker("c", name, "i")))
    probe = NodeProbe(real_environment(), seconds=0.05)
    for _ in range(3):
        missing = probe.missing(members)
        assert list(missing) == ["1"]
        assert isinstance(missing["1"], StoreUnavailable)
        assert "does not answer" in missing["1"].message
    assert hanging.reads == 1
    hanging.let_go.set()
    deadline = time.monotonic() + 10
    while probe.missing(members):
        assert time.monotonic() < deadline


# Coming back


def test_a_wiped_node_comes_back_in_a_new_incarnation_and_holds_nothing_of_any_topic(stores):
    log = stores.with_nodes(3)
    before = log.cluster.state.nodes["1"]
    assert node_admin.renew(log, "1") == (before, False)
    handles = [log.create_topic(name, 1, replicas=[("0", "1")]) for name in ("t", "u")]
    wipe(stores.at["/disk/1"].inner)
    assert list(opened(stores)) == ["1"]
    renewed, changed = node_admin.renew(log, "1")
    assert changed
    assert (renewed.node_id, renewed.url, opened(stores)) == ("1", "/disk/1", {})
    assert renewed.incarnation != before.incarnation
    assert [each.refresh().incarnations["1"] for each in handles] == [renewed.incarnation] * 2


def test_a_root_that_lost_its_marker_is_renewed_as_a_root(log, stores):
    stores.at["/cluster"].delete(layout.MARKER)
    renewed, changed = node_admin.renew(log, "0")
    assert changed
    marker = node.read_marker(stores.at["/cluster"])
    assert (marker.root, marker.incarnation) == (True, renewed.incarnation)


def test_a_replaced_disk_cannot_come_back(stores):
    log = stores.with_nodes(3)
    old = stores.at["/disk/1"]
    stores.at["/disk/1"] = TroubledStore(MemoryStore("/disk/1"))
    log = stores.log()
    node_admin.renew(log, "1")
    stores.at["/disk/1"] = old
    log = stores.log()
    assert isinstance(log.missing_nodes["1"], NodeMissing)
    assert "its files may be old" in refusal(node_admin.renew, log, "1")


def test_a_node_cannot_take_the_store_of_another(stores):
    log = stores.with_nodes(3)
    assert "is node '2', not '1'" in refusal(node_admin.renew, log, "1", "/disk/2")
    assert "overlap: one contains the other" in refusal(node_admin.renew, log, "1", "/disk/2/below")
    stores.at["/disk/1"].put(layout.MARKER, node.encode(Marker("another", "1", "x")))
    assert "of another cluster" in refusal(node_admin.renew, log, "1")


def test_a_node_that_is_fenced_while_it_is_unfenced_in_a_topic_is_fenced_there(stores):
    log = stores.with_nodes(3)
    handle = log.create_topic("t", 1, replicas=[("0", "1")])
    node_admin.set_fenced(log, "1", fenced=True)
    entries = f"{layout.topic_journal('t', handle.topic_id)}entries/"
    stores.at["/cluster"].be_slow(entries, lambda: node_admin.set_fenced(stores.log(), "1", fenced=True))
    node_admin.set_fenced(log, "1", fenced=False)
    assert stores.log().cluster.state.nodes["1"].fenced
    assert handle.refresh().fenced == ("1",)


# Leaving


def test_a_fenced_node_without_replicas_can_be_removed(stores):
    log = stores.with_nodes(3)
    log.create_topic("t", 1, replicas=[["1", "2"]])
    log.create_topic("u", 1, replicas=[["0"]])
    assert "fence it first" in refusal(node_admin.remove, log, "1")
    log.cluster.submit(FenceNode("1"))
    assert "has replicas of topics t; reassign" in refusal(node_admin.remove, log, "1")
    log.delete_topic("t")
    assert node_admin.remove(log, "1")
    assert not node_admin.remove(log, "1")
    assert list(stores.log().cluster.state.nodes) == ["0", "2"]


def test_a_node_does_not_move_to_a_copy_of_its_store_while_processes_may_still_write_to_the_other(stores):
    log = stores.with_nodes(2)
    disk, copied = stores.at["/disk/1"], stores.open("/copy")
    for key in disk.list(""):
        copied.put(key, disk.read(key))
    assert "still has the store of node '1'" in refusal(node_admin.renew, log, "1", "/copy")
    assert log.cluster.refresh().nodes["1"].url == "/disk/1"
    assert copied.keys() == disk.keys()
    disk.delete(layout.MARKER)
    assert node_admin.renew(log, "1", "/copy")[1]


def test_a_node_of_a_topic_created_meanwhile_is_not_removed(stores):
    log = stores.with_nodes(3)
    log.cluster.submit(FenceNode("1"))

    def meanwhile():
        other = stores.log()
        other.cluster.submit(UnfenceNode("1"))
        other.create_topic("t", 1, replicas=[["1"]])
        other.cluster.submit(FenceNode("1"))

    stores.at["/cluster"].be_slow(CLUSTER_ENTRIES, meanwhile)
    assert "has replicas of topics t; reassign" in refusal(node_admin.remove, log, "1")


def test_a_topic_whose_journal_is_damaged_does_not_keep_the_others_from_knowing_that_a_node_is_fenced(stores):
    log = stores.with_nodes(3)
    first, second = (log.create_topic(name, 1, replicas=[("1", "2")]) for name in ("a", "b"))
    folder = layout.topic_journal("a", first.topic_id)
    for key in list(log.store.list(folder)):
        log.store.put(key, b"damaged")
    operator = stores.log()
    with pytest.raises(CorruptObject, match="topics/a/"):
        node_admin.set_fenced(operator, "1", fenced=True)
    assert second.refresh().fenced == ("1",)


def test_the_root_stays(log, stores):
    assert log.cluster.state.nodes["0"].url == AT_THE_ROOT
    for url in ("/elsewhere", "/cluster"):
        assert "cluster adopt --moved" in refusal(node_admin.renew, log, "0", url)
    assert "/elsewhere" not in stores.at
    with pytest.raises(InvalidOption, match="is the cluster root"):
        node_admin.remove(log, "0")
