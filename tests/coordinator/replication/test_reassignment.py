"""Reassignments and node changes: cases that no story covers."""

import pytest

from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.replication.election import ElectLeaders, LeaderElected
from pyspark_log_coordinator.replication.file_holders import HoldFiles
from pyspark_log_coordinator.replication.node_changes import AlterReplicaNode, ReplicasFenced, ReplicasRenewed
from pyspark_log_coordinator.replication.reassignment import AddPartitions, AlterReplicas, original
from pyspark_log_coordinator.replication.suspicion import Suspect
from pyspark_log_storage.errors import InvalidInput
from tests.support.coordinator.topics import after, commit, decide, file, incarnation, started

ABC = ("A", "B", "C")
INCARNATIONS = {node: incarnation(node) for node in "ABCD"}


def move(*nodes, partition=0, incarnations=INCARNATIONS):
    return AlterReplicas({partition: nodes}, incarnations)


@pytest.mark.parametrize("to", ["B", "ABC"])
def test_while_replicas_are_added_those_that_were_there_are_enough_to_write(to):
    state = after(started(replicas=("A",), min_insync=2), move(*to))
    assert set(state.partitions[0].replicas) == {"A", *to}
    state = after(state, commit(None, file({0: 1})))
    assert (state.partitions[0].isr, state.partitions[0].high_watermark) == (("A",), 1)
    if to == "B":
        state = after(state, HoldFiles("B", incarnation("B"), (0,)))
        assert (state.partitions[0].replicas, state.partitions[0].leader) == (("B",), "B")


def test_a_late_reassignment_does_not_bring_back_the_former_store_of_a_node():
    state = after(started(2, ABC), AlterReplicaNode("C", "another"))
    state = after(state, move("A", "C"))
    state = after(state, AddPartitions((("A", "C"),), INCARNATIONS))
    assert state.incarnations["C"] == "another"


@pytest.mark.parametrize("nodes", [(), ("A", "A"), ("A", "Z")])
def test_an_assignment_that_cannot_be_is_refused(nodes):
    with pytest.raises(InvalidInput, match="name each node once"):
        decide(started(replicas=ABC), move(*nodes))
    with pytest.raises(InvalidInput, match="name each node once"):
        decide(started(replicas=ABC), AddPartitions((nodes,), INCARNATIONS))


def test_a_partition_does_not_move_to_a_fenced_node_and_may_stay_on_one():
    state = after(started(2, ABC), move("A", "B"))
    state = after(state, AlterReplicaNode("C", incarnation("C"), fenced=True))
    with pytest.raises(InvalidInput, match="node C, which is fenced"):
        decide(state, move("A", "C"))
    assert decide(state, move("C", "A", partition=1)) != []


def led_by_one_that_is_being_added():
    """Return a topic that moves from A to B and C, where B leads already, and C lags."""
    state = after(started(replicas=("A",)), commit(None, file({0: 1})))
    state = after(after(state, move("B", "C")), HoldFiles("B", incarnation("B"), (0,)))
    state = after(state, Suspect("A", incarnation("A")))
    live = (Holder("B", incarnation("B")), Holder("C", incarnation("C")))
    return after(state, ElectLeaders(live, {"A": state.suspicions}))


def test_where_a_node_that_was_being_added_leads_another_does_when_the_reassignment_is_cancelled():
    state = led_by_one_that_is_being_added()
    assert (state.partitions[0].leader, state.partitions[0].isr) == ("B", ("B",))
    with pytest.raises(InvalidInput, match="partition 0: only B has every row, but would no longer be a replica"):
        decide(state, move("A"))
    back = after(state, HoldFiles("A", incarnation("A")))
    assert back.partitions[0].isr == ("B", "A")
    elected, altered = decide(back, move("A"))
    assert (elected.leader, elected.leader_epoch, altered.replicas) == ("A", 2, ("A",))
    one = after(back, move("A")).partitions[0]
    assert (one.leader, one.isr, one.high_watermark, one.adding) == ("A", ("A",), 1, ())


def test_cancelling_restores_the_order_of_the_replicas():
    state = after(started(replicas=("A", "B")), commit(None, file({0: 1}, on=("A", "B"))))
    state = after(after(state, move("B", "A", "C")), move("B", "D", "A"))
    assert original(state.partitions[0]) == ("A", "B")
    state = after(state, move(*original(state.partitions[0])))
    assert (state.partitions[0].replicas, state.partitions[0].adding) == (("A", "B"), ())
    state = after(state, move("B", "A"))
    assert original(state.partitions[0]) == ("B", "A")


def test_a_quorum_moves_only_when_a_majority_of_the_new_replicas_has_what_is_committed():
    state = after(started(replicas=ABC, replication_mode="quorum"), commit(None, file({0: 1}, on=ABC)))
    state = after(state, move("D", "E", "F", incarnations={node: incarnation(node) for node in "ABCDEF"}))
    for node in "DE":
        state = after(state, HoldFiles(node, incarnation(node), (0,)))
    state = after(state, commit(None, file({0: 1}, on=ABC), acks="1"))
    # With F the second row is on four of six nodes. D and E lag, and stay in the ISR.
    state = after(state, HoldFiles("F", incarnation("F"), (0, 1)))
    one = state.partitions[0]
    assert (one.high_watermark, set(one.isr), one.removing) == (2, set("ABCDEF"), ABC)
    state = after(state, HoldFiles("D", incarnation("D"), (1,)))
    assert state.partitions[0].replicas == ("D", "E", "F")


def test_a_quorum_keeps_the_nodes_that_were_being_added_while_too_few_others_have_what_is_committed():
    everybody = {node: incarnation(node) for node in "ABCDEFG"}
    state = after(started(replicas=ABC, replication_mode="quorum"), move(*"ABCDEFG", incarnations=everybody))
    state = after(state, commit(None, file({0: 1}, on="ADEF")))
    assert state.partitions[0].high_watermark == 1
    with pytest.raises(InvalidInput, match="partition 0: too few of its former replicas, A, B, C, have all committed"):
        decide(state, move(*ABC, incarnations=everybody))
    state = after(state, HoldFiles("C", incarnation("C"), (0,)))
    assert after(state, move(*ABC, incarnations=everybody)).partitions[0].replicas == ABC


def test_partitions_are_added_once_where_it_is_said_behind_which():
    command = AddPartitions((("A", "B"),), INCARNATIONS, first=1)
    state = after(started(replicas=ABC), command)
    assert len(state.partitions) == 2
    assert decide(state, command) == []


# Nodes


def test_a_wiped_or_fenced_node_gives_its_lead_away_once_to_one_that_is_neither_fenced_nor_suspected():
    events = decide(started(replicas=ABC), AlterReplicaNode("A", "another", fenced=True))
    assert events == [ReplicasRenewed("A", "another"), ReplicasFenced("A"), LeaderElected(0, "B", 1, 0, ("B", "C"))]
    state = after(started(replicas=ABC), Suspect("B", incarnation("B")))
    _, event = decide(state, AlterReplicaNode("A", "another"))
    assert event.leader == "C"
    state = after(started(replicas=ABC), AlterReplicaNode("A", incarnation("A"), fenced=True))
    state = after(state, AddPartitions((("A", "B"),), INCARNATIONS))
    assert (state.partitions[1].leader, state.partitions[1].isr) == ("B", ("B",))


def test_what_a_process_knew_of_a_node_before_the_topic_learned_more_changes_nothing():
    state = after(after(started(replicas=ABC), Suspect("B", incarnation("B"))), AlterReplicaNode("B", "another"))
    assert state.suspects == {}, "it is another now"
    assert decide(state, AlterReplicaNode("B", "another")) == []
    assert decide(state, AlterReplicaNode("Z", "whatever", fenced=True)) == []
    assert decide(state, AlterReplicaNode("B", "late", fenced=True, instead_of=(incarnation("B"), False))) == []
    assert decide(state, AlterReplicaNode("B", "newest", instead_of=("another", True))) == []
    assert after(state, AlterReplicaNode("B", "newest", instead_of=("another", False))).incarnations["B"] == "newest"


def test_when_the_last_member_of_the_isr_is_in_service_again_it_leads():
    state = after(started(replicas=("A",)), AlterReplicaNode("A", incarnation("A"), fenced=True))
    assert state.partitions[0].leader is None
    state = after(state, AlterReplicaNode("A", incarnation("A")))
    assert state.partitions[0].leader == "A"
