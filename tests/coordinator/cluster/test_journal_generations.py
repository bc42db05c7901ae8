"""Journal generations: accepted and refused migrations, and the journal nodes known during one."""

import pytest

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.machine import (
    AddNode,
    CreateTopic,
    FenceNode,
    FinishJournalMigration,
    Node,
    RemoveNode,
    RemoveTopic,
    RenewNode,
    StartCluster,
    StartJournalMigration,
)
from pyspark_log_coordinator.journal.journal_nodes import JournalNode
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.machine import DeleteTopic, MoveJournal, StartTopic
from tests.support.coordinator.clusters import NOW, after, refusal


def node(name):
    return Node(name, f"/disk/{name}", "", f"incarnation {name}")


def journal_node(name, incarnation="incarnation"):
    return JournalNode(name, f"/disk/{name}", f"{incarnation} {name}")


FIRST = tuple(map(journal_node, "012"))


def create(name):
    return CreateTopic(name, f"id {name}", 1, TopicConfig(), ())


def move(ids):
    return StartJournalMigration(tuple(ids), FIRST)


@pytest.fixture
def six():
    """A cluster of six nodes, on the first three of which the journals are, with a topic."""
    state = after(cluster.Cluster(), StartCluster("c", tuple(map(node, "012"))))
    return after(state, *(AddNode(node(name)) for name in "345"), create("t"))


def test_a_move_names_the_nodes_as_they_are_now(six):
    state = after(six, RenewNode("0", "/disk/0", "second incarnation 0"), move("034"))
    assert state.journals.generation == cluster.MACHINE.generation(state) == 2
    assert state.journals.nodes == (journal_node("0", "second incarnation"), journal_node("3"), journal_node("4"))
    assert state.journals.previous == FIRST
    assert state.journals.waiting == ("id t",)


def test_a_move_to_where_they_are_is_none(six):
    assert cluster.decide(six, move("210"), NOW) == []
    settled = after(six, move("034"), FinishJournalMigration(2, frozenset({"id t"})))
    assert cluster.decide(settled, move("340"), NOW) == []


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
    state = after(cluster.Cluster(), StartCluster("c", (Node("0", cluster.AT_THE_ROOT, "", "incarnation"),)))
    state = after(state, *(AddNode(node(name)) for name in "123"))
    assert "at the cluster root" in refusal(state, StartJournalMigration(tuple("123"), ()))
    assert "at the cluster root" in refusal(state, StartJournalMigration(tuple("012"), ()))


def test_a_move_that_is_under_way_is_gone_on_with_and_no_other_begun(six):
    state = after(six, move("034"))
    assert cluster.decide(state, move("403"), NOW) == []
    assert "a migration to nodes 0,3,4 is in progress; finish it first, with --to 0,3,4" in refusal(state, move("345"))


def test_a_move_ends_when_all_topics_that_were_there_have_moved(six):
    state = after(six, create("u"), move("034"), create("new"))
    refused = refusal(state, FinishJournalMigration(2, frozenset()))
    assert "those of topic 't', topic 'u' have not been migrated" in refused
    assert "those of topic 'u' have not been migrated" in refusal(state, FinishJournalMigration(2, frozenset({"id t"})))
    deleted = after(state, RemoveTopic("u", "id u"))
    for each, moved in ((state, {"id t", "id u"}), (deleted, {"id t"})):
        settled = after(each, FinishJournalMigration(2, frozenset(moved)))
        assert (settled.journals.previous, settled.journals.waiting) == ((), ())
        assert cluster.decide(settled, FinishJournalMigration(2, frozenset()), NOW) == []


def test_the_end_of_an_older_migration_ends_none(six):
    state = after(six, move("034"), FinishJournalMigration(2, frozenset({"id t"})), move("345"))
    assert cluster.decide(state, FinishJournalMigration(2, frozenset({"id t"})), NOW) == []
    assert state.journals.previous == (journal_node("0"), journal_node("3"), journal_node("4"))


def test_a_node_that_has_journals_or_may_have_is_not_removed_and_one_that_they_left_is(six):
    def removal(name, journals=frozenset()):
        return RemoveNode(name, frozenset({"id t"}), journals, 1)

    fenced = after(six, *(FenceNode(name) for name in "01"))
    assert "is a journal node" in refusal(fenced, removal("0", frozenset("012")))
    moving = after(six, move("034"), *(FenceNode(name) for name in "0134"))
    for name in "0134":
        assert "is a journal node" in refusal(moving, removal(name))
    settled = after(moving, FinishJournalMigration(2, frozenset({"id t"})))
    assert "1" not in after(settled, removal("1")).nodes
    for name in "034":
        assert "is a journal node" in refusal(settled, removal(name))


def test_a_topics_journal_moves_once_in_each_generation_and_after_its_end_too():
    state = topic.Topic()
    start = StartTopic("t", "id", TopicConfig(), (), {"0": "incarnation"}, (("0",),), generation=2)
    for command, generation in ((start, 2), (MoveJournal(2), 2), (MoveJournal(3), 3), (DeleteTopic(), 3)):
        for event in topic.decide(state, command, NOW):
            state = topic.evolve(state, event)
        assert topic.MACHINE.generation(state) == generation
    [moved] = topic.decide(state, MoveJournal(4), NOW)
    assert topic.evolve(state, moved).deleted
