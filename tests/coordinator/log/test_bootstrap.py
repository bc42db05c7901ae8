"""Clusters with several journal nodes: created, found by any address, and opened while one store is unreachable."""

import string
import threading

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_coordinator.audit import verify
from pyspark_log_coordinator.journal import journal_nodes
from pyspark_log_coordinator.journal.journal_nodes import JournalNode, JournalNodes
from pyspark_log_coordinator.journal.replay import EntryMissing
from pyspark_log_coordinator.log import bootstrap, node_admin
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.maintenance import cluster_cleanup
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    CorruptObject,
    InvalidOption,
    NewerFormat,
    NoCluster,
    NodeAway,
    OutcomeUnknown,
    StoreRefused,
    StoreUnavailable,
)
from pyspark_log_storage.objects import node
from pyspark_log_storage.stores import addresses
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.journal_disks import URLS, Disks, patient
from tests.support.coordinator.several_nodes import one_after_another
from tests.support.counting_store import CountingStore
from tests.support.elsewhere import PlainStore, wipe


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


def test_creating_a_cluster_again_changes_nothing(founded):
    before = founded.log()
    assert founded.found() == before.journals.nodes
    assert founded.log(create=True).cluster.number == before.cluster.number


@pytest.mark.parametrize("wiped", URLS)
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


def test_creating_a_cluster_again_does_not_let_a_renewed_store_vote_again(founded):
    log = founded.log()
    wipe(founded.at["/disk/a"])
    node_admin.renew(log, "0")
    with pytest.raises(InvalidOption, match="/disk/a is another disk"):
        founded.found()
    assert journal_nodes.read(founded.at["/disk/a"]) is None


@pytest.mark.parametrize("url", URLS)
def test_two_processes_may_finish_an_interrupted_creation_at_once(disks, url):
    first = disks.at[URLS[0]]
    first.create(layout.MARKER, node.encode(node.Marker("cluster", "0", "of the interrupted one")))
    stores, found = [disks.open(each) for each in URLS], []
    read = stores[URLS.index(url)].read

    def read_and_be_slow(key, *more):
        try:
            return read(key, *more)
        finally:
            if not found:
                found.append(disks.found())

    stores[URLS.index(url)].read = read_and_be_slow
    assert [bootstrap.mark(stores, fake_environment())] == found


@pytest.mark.parametrize("creates", range(20))
def test_an_interrupted_creation_is_finished_by_the_next_call(disks, creates):
    left = [creates]

    def limited(url):
        store = disks.open(url)
        creating = store.create

        def create(key, data):
            if left[0] == 0:
                raise StoreRefused(url, key, "the process ended")
            left[0] -= 1
            return creating(key, data)

        store.create = create
        return store

    def process(open_store):
        bootstrap.mark([open_store(url) for url in URLS], fake_environment())
        log = Log([open_store(url) for url in URLS], fake_environment(), open_node=open_store)
        log.open(create=True)

    try:
        process(limited)
    except (StoreRefused, OutcomeUnknown):
        # Meanwhile nobody may begin a cluster on one of the stores that have a marker.
        for url in URLS:
            if node.read_marker(disks.at[url]) is not None and journal_nodes.read(disks.at[url]) is None:
                with pytest.raises(NoCluster, match="pyspark-log cluster create"):
                    disks.log(url, create=True)
        left[0] = 10**9
        process(limited)
    state = disks.log().cluster.state
    assert list(state.nodes) == ["0", "1", "2"]
    assert disks.log(URLS[2]).cluster.state == state


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


def test_stores_whose_addresses_begin_alike_do_not_overlap(disks):
    assert disks.found("/disk/1", "/disk/10", "/disk/100").urls == ("/disk/1", "/disk/10", "/disk/100")


def test_a_store_of_another_cluster_is_refused_and_nothing_is_written(disks):
    disks.log("/disk/b", create=True)
    with pytest.raises(InvalidOption, match="/disk/b is already node '0' of cluster"):
        disks.found()
    assert list(disks.at["/disk/a"].list("")) == []


def test_the_root_of_a_cluster_on_one_store_does_not_become_a_journal_node(disks):
    disks.log("/disk/a", create=True)
    with pytest.raises(InvalidOption, match="/disk/a is already node '0'"):
        disks.found()


def test_journal_nodes_in_another_order_are_refused(founded):
    with pytest.raises(InvalidOption, match="already"):
        founded.found("/disk/b", "/disk/a", "/disk/c")


def test_one_store_by_two_addresses_is_refused(disks):
    disks.at["/mnt/a"] = disks.at["/disk/a"]
    with pytest.raises(InvalidOption, match=r"/disk/a|/mnt/a"):
        disks.found("/disk/a", "/mnt/a", "/disk/b")


def test_a_node_that_is_no_root_does_not_begin_a_cluster(disks):
    disks.at["/disk/a"].create(layout.MARKER, node.encode(node.Marker("c", "7", "i")))
    with pytest.raises(NoCluster, match="node '7' of cluster c, not a root"):
        disks.log("/disk/a", create=True)


# Finding


@pytest.mark.parametrize("given", [URLS[:1], URLS[1:2], URLS[1:], URLS, URLS[::-1]], ids=str)
def test_any_addresses_lead_to_all_journal_nodes(founded, given):
    log = founded.log(*given)
    assert log.journals.nodes.urls == URLS
    assert log.store.url == URLS[0]
    log.create_topic("t", 1)
    assert "t" in founded.log(*URLS[:1]).topics()


@pytest.mark.parametrize("away", URLS)
def test_a_cluster_works_while_one_journal_node_is_unreachable(founded, away):
    founded.log().create_topic("before", 1)
    founded.away = {away}
    log = founded.log()
    log.create_topic("t", 1)
    assert sorted(founded.log().topics()) == ["before", "t"]
    founded.away = set()
    assert sorted(founded.log(away).topics()) == ["before", "t"]


def test_an_unreachable_address_alone_is_a_retriable_error(founded):
    founded.away = {"/disk/b"}
    with pytest.raises(StoreUnavailable):
        founded.log("/disk/b")
    founded.away = set(URLS)
    with pytest.raises(StoreUnavailable, match=r"/disk/a, /disk/b.*it is away"):
        founded.log("/disk/a", "/disk/b")


def test_a_journal_node_by_another_address_leads_to_the_cluster_too(founded):
    founded.at["/mnt/b"] = founded.at["/disk/b"]
    assert founded.log("/mnt/b").journals.nodes.urls == URLS
    assert founded.log("/disk/a", "/mnt/b").journals.nodes.urls == URLS


def test_addresses_of_two_clusters_are_refused(founded):
    others = ("/other/a", "/other/b", "/other/c")
    founded.found(*others)
    for urls in (("/disk/a", "/other/b"), ("/other/b", "/disk/a")):
        with pytest.raises(InvalidOption, match="of cluster"):
            founded.log(*urls)


def test_addresses_of_two_clusters_are_refused_if_the_journals_of_one_have_moved(founded):
    founded.found("/other/a", "/other/b", "/other/c")
    other = founded.at["/other/b"]
    assert journal_nodes.write(msgspec.structs.replace(journal_nodes.read(other), generation=2), other)
    with pytest.raises(InvalidOption, match="of cluster"):
        founded.log("/disk/a", "/other/b")


def test_a_store_keeps_its_list_of_journal_nodes_if_it_is_given_no_newer_one(founded):
    store = founded.at["/disk/b"]
    nodes, keys = journal_nodes.read(store), list(store.list(""))
    assert not journal_nodes.write(nodes, store)
    assert list(store.list("")) == keys


def test_an_address_that_is_no_journal_node_is_refused(founded):
    founded.log("/cluster", create=True)
    with pytest.raises(InvalidOption, match="/cluster is not"):
        founded.log("/disk/a", "/cluster")
    with pytest.raises(InvalidOption, match="none of /cluster, /root2 is a journal node"):
        founded.log("/cluster", "/root2")  # /root2 is empty


def test_journal_nodes_without_any_marker_may_come_back(founded):
    with pytest.raises(NodeAway, match="none of /empty1, /empty2 has a marker: are their disks mounted") as caught:
        founded.log("/empty1", "/empty2")
    assert caught.value.retriable


def test_a_hanging_store_delays_no_other(founded):
    release = threading.Event()
    hanging = founded.open("/disk/a")

    def hang(*args, **more):
        release.wait()
        raise StoreUnavailable("/disk/a", "", "it was away")

    hanging.read = hanging.create = hang
    nodes = journal_nodes.find([hanging, founded.open("/disk/b"), founded.open("/disk/c")], fake_environment())
    release.set()
    assert nodes.urls == URLS


def test_no_folder_is_looked_at_to_find_out_that_an_address_is_in_the_list(founded, monkeypatch):
    """One whose file server is down would hang."""
    monkeypatch.setattr(addresses.os.path, "samefile", lambda *paths: pytest.fail(f"it looks at {paths}"))
    assert founded.log().journals.nodes.urls == URLS


def test_a_copy_is_read_although_one_of_its_journal_nodes_is_away(founded):
    founded.log().create_topic("t", 1)
    copies = tuple(url.replace("/disk", "/copy") for url in URLS)
    for url, copy in zip(URLS, copies, strict=True):
        founded.at[copy] = PlainStore(copy)
        for key in founded.at[url].list(""):
            founded.at[copy].create(key, founded.at[url].read(key))
    founded.away = {*URLS, copies[2]}
    log = founded.log(*copies)
    assert "it can be read" in log.journals.refusal.lower()
    assert list(log.topics()) == ["t"]


def test_a_log_opened_before_the_cluster_existed_finds_the_journal_nodes_later(disks):
    log = Log(disks.open("/disk/b"), fake_environment(), open_node=disks.open, probe=one_after_another)
    with pytest.raises(NoCluster):
        log.open(create=False)
    disks.found()
    disks.log(create=True)
    log.open(create=False)
    assert log.journals.nodes.urls == URLS


def test_a_cluster_on_one_store_has_no_list_and_opening_it_again_looks_for_none(disks):
    store = disks.open("/disk/a")
    log = Log(store, fake_environment())
    log.open(create=True)
    assert log.journals.nodes is None
    assert layout.JOURNAL_NODES not in list(store.list(""))
    store.reads.clear()
    log.open(create=True)
    assert layout.JOURNAL_NODES not in store.reads


# Upkeep and audits


def test_a_deleted_topic_leaves_the_end_of_its_journal_on_each_store(founded):
    log = founded.log()
    handle = log.create_topic("t", 1)
    log.delete_topic("t")
    for store in log.stores():
        store.create(handle.append_file(layout.born_name(0, "x")), b"bytes")
    later = Log([founded.open(url) for url in URLS], patient(), open_node=founded.open, probe=one_after_another)
    later.open(create=False)
    [gone] = cluster_cleanup.clean_up_cluster(later).deleted_topics
    assert gone.objects > 3
    # The third store may have been behind; what comes late goes the next time.
    cluster_cleanup.clean_up_cluster(later)
    journal = cluster_cleanup.journal_of(later, "t", handle.topic_id)
    assert journal.refresh().deleted
    for store in founded.at.values():
        assert set(store.list(layout.topic_folder("t", handle.topic_id))) <= set(journal.end_keys())
    assert cluster_cleanup.clean_up_cluster(later).deleted_topics == ()


def test_an_audit_names_the_unreachable_journal_node(founded):
    log = founded.log()
    log.create_topic("t", 1)
    assert verify.verify_cluster(log).sound
    founded.away = {"/disk/c"}
    [finding] = verify.verify_cluster(founded.log()).findings
    assert (finding.what, "it is away" in finding.detail) == ("journal node '2'", True)
    founded.away = set()
    founded.at["/disk/b"].put(layout.JOURNAL_NODES, journal_nodes.encode(JournalNodes("c", ())))
    [finding] = verify.verify_cluster(founded.log("/disk/a")).findings
    assert (finding.what, "other journal nodes" in finding.detail) == ("journal node '1'", True)


def test_a_cluster_with_an_entry_that_is_missing_on_a_majority_cannot_be_opened(founded):
    log = founded.log()
    for name in ("t", "u", "v"):
        log.create_topic(name, 1)
    founded.log()
    newest = log.cluster.number
    for url in URLS[:2]:
        for key in list(founded.at[url].list("cluster/")):
            if layout.number(newest - 1) in key:
                founded.at[url].delete(key)
    with pytest.raises(EntryMissing, match=layout.number(newest - 1)):
        founded.log()


# The format

texts = st.text(max_size=20)
names = st.text(string.ascii_lowercase + string.digits + "_-", min_size=1, max_size=20)


@given(texts, st.lists(st.builds(JournalNode, names, texts, texts)))
def test_the_list_is_read_as_it_was_written(cluster_id, nodes):
    stored = JournalNodes(cluster_id, tuple(nodes))
    assert journal_nodes.decode(journal_nodes.encode(stored), "it") == stored


def test_a_damaged_list_is_an_error_that_names_it(founded):
    founded.at["/disk/a"].put(layout.JOURNAL_NODES, b"rotten")
    with pytest.raises(CorruptObject, match="/disk/a/cluster/journal-nodes"):
        founded.log("/disk/a")
    assert founded.log().journals.nodes.urls == URLS


def test_a_list_cannot_name_the_root(disks):
    root = JournalNode("0", ".", "i")
    disks.open("/disk/a").create(layout.JOURNAL_NODES, journal_nodes.encode(JournalNodes("c", (root, root, root))))
    with pytest.raises(CorruptObject, match=r"the cluster at /disk/a is damaged: a node's address is '\.'"):
        disks.log("/disk/a")


def test_a_list_with_another_field_stops_this_version():
    body = b'{"cluster": "c", "nodes": [], "moved": true}'
    with pytest.raises(NewerFormat):
        journal_nodes.decode(journal_nodes.seal(b"PLJN", 1, body), "it")


@pytest.mark.parametrize("key", [layout.JOURNAL_NODES, f"{layout.JOURNAL_NODES}.{layout.number(2)}"])
def test_of_a_list_of_journal_nodes_that_is_too_large_only_a_part_is_read(key):
    store = CountingStore()
    members = tuple(JournalNode(str(each), f"/disk/{each}", f"{each:032x}") for each in range(3))
    store.put(layout.JOURNAL_NODES, journal_nodes.encode(JournalNodes("c", members)))
    store.put(key, journal_nodes.encode(JournalNodes("c", members, 2)) + bytes(3 * journal_nodes.BYTES_MAX))
    with pytest.raises(CorruptObject, match="journal-nodes"):
        journal_nodes.read(store)
    assert store.received < 2 * journal_nodes.BYTES_MAX
