"""The stores of the journals: accepted and refused moves."""

import pytest

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.cluster_state import Cluster
from pyspark_log_coordinator.cluster.journal_stores import MoveJournals
from pyspark_log_coordinator.cluster.machine import StartCluster
from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT, AddNode, FenceNode, Node, RemoveNode, RenewNode
from pyspark_log_coordinator.journal.journal_nodes import JournalNode
from pyspark_log_coordinator.journal.state_machine import EndJournal, JournalEnded
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.machine import DeleteTopic, StartTopic, TopicStarted
from tests.support.coordinator.clusters import NOW, after, refusal


def node(name):
    return Node(name, f"/disk/{name}", "", f"incarnation {name}")


def journal_node(name, incarnation="incarnation"):
    return JournalNode(name, f"/disk/{name}", f"{incarnation} {name}")


FIRST = tuple(map(journal_node, "012"))


def move(ids):
    return MoveJournals(tuple(ids))


@pytest.fixture
def six():
    """A cluster of six nodes, on the first three of which the journals are."""
    state = after(Cluster(), StartCluster("c", tuple(map(node, "012"))))
    return after(state, *(AddNode(node(name)) for name in "345"))


def test_a_move_names_the_nodes_as_they_are_now(six):
    state = after(six, RenewNode("0", "/disk/0", "second incarnation 0"), move("034"))
    assert state.journals.generation == cluster.MACHINE.generation(state) == 2
    assert state.journals.nodes == (journal_node("0", "second incarnation"), journal_node("3"), journal_node("4"))


def test_a_move_to_the_same_nodes_is_one_where_a_node_has_another_store(six):
    state = after(six, RenewNode("1", "/disk/new", "another incarnation"), move("012"))
    assert state.journals.nodes[1] == JournalNode("1", "/disk/new", "another incarnation")


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        ("019", "node '9' does not exist"),
        ("01", "need at least 3 journal nodes (3 tolerate one failure, 5 two); got 2"),
        ("0113", "named twice"),
        ("015", "node '5' is fenced"),
    ],
)
def test_nodes_that_cannot_hold_journals_are_refused(six, ids, reason):
    assert reason in refusal(after(six, FenceNode("5")), move(ids))


def test_journals_at_the_root_stay_there():
    state = after(Cluster(), StartCluster("c", (Node("0", AT_THE_ROOT, "", "incarnation"),)))
    state = after(state, *(AddNode(node(name)) for name in "123"))
    assert "at the cluster root" in refusal(state, MoveJournals(tuple("123")))
    assert "at the cluster root" in refusal(state, MoveJournals(tuple("012")))


def test_a_node_that_has_journals_is_not_removed_and_one_that_they_left_is(six):
    def removal(name):
        return RemoveNode(name, frozenset(), 1)

    fenced = after(six, *(FenceNode(name) for name in "01"))
    assert "is a journal node" in refusal(fenced, removal("0"))
    moved = after(six, move("034"), *(FenceNode(name) for name in "0134"))
    assert "1" not in after(moved, removal("1")).nodes
    for name in "034":
        assert "is a journal node" in refusal(moved, removal(name))


def test_a_topics_journal_ends_once_in_each_generation_and_after_the_topic_was_deleted_too():
    state = Topic()
    start = StartTopic(TopicStarted("t", "id", TopicConfig(), (), {"0": "incarnation"}, (("0",),)))
    ends = [EndJournal(JournalEnded(generation, FIRST)) for generation in (2, 3, 4)]
    for command, generation in ((start, 1), (ends[0], 2), (ends[0], 2), (ends[1], 3), (DeleteTopic(), 3)):
        for event in topic.decide(state, command, NOW):
            state = topic.evolve(state, event)
        assert topic.MACHINE.generation(state) == generation
    [ended] = topic.decide(state, ends[2], NOW)
    assert topic.evolve(state, ended).deleted
