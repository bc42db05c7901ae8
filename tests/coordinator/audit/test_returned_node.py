"""A node returns: segments in its folder that are not in the log are found and deleted."""

import pytest

from pyspark_log_coordinator.audit import node_recovery, verify
from pyspark_log_coordinator.maintenance import descriptions, roll_task
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.sync import catch_up
from pyspark_log_coordinator.topic.machine import ElectLeaders, Holder, Suspect, Suspicion
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic


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
    gone = tuple(Suspicion(*each) for each in state.suspects.items())
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
    partition = topic.partition()
    job = roll_plan.RollJob(0, partition.leader_epoch, 1, (), tuple(partition.chunks), partition.epoch_starts)
    roll_task.run_roll(topic.log.store_at, roll_task.roll_task_of(topic.handle, job), topic.log.environment)
    assert node_recovery.strays(topic.handle, "0") == []
