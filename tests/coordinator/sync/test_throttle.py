"""The throttle: bytes per second, without a burst after a pause."""

import pytest

from pyspark_log_coordinator.sync.replica_file import Throttle
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.replicated_topic import ReplicatedTopic
from tests.support.coordinator.several_nodes import Stores
from tests.support.coordinator.watched_topic import Watched, copy


@pytest.fixture
def topic():
    return ReplicatedTopic(Stores(Watched))


# Throttle


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


def test_copying_takes_as_long_as_the_throttle_says(topic):
    topic.append({0: [b"x" * 10_000]})
    clock = topic.log.environment.monotonic
    begin = clock()
    copied = copy(topic, moved=Throttle(topic.log.environment, 1000))
    assert clock() - begin == pytest.approx(copied.bytes / 1000)
