"""The kinds of trouble that a partition is in, by the number of its in-sync replicas that answer."""

import msgspec
import pytest

from pyspark_log_coordinator.log.partition_health import Trouble, troubles
from tests.support.coordinator.topics import started


@pytest.mark.parametrize(
    ("isr", "broken", "found"),
    [
        ("ABC", "", set()),
        ("AB", "", {Trouble.UNDER_REPLICATED, Trouble.AT_MIN_ISR}),
        ("AB", "C", {Trouble.UNDER_REPLICATED, Trouble.AT_MIN_ISR}),
        ("ABC", "A", {Trouble.UNDER_REPLICATED, Trouble.AT_MIN_ISR}),
        ("A", "", {Trouble.UNDER_REPLICATED, Trouble.UNDER_MIN_ISR}),
        ("ABC", "AC", {Trouble.UNDER_REPLICATED, Trouble.UNDER_MIN_ISR}),
        ("AB", "AB", {Trouble.UNDER_REPLICATED, Trouble.UNDER_MIN_ISR, Trouble.UNAVAILABLE}),
    ],
)
def test_in_sync_replicas_that_answer_are_too_few_just_enough_or_all(isr, broken, found):
    state = started(replicas=("A", "B", "C"), min_insync=2)
    partition = msgspec.structs.replace(state.partitions[0], isr=tuple(isr))
    assert troubles(partition, state.config, broken) == found


def test_a_partition_without_a_leader_is_unavailable_however_many_are_in_sync():
    state = started(replicas=("A", "B", "C"))
    partition = msgspec.structs.replace(state.partitions[0], leader=None)
    assert troubles(partition, state.config, ()) == {Trouble.UNAVAILABLE}
