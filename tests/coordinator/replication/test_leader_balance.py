"""The partitions that their preferred leaders should lead again."""

import msgspec

from pyspark_log_coordinator.model.partition import empty
from pyspark_log_coordinator.replication.election import imbalanced


def led(by, *replicas):
    return msgspec.structs.replace(empty(replicas, replicas), leader=by)


def test_all_that_prefer_a_node_come_back_when_too_many_are_led_by_others():
    topics = {"t": [led("B", "A", "B"), led("A", "A", "B")], "u": [led("B", "B", "A"), led("C", "A", "C")]}
    assert imbalanced(topics) == {"t": (0,), "u": (1,)}


def test_the_percentage_is_of_the_partitions_that_prefer_the_node_and_must_be_passed():
    ten = [led("B", "A", "B"), *[led("A", "A", "B")] * 9, *[led("B", "B", "A")] * 90]
    assert imbalanced({"t": ten}, percentage=10) == {}
    assert imbalanced({"t": ten}, percentage=9) == {"t": (0,)}


def test_leaderless_and_moving_partitions_do_not_count():
    moving = msgspec.structs.replace(led("B", "A", "B"), adding=("A",))
    leaving = msgspec.structs.replace(led("B", "A", "B"), removing=("B",))
    assert imbalanced({"t": [led(None, "A", "B"), moving, leaving]}) == {}
