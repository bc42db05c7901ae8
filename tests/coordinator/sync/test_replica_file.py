"""The files of a replica: which are whole, which nodes may be elected, and how fast files are copied."""

import pytest

from pyspark_log_coordinator.cluster.nodes import FenceNode, RemoveNode
from pyspark_log_coordinator.sync.replica_file import Throttle, live
from pyspark_log_storage import layout
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic


def may_be_elected(topic):
    topic.log.probe_nodes()
    return {each.node for each in live(topic.handle)}


def test_a_node_with_another_marker_or_without_its_newest_file_cannot_be_elected():
    topic = ReplicatedTopic()
    key = topic.handle.append_file(topic.append(on=ALL, acks="all"))
    assert may_be_elected(topic) == {"0", "1", "2"}
    topic.log.node_store("1").delete(layout.MARKER)  # although it has the files
    assert may_be_elected(topic) == {"0", "2"}
    topic.log.node_store("2").delete(key)
    assert may_be_elected(topic) == {"0"}


def test_a_node_that_was_removed_cannot_be_elected_although_it_needs_no_file():
    topic = ReplicatedTopic()
    topic.log.cluster.submit(FenceNode("1"))
    topic.log.cluster.submit(RemoveNode("1", frozenset({topic.handle.topic_id}), 1))
    assert may_be_elected(topic) == {"0", "2"}


def test_the_rate_is_at_most_the_one_allowed():
    environment = fake_environment()
    throttle = Throttle(environment, 1000)
    begin = environment.monotonic()
    for count in (500, 2000, 1, 499):
        throttle(count)
    assert environment.monotonic() - begin == pytest.approx(3)


def test_a_pause_is_not_made_up_for():
    environment = fake_environment()
    throttle = Throttle(environment, 1000)
    throttle(1000)
    environment.sleep(100)
    begin = environment.monotonic()
    throttle(1000)
    assert environment.monotonic() - begin == pytest.approx(1)
