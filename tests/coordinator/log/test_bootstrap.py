"""Clusters with several journal nodes: created, found by any address, and opened while one store is unreachable."""

import string

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log_coordinator.journal import journal_nodes
from pyspark_log_coordinator.journal.journal_nodes import JournalNode, JournalNodes
from pyspark_log_coordinator.log import bootstrap, node_admin
from pyspark_log_coordinator.log.log import Log
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    InvalidOption,
    NoCluster,
    StoreUnavailable,
    StoreUnfit,
)
from pyspark_log_storage.objects import node
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.journal_disks import URLS, Disks
from tests.support.faulty_store import Fault, FaultyStore, lies_at
from tests.support.memory_store import MemoryStore, wipe


@pytest.fixture
def disks():
    return Disks()


@pytest.fixture
def founded(disks):
    disks.found()
    disks.log(create=True)
    return disks


# Founding


def test_the_journal_nodes_of_a_new_cluster_are_its_nodes(founded):
    log = founded.log()
    assert log.journals.nodes.urls == URLS
    assert {name: each.url for name, each in log.cluster.state.nodes.items()} == dict(zip("012", URLS, strict=True))
    assert {each.cluster for each in map(node.read_marker, founded.at.values())} == {log.cluster.state.cluster_id}
    assert {journal_nodes.read(store) for store in founded.at.values()} == {log.journals.nodes}
    keys = list(founded.at["/disk/b"].list(""))
    assert founded.found() == log.journals.nodes  # once more changes nothing
    assert not journal_nodes.write(log.journals.nodes, founded.at["/disk/b"])
    assert founded.log(create=True).cluster.number == log.cluster.number
    assert list(founded.at["/disk/b"].list("")) == keys


@pytest.mark.parametrize("wiped", URLS[:2])
def test_creating_a_cluster_again_does_not_let_a_store_that_was_wiped_vote_again(founded, wiped):
    late = URLS[(URLS.index(wiped) + 1) % 3]
    founded.away = {late}
    founded.log().create_topic("t", 1)  # only two stores have this entry, one of which is wiped
    founded.away = set()
    wipe(founded.at[wiped])
    with pytest.raises(InvalidOption, match=f"{wiped} is another disk than that of node .*, or was wiped"):
        founded.found()
    assert list(founded.at[wiped].list("")) == []
    with pytest.raises(NoCluster):
        founded.log(wiped)
    assert list(founded.log(late).topics()) == ["t"]


@pytest.mark.parametrize(
    ("urls", "reason"),
    [
        (URLS[:2], r"need at least 3 \(3 tolerate the failure of one, 5 of two\); got 2"),
        (("/disk/a", "/disk/b", "/disk/a"), "/disk/a is given twice"),
        (("/disk/a", "/disk/b", "/disk/a/log"), "overlap: one contains the other"),
    ],
)
def test_overlapping_stores_and_too_few_stores_are_refused(disks, urls, reason):
    with pytest.raises(InvalidOption, match=reason):
        disks.found(*urls)
    assert all(list(store.list("")) == [] for store in disks.at.values())
    assert disks.found("/disk/1", "/disk/10", "/disk/100").urls == ("/disk/1", "/disk/10", "/disk/100")


def test_a_store_that_is_used_already_does_not_become_a_journal_node(disks):
    disks.log("/disk/b", create=True)
    with pytest.raises(InvalidOption, match="/disk/b is already node '0' of cluster"):
        disks.found()
    assert list(disks.at["/disk/a"].list("")) == []
    disks.at["/mnt/c"] = disks.at["/disk/c"]
    with pytest.raises(InvalidOption, match=r"/disk/c|/mnt/c"):
        disks.found("/disk/c", "/mnt/c", "/disk/a")
    others = disks.found("/disk/d", "/disk/e", "/disk/f").urls
    with pytest.raises(InvalidOption, match="already"):
        disks.found(*reversed(others))


def torn(url):
    """A store that keeps half of each object."""
    return FaultyStore(
        MemoryStore(url), lambda call, _: Fault.TORN_WRITE if Fault.TORN_WRITE in lies_at(call) else None
    )


def test_a_store_that_lies_begins_no_cluster_and_becomes_no_node(disks):
    with pytest.raises(StoreUnfit, match="choose another kind of store"):
        Log([torn("/faulty")], fake_environment()).open(create=True)
    with pytest.raises(StoreUnfit, match="choose another kind of store"):
        bootstrap.mark([disks.open("/disk/a"), disks.open("/disk/b"), torn("/faulty")], fake_environment())
    assert {journal_nodes.read(each) for each in disks.at.values()} == {None}
    log = Log([MemoryStore("/whole")], fake_environment(), open_node=torn)
    log.open(create=True)
    with pytest.raises(StoreUnfit, match="choose another kind of store"):
        node_admin.join(log, "/faulty")
    assert list(log.cluster.state.nodes) == ["0"]


def test_a_node_that_is_no_root_does_not_begin_a_cluster(disks):
    disks.at["/disk/a"].create(layout.MARKER, node.encode(node.Marker("c", "7", "i")))
    with pytest.raises(NoCluster, match="node '7' of cluster c, not a root"):
        disks.log("/disk/a", create=True)


@pytest.mark.parametrize("remains", ["topics/t/id/append/a", "groups/g/journal/entries/1", "backups/1"])
@pytest.mark.parametrize("keeps_marker", [False, True])
def test_no_cluster_begins_over_what_is_left_of_another_one(disks, remains, keeps_marker):
    disks.log("/disk/a", create=True)
    for each in disks.at.values():
        each.create(remains, b"")
    root = disks.at["/disk/a"]
    for key in [*root.list("cluster/"), *(() if keeps_marker else (layout.MARKER,))]:
        root.delete(key)
    before = list(root.list(""))
    for create in (True, False):
        with pytest.raises(NoCluster, match=f"what is left of one, such as {remains}.*cluster rebuild --nodes"):
            disks.log("/disk/a", create=create)
    if not keeps_marker:
        with pytest.raises(NoCluster, match=f"what is left of one, such as {remains}"):
            disks.found()
    assert list(root.list("")) == before


def test_journal_nodes_do_not_begin_a_cluster_anew_over_what_is_left_of_it(founded):
    founded.log().create_topic("t", 1).refresh()
    for each in founded.at.values():
        for key in [*each.list("cluster/entries/"), *each.list("cluster/snapshots/")]:
            each.delete(key)
    with pytest.raises(NoCluster, match="what is left of one, such as topics/t/"):
        founded.log(create=True)


# Finding


@pytest.mark.parametrize("given", [URLS[1:2], URLS[::-1], ("/mnt/b",), ("/disk/a", "/mnt/b")], ids=str)
def test_any_addresses_lead_to_all_journal_nodes(founded, given):
    founded.at["/mnt/b"] = founded.at["/disk/b"]
    log = founded.log(*given)
    assert log.journals.nodes.urls == URLS
    assert log.store.url == URLS[0]
    log.create_topic("t", 1)
    assert "t" in founded.log(*URLS[:1]).topics()


def test_an_unreachable_address_alone_is_a_retriable_error(founded):
    founded.away = {"/disk/b"}
    with pytest.raises(StoreUnavailable):
        founded.log("/disk/b")
    founded.away = set(URLS)
    with pytest.raises(StoreUnavailable, match=r"/disk/a, /disk/b.*it is away"):
        founded.log("/disk/a", "/disk/b")


def test_addresses_of_two_clusters_are_refused(founded):
    others = ("/other/a", "/other/b", "/other/c")
    founded.found(*others)
    other = founded.at["/other/b"]
    for generation in (1, 2):  # before and after the journals of one have moved
        journal_nodes.write(msgspec.structs.replace(journal_nodes.read(other), generation=generation), other)
        for urls in (("/disk/a", "/other/b"), ("/other/b", "/disk/a")):
            with pytest.raises(InvalidOption, match="of cluster"):
                founded.log(*urls)


def test_an_address_that_is_no_journal_node_is_refused(founded):
    founded.log("/cluster", create=True)
    with pytest.raises(InvalidOption, match="/cluster is not"):
        founded.log("/disk/a", "/cluster")
    with pytest.raises(InvalidOption, match="none of /cluster, /root2 is a journal node"):
        founded.log("/cluster", "/root2")  # /root2 is empty


# The format

texts = st.text(max_size=20)
names = st.text(string.ascii_lowercase + string.digits + "_-", min_size=1, max_size=20)


@settings(max_examples=30)
@given(texts, st.lists(st.builds(JournalNode, names, texts, texts), max_size=5))
def test_the_list_is_read_as_it_was_written(cluster_id, nodes):
    stored = JournalNodes(cluster_id, tuple(nodes))
    assert journal_nodes.decode(journal_nodes.encode(stored), "it") == stored
