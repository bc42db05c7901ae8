"""Rebalances: when they end, who is dropped, how the members vote and who leads."""

import pytest

from pyspark_log_coordinator.group import machine
from pyspark_log_coordinator.group.rebalance import EndWait
from tests.support.coordinator.groups import NOW, after, join, rejoin, stable, started


def complete(group):
    return after(group, EndWait(group.barriers))


def test_a_rebalance_waits_for_the_longest_rebalance_time_out():
    group = stable(join("A", rebalance_timeout_ms=7), join("B", rebalance_timeout_ms=9))
    assert after(group, rejoin("A", rebalance_timeout_ms=7)).barrier.wait_ms == 9
    assert after(group, join("C", rebalance_timeout_ms=11)).barrier.wait_ms == 11


def test_a_barrier_that_was_replaced_ends_nothing():
    joining = after(started(delay=3_000), join("A"))
    outdated = EndWait(joining.barriers)
    assert machine.decide(after(joining, join("B")), outdated, NOW) == []
    assert machine.decide(complete(joining), outdated, NOW) == []
    assert machine.decide(stable(join("A")), EndWait(1), NOW) == []


@pytest.mark.parametrize(
    ("protocols", "chosen"),
    [
        ((("range", "sticky"), ("sticky", "range"), ("sticky", "range")), "sticky"),
        ((("sticky", "range"), ("sticky", "range"), ("range",)), "range"),  # all must support it
        ((("sticky", "range"), ("range", "sticky")), "sticky"),  # the earliest member decides a tie
    ],
)
def test_the_protocol_that_most_members_prefer_is_chosen(protocols, chosen):
    assert stable(*(join(name, *of) for name, of in zip("ABC", protocols, strict=False))).protocol == chosen
