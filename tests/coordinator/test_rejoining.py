"""Rejoining: whom a writer brings back in passing, and when it is left to others."""

import pytest

from pyspark_log_coordinator import rejoining
from pyspark_log_coordinator.rejoining import PASSING_EVERY_SECONDS
from tests.coordinator.replicated_topic import ALL, ReplicatedTopic


@pytest.fixture
def topic():
    """A topic of which node 2 missed a batch, and is there again."""
    topic = ReplicatedTopic()
    topic.append(on=("0", "1"), acks="all")
    return topic


def isr_after(topic, seconds):
    """Return the ISR after a writer came by, some seconds after whatever was before."""
    topic.log.environment.sleep(seconds)
    rejoining.in_passing(topic.handle)
    return topic.partition().isr


def test_a_node_that_fell_out_is_left_to_others_for_a_while(topic):
    assert isr_after(topic, 100) == ("0", "1")
    assert isr_after(topic, PASSING_EVERY_SECONDS / 2) == ("0", "1")
    assert isr_after(topic, PASSING_EVERY_SECONDS / 2) == ALL


def test_a_node_that_falls_out_again_is_left_to_others_again(topic):
    isr_after(topic, 0)
    assert isr_after(topic, PASSING_EVERY_SECONDS) == ALL
    assert isr_after(topic, 0) == ALL
    topic.append(on=("0", "1"), acks="all")
    assert isr_after(topic, 100) == ("0", "1")
    assert isr_after(topic, PASSING_EVERY_SECONDS) == ALL
