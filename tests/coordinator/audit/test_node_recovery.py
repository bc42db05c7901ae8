"""The recovery of a node: which damage is damage of its rows, and which of its segments are not in the log."""

import pytest

from pyspark_log_coordinator.audit import node_recovery, verify
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.maintenance import descriptions
from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.replication.election import ElectLeaders
from pyspark_log_coordinator.replication.suspicion import Suspect
from pyspark_log_coordinator.sync import catch_up
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


# A node returns


@pytest.fixture
def topic():
    """Two batches on all nodes, in a segment; one on node 0 only, in a segment that no entry names."""
    topic = ReplicatedTopic(retention_ms="-1")
    for _ in range(2):
        topic.append(on=ALL, acks="all")
    topic.roll(2)
    for node in ("1", "2"):
        catch_up.catch_up(topic.handle, node)
    topic.append(on=("0",), acks="all")
    topic.roll(1)
    descriptions.write_on_nodes(topic.handle)
    return topic


def elect_uncleanly(topic, node):
    """Lose the other nodes for good, and elect this one."""
    for other in set(ALL) - {node}:
        topic.handle.submit(Suspect(other, topic.handle.refresh().incarnations[other]))
    state = topic.handle.refresh()
    gone = state.suspects
    topic.handle.submit(ElectLeaders((Holder(node, state.incarnations[node]),), gone, unclean=True))
    assert topic.partition().leader == node


def test_a_segment_of_rows_that_were_cut_is_reported_and_deleted(topic):
    elect_uncleanly(topic, "2")
    topic.append(on=("1", "2"), acks="all")
    (stray,) = node_recovery.strays(topic.handle, "0")
    assert (stray.base_offset, stray.end_offset, stray.cut) == (2, 3, 2)
    before = topic.content("0")
    node_recovery.remove_strays(topic.handle, "0", [stray])
    left = topic.content("0")
    assert {key for key in before if key not in left} == {
        f"{stray.key.split('/', 3)[3]}{ending}" for ending in (".log", ".index")
    }
    catch_up.catch_up(topic.handle, "0")
    assert topic.partition().isr == ALL
    assert node_recovery.strays(topic.handle, "0") == []
    assert verify.verify(topic.handle).findings == []


def test_a_segment_that_is_not_swapped_in_yet_stays(topic):
    """A process has just written it, and its entry follows."""
    topic.append(on=ALL, acks="all")
    topic.rolled(1)
    assert node_recovery.strays(topic.handle, "0") == []
