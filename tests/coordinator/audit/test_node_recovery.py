"""The recovery of a node: which damage is damage of its rows."""

from pyspark_log_coordinator.audit import node_recovery
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.maintenance import descriptions
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic
from tests.support.coordinator.stored_topic import StoredTopic


def test_without_journals_the_description_says_which_rows_are_in_the_files():
    topic = StoredTopic()
    topic.fill(2)
    descriptions.write_on_nodes(topic.handle)
    for key in list(topic.store.list(f"{topic.folder}journal/")):
        topic.store.delete(key)
    [found] = node_recovery.recover(topic.store, "t", real_environment())
    assert (found.good_up_to, len(found.checked), found.damage) == (6, 2, None)
    damaged = topic.folder + topic.keys("append/")[1]
    topic.damage(damaged)
    [found] = node_recovery.recover(topic.store, "t", real_environment())
    assert (found.good_up_to, found.damage.file) == (3, damaged)


def test_files_that_other_nodes_hold_are_not_missing_on_a_node():
    topic = ReplicatedTopic()
    everywhere = topic.append(on=ALL)
    topic.append(on=("0", "2"))
    descriptions.write_on_nodes(topic.handle)
    [found] = node_recovery.recover(topic.log.node_store("1"), "t", topic.log.environment, topic.log)
    assert (found.checked, found.damage) == ((topic.handle.append_file(everywhere),), None)


def test_a_file_that_the_node_holds_and_lacks_ends_its_rows():
    topic = ReplicatedTopic()
    names = [topic.append(on=ALL) for _ in range(2)]
    descriptions.write_on_nodes(topic.handle)
    topic.log.node_store("1").delete(topic.handle.append_file(names[1]))
    [found] = node_recovery.recover(topic.log.node_store("1"), "t", topic.log.environment, topic.log)
    assert (found.good_up_to, found.damage.file) == (1, topic.handle.append_file(names[1]))
