"""The cleanup of one node publishes its Delta tables, and no table names a file that the node has not got."""

import pytest

from pyspark_log_coordinator.audit import node_recovery
from pyspark_log_coordinator.maintenance import topic_cleanup
from pyspark_log_coordinator.maintenance.follower import clean_up_node
from pyspark_log_coordinator.segments.orphans import RaiseOrphanFloor
from pyspark_log_coordinator.sync.catch_up import catch_up
from pyspark_log_storage.delta import delta_log
from pyspark_log_storage.layout import topic_folder
from tests.coordinator.audit.test_node_recovery import elect_uncleanly
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic


@pytest.fixture
def topic():
    """Two batches on all nodes, in a Parquet segment."""
    topic = ReplicatedTopic(
        retention_ms="-1", file_delete_delay_ms="0", orphan_retention_ms="0", segment_format="parquet"
    )
    for _ in range(2):
        topic.append(on=ALL, acks="all")
    topic.roll(2)
    for node in ALL[1:]:
        catch_up(topic.handle, node)
    return topic


def table(topic, node):
    """Return the paths that a node's table names."""
    store, folder = topic.log.node_store(node), topic_folder("t", topic.handle.topic_id)
    return sorted(delta_log.read(store, folder).files)


def test_the_table_of_the_node_is_published_and_no_other(topic):
    clean_up_node(topic.log, "1")
    assert table(topic, "1") == [f"0/{topic.partition().segments[0].name}"]
    assert table(topic, "2") == []


def orphans_are_deleted(topic):
    for _ in range(3):
        topic.append(on=ALL[1:], acks="all")
        topic.handle.submit(RaiseOrphanFloor(topic.handle.journal.number))
    clean_up_node(topic.log, "0")


def strays_are_deleted(topic):
    node_recovery.remove_strays(topic.handle, "0", node_recovery.strays(topic.handle, "0"))


@pytest.mark.parametrize("delete", [orphans_are_deleted, strays_are_deleted])
def test_a_segment_that_an_election_cut_off_leaves_the_table_before_its_file_is_deleted(topic, delete, monkeypatch):
    topic.append(on=("0",), acks="all")
    topic.roll(1)
    clean_up_node(topic.log, "0")
    kept, cut = (f"0/{each.name}" for each in topic.partition().segments)
    assert table(topic, "0") == [kept, cut]
    elect_uncleanly(topic, "2")
    delete_all, found = topic_cleanup.delete_all, []

    def deleted(store, keys):
        found.append((f"{topic_folder('t', topic.handle.topic_id)}{cut}" in keys, table(topic, "0")))
        delete_all(store, keys)

    monkeypatch.setattr(topic_cleanup, "delete_all", deleted)
    delete(topic)
    assert found == [(True, [kept])]
