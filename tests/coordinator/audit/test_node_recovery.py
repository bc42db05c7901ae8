"""The recovery of a node: which damage of its append files is damage of its rows."""

from pyspark_log_coordinator.audit import node_recovery
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.maintenance import checkpoint_files
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic
from tests.support.coordinator.stored_topic import StoredTopic


def test_damage_of_chunks_whose_rows_are_in_segments_is_none():
    """The journals are lost, and the description is older than the segment."""
    topic = StoredTopic()
    topic.fill(2)
    checkpoint_files.write_on_nodes(topic.handle)
    topic.roll(1)
    topic.store.delete(f"{topic.folder}recovery-point-offset-checkpoint")
    rolled, unrolled = topic.keys("append/")
    for key in list(topic.store.list(f"{topic.folder}journal/")):
        topic.store.delete(key)
    topic.damage(topic.folder + rolled)
    [found] = node_recovery.recover(topic.store, "t", real_environment())
    assert (found.recovery_point, found.good_up_to, found.damage) == (0, 6, None)
    topic.damage(topic.folder + unrolled)
    [found] = node_recovery.recover(topic.store, "t", real_environment())
    assert (found.good_up_to, found.damage.file) == (3, topic.folder + unrolled)


def test_files_that_other_nodes_hold_are_not_missing_on_a_node():
    topic = ReplicatedTopic()
    everywhere = topic.append(on=ALL)
    topic.append(on=("0", "2"))
    checkpoint_files.write_on_nodes(topic.handle)
    [found] = node_recovery.recover(topic.log.node_store("1"), "t", topic.log.environment, topic.log)
    assert (found.checked, found.damage) == ((topic.handle.append_file(everywhere),), None)
