"""Where a task writes its rows, and when it need not wait for more nodes."""

import msgspec
import pytest

from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication.node_changes import AlterReplicaNode
from pyspark_log_coordinator.replication.write_targets import enough, targets_of, used_nodes, write_targets
from pyspark_log_coordinator.topic.machine import StartTopic, TopicStarted
from tests.support.coordinator.topics import SCHEMAS, after, commit, file, incarnation, started


def assigned(*assignments: tuple[str, ...], mode: str = "isr") -> Topic:
    """Return a topic without rows whose partitions are on these nodes."""
    nodes = sorted({node for each in assignments for node in each})
    incarnations = {node: incarnation(node) for node in nodes}
    return after(
        Topic(),
        StartTopic(TopicStarted("t", "1", TopicConfig(replication_mode=mode), SCHEMAS, incarnations, assignments)),
    )


def test_a_writer_of_a_quorum_waits_for_a_majority_of_the_partition_with_the_most_replicas():
    topic = assigned(("A",), ("A", "B", "C"), ("A", "B", "C", "D"), mode="quorum")
    assert enough(topic, "all") == 3
    assert enough(topic, "1") is None


@pytest.mark.parametrize(("mode", "all_targets"), [("isr", ("A",)), ("quorum", ("A", "B", "C"))])
def test_rows_go_to_the_isr_or_to_every_replica_of_a_quorum(mode, all_targets):
    topic = after(started(1, ("A", "B", "C")), commit(None, file({0: 1})))
    assert topic.partitions[0].isr == ("A",)
    topic = msgspec.structs.replace(topic, config=TopicConfig(replication_mode=mode))
    assert targets_of(topic, 0, "all", ()) == all_targets
    assert targets_of(topic, 0, "1", ()) == ("A",)


def test_fenced_and_missing_nodes_are_left_out_and_one_target_is_always_left():
    topic = after(started(1, ("A", "B", "C")), AlterReplicaNode("B", incarnation("B"), fenced=True))
    assert write_targets(topic, "all", ()) == (("A", "C"),)
    assert write_targets(topic, "all", ("C",)) == (("A",),)
    assert write_targets(topic, "1", ("A",)) == (("C",),)
    assert write_targets(topic, "all", ("A", "C")) == (("A",),)
    assert used_nodes(write_targets(topic, "all", ())) == {"A", "C"}
