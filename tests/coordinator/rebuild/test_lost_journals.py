"""A rebuild is refused, or needs --journals-lost, if the journals may go on where they have migrated to."""

import itertools

import pytest

from pyspark_log_coordinator.cluster.journal_stores import MoveJournals
from pyspark_log_coordinator.journal import journal_nodes
from pyspark_log_coordinator.journal.journal_nodes import JournalNode, JournalNodes
from pyspark_log_coordinator.rebuild.lost_journals import GivenNode, LostJournals
from pyspark_log_coordinator.rebuild.survey import survey
from pyspark_log_storage import layout
from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.objects.node import Marker
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.migrated_journals import cluster_of_six, move
from tests.support.memory_store import MemoryStore


@pytest.fixture
def six():
    """A cluster of six nodes, whose journals are on a, b and c."""
    return cluster_of_six()


def look(six, *nodes):
    return survey([six.open(f"/disk/{node}") for node in nodes], fake_environment(), open_node=six.open)


def test_the_newest_journal_nodes_count_though_a_node_that_was_away_names_former_ones(six):
    six.away = {"/disk/a"}
    move(six, "2", "3", "4", log=six.log("/disk/b", "/disk/c"))
    six.away = {"/disk/c", "/disk/3"}
    assert "/disk/c, /disk/3" in look(six, "a", "b", "4").journals.may_live


def test_journals_may_live_where_a_readable_journal_says_it_has_migrated_to(six):
    """The process that began the migration was killed before it told the former journal nodes."""
    log = six.log()
    log.cluster.submit(MoveJournals(("2", "3", "4")))
    six.log().create_topic("later", 1)
    six.away = {"/disk/c", "/disk/3", "/disk/4"}
    found = look(six, "a", "b")
    assert "/disk/c, /disk/3, /disk/4" in found.journals.may_live
    assert found.journals.generation == 3
    six.away = {"/disk/c"}
    with pytest.raises(InvalidOption, match="can be read"):
        look(six, "a", "b")


def given(*nodes, lists=()):
    """Nodes that were given, each with a marker, and with the newest list of journal nodes."""
    made = tuple(GivenNode(MemoryStore(f"/disk/{node}"), Marker("c", node, f"i{node}")) for node in nodes)
    for each, names in itertools.product(made, lists):
        listed = JournalNodes("c", tuple(JournalNode(name, f"/disk/{name}", f"i{name}") for name in names))
        each.store.put(layout.JOURNAL_NODES, journal_nodes.encode(listed))
    return LostJournals(made)


@pytest.mark.parametrize(
    ("nodes", "listed", "may_live"),
    [
        ("abc", "abc", False),
        ("ab", "abc", False),
        ("a", "abc", True),
        ("ab", "abcd", False),
        ("abc", "abcde", False),
        ("ab", "abcde", True),
        ("d", "abc", True),
        ("d", "", True),
    ],
)
def test_journals_may_live_unless_so_many_of_their_nodes_are_given_that_the_others_are_no_majority(
    nodes, listed, may_live
):
    assert (given(*nodes, lists=[listed] if listed else []).may_live is not None) == may_live


def test_the_new_journals_are_on_one_node_or_on_at_least_three_of_those_that_were_given():
    journals = given("a", "b", "c", "d")

    def chosen(*nodes):
        return [store.url[-1] for store in journals.stores_to_begin_on([f"/disk/{node}" for node in nodes])]

    assert [chosen("b"), chosen("b", "b"), chosen("d", "b", "a"), chosen("a", "b", "c", "d")] == [
        ["b"],
        ["b"],
        ["d", "b", "a"],
        ["a", "b", "c", "d"],
    ]
    for two in (("a", "b"), ("a", "b", "a")):
        with pytest.raises(InvalidOption, match="or at least 3 to tolerate a failure; got 2"):
            chosen(*two)
    with pytest.raises(InvalidOption, match="/disk/e: it is not one of the given nodes"):
        chosen("a", "b", "e")


def test_new_journals_begin_on_the_nodes_to_which_a_readable_journal_says_they_have_migrated(six):
    log = six.log()
    log.cluster.submit(MoveJournals(("2", "3", "4")))
    six.log().create_topic("later", 1)
    for node in ("c", "3", "4"):
        store = six.open(f"/disk/{node}")
        for key in list(store.list("cluster/entries.2/")):
            store.put(key, b"damaged")
        for key in list(store.list("cluster/snapshots/")):
            store.put(key, b"damaged")
    found = look(six, "a", "b", "c", "3", "4")
    assert [store.url for store in found.journal_stores] == ["/disk/c", "/disk/3", "/disk/4"]
