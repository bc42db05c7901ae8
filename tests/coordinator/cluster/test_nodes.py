"""The nodes of a cluster: joining, fencing, new stores, racks and removal."""

import pytest

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster import nodes
from pyspark_log_coordinator.cluster.cluster_state import Cluster
from pyspark_log_coordinator.cluster.machine import CreateTopic, RemoveTopic, StartCluster
from pyspark_log_coordinator.cluster.nodes import (
    AT_THE_ROOT,
    AddNode,
    FenceNode,
    Node,
    RemoveNode,
    RenewNode,
    RenewTogether,
    SetRack,
    UnfenceNode,
)
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_storage.errors import InvalidName
from tests.support.coordinator.clusters import NOW, after, refusal


def node(name, url="", incarnation="", rack=""):
    return Node(name, url or f"/disk/{name}", rack, incarnation or f"incarnation of {name}")


def create(name="t", topic_id="1", factor=None, replicas=None, partitions=1, min_insync=1):
    config = TopicConfig(min_insync_replicas=min_insync)
    return CreateTopic(name, topic_id, partitions, config, (), factor, replicas)


@pytest.fixture
def three():
    """A cluster of nodes 0, 1 and 2."""
    first = StartCluster("c", (Node("0", AT_THE_ROOT, "", "incarnation of 0"),))
    return after(Cluster(), first, AddNode(node("1")), AddNode(node("2")))


# Joining


def test_a_rack_is_changed_and_nothing_else(three):
    moved = after(three, SetRack("1", "a"))
    assert moved.nodes == three.nodes | {"1": node("1", rack="a")}
    assert cluster.decide(moved, SetRack("1", "a"), NOW) == []
    assert after(moved, SetRack("1", "")) == three
    assert refusal(three, SetRack("9", "a")) == "node '9' does not exist (existing: 0, 1, 2)"


@pytest.mark.parametrize("rack", ["x" * 256, "a\nb", "\udcff"])
def test_a_rack_that_cannot_be_shown_is_refused(three, rack):
    for command in (SetRack("1", rack), AddNode(node("3", rack=rack))):
        with pytest.raises(InvalidName, match="invalid rack name"):
            cluster.decide(three, command, NOW)


def test_an_address_that_is_taken_is_refused(three):
    assert "/disk/1 is already node '1'" in refusal(three, AddNode(node("3", "/disk/1")))


def test_a_store_that_is_a_node_by_another_address_is_refused(three):
    assert "is already node '1', at another address" in refusal(three, AddNode(node("3", "/link", "incarnation of 1")))


@pytest.mark.parametrize("name", ["", "..", "a/b", "a:b", "a,b", "x" * 250])
def test_an_id_that_cannot_be_a_name_is_refused(three, name):
    with pytest.raises(InvalidName):
        cluster.decide(three, AddNode(node(name, "/disk/new", "new incarnation")), NOW)


def test_the_free_id_is_the_lowest_number_that_no_node_has_or_had(three):
    assert nodes.free_id({}, ()) == "0"
    assert nodes.free_id(three.nodes, three.former_nodes) == "3"
    state = after(three, FenceNode("1"), RemoveNode("1", frozenset(), 1), AddNode(node("east")))
    assert nodes.free_id(state.nodes, state.former_nodes) == "3"


# Fencing


def test_the_last_live_node_cannot_be_fenced(three):
    assert "the only one that is not fenced" in refusal(after(three, FenceNode("0"), FenceNode("1")), FenceNode("2"))


@pytest.mark.parametrize("command", [FenceNode("9"), UnfenceNode("9"), RenewNode("9", "/disk/9", "x")])
def test_an_unknown_node_is_an_error_that_says_what_there_is(three, command):
    assert refusal(three, command) == "node '9' does not exist (existing: 0, 1, 2)"


# Topics


def test_a_fenced_node_gets_nothing_new(three):
    state = after(three, FenceNode("1"), create(partitions=20))
    assert {name for each in state.topics["t"].assignments for name in each} == {"0", "2"}
    assert "names node '1', which is fenced" in refusal(state, create("u", "2", replicas=(("0", "1"),)))


def test_a_topic_has_three_replicas_by_default_where_there_are_as_many_live_nodes(three):
    def replicas(state, factor=None):
        return {len(each) for each in after(state, create(factor=factor, partitions=5)).topics["t"].assignments}

    assert replicas(three) == {3}
    assert replicas(after(three, AddNode(node("3")))) == {3}
    assert replicas(after(three, FenceNode("1"))) == {2}
    assert replicas(three, factor=2) == {2}


@pytest.mark.parametrize("factor", [0, -1, 4])
def test_more_replicas_than_nodes_in_service_are_refused(three, factor):
    said = refusal(three, create(factor=factor))
    assert said.startswith(f"topic 't' cannot have {factor} replicas of each partition: the cluster has 3 nodes;")
    assert said.endswith("choose 1 to 3, or add nodes")
    assert "has 2 nodes in service and 1 fenced" in refusal(after(three, FenceNode("1")), create(factor=3))
    assert "it has 2; choose fewer" in refusal(three, create(factor=2, min_insync=3))


# A store in the place of another


def test_a_renewed_node_has_another_incarnation_and_its_former_disk_does_not_come_back(three):
    renew = RenewNode("1", "/disk/1", "second incarnation")
    state = after(three, FenceNode("1"), renew)
    assert state.nodes["1"] == Node("1", "/disk/1", "", "second incarnation", fenced=True, fencings=1)
    assert [(each.node_id, each.incarnation) for each in state.former_nodes] == [("1", "incarnation of 1")]
    assert cluster.decide(state, renew, NOW) == []
    said = refusal(state, RenewNode("1", "/disk/1", "incarnation of 1"))
    assert said.startswith("the store at /disk/1 was node '1' before that was renewed or removed")
    moved = after(three, RenewNode("1", "/moved", "incarnation of 1"))
    assert (moved.nodes["1"].url, moved.former_nodes) == ("/moved", ())


def test_nodes_that_move_together_may_exchange_their_addresses_and_share_none(three):
    moves = RenewNode("1", "/disk/2", "incarnation of 1"), RenewNode("2", "/disk/1", "incarnation of 2")
    state = after(three, RenewTogether(moves))
    assert [state.nodes[each].url for each in "12"] == ["/disk/2", "/disk/1"]
    assert state.former_nodes == ()
    assert cluster.decide(state, RenewTogether(moves), NOW) == []
    assert "/disk/2 is already node '2'" in refusal(three, RenewTogether(moves[:1]))
    together = RenewTogether((moves[0], RenewNode("2", "/disk/2", "incarnation of 2")))
    assert "/disk/2 is already node '2'" in refusal(three, together)


# Leaving


def test_a_node_is_removed_if_it_is_fenced_not_the_root_and_no_topic_may_have_replicas_on_it(three):
    def remove(name, *moved):
        return RemoveNode(name, frozenset(moved), 1)

    state = after(three, create("a", "1"), create("b", "2"), create("c", "3"), FenceNode("1"))
    assert "has replicas of topics a, c; reassign these" in refusal(state, remove("1", "2"))
    again = after(state, RemoveTopic("a", "1"), create("a", "4", replicas=(("2",),)))
    assert "has replicas of topics a;" in refusal(again, remove("1", "1", "2", "3")), "another life is another topic"
    gone = after(state, remove("1", "1", "2", "3"))
    assert list(gone.nodes) == ["0", "2"]
    assert cluster.decide(gone, remove("1"), NOW) == []
    assert cluster.MACHINE.decode_state(cluster.MACHINE.encode_state(gone)) == gone
    assert refusal(three, remove("1")).startswith("node '1' is not fenced; fence it first")
    assert "is the cluster root" in refusal(after(three, FenceNode("0")), remove("0"))


@pytest.mark.parametrize("commands", [(UnfenceNode("1"), FenceNode("1")), (FenceNode("1", again=True),)])
def test_a_node_that_was_used_since_its_topics_were_read_is_not_removed(three, commands):
    state = after(three, FenceNode("1"), *commands)
    assert (state.nodes["1"].fenced, state.nodes["1"].fencings) == (True, 2)
    late, now = (RemoveNode("1", frozenset(), fencings) for fencings in (1, 2))
    assert "was fenced again meanwhile" in refusal(state, late)
    gone = after(state, now)
    assert "1" not in gone.nodes
    again = FenceNode("1", again=True)
    assert cluster.decide(three, again, NOW) == cluster.decide(gone, again, NOW) == []


def test_neither_id_nor_store_of_a_removed_node_are_used_again(three):
    state = after(three, FenceNode("1"), RemoveNode("1", frozenset(), 1))
    assert "ids are never reused" in refusal(state, AddNode(node("1", "/disk/new", "new incarnation")))
    assert "was node '1' before" in refusal(state, AddNode(node("3", "/disk/1", "incarnation of 1")))
