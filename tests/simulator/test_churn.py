"""Members come and go: the group settles, rebalances are bounded, and no row is committed twice."""

from unittest import mock

import pytest

from pyspark_log_coordinator.assignors import consumer
from pyspark_log_coordinator.membership.shared_partitions import SharedPartitions
from tests.simulator import churn
from tests.simulator.invariants import Violation

MEMBERS, PARTITIONS, MINUTES = 20, 60, 25
SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def runs():
    return {kind: [churn.run(kind, MEMBERS, PARTITIONS, MINUTES, seed) for seed in SEEDS] for kind in churn.STRATEGIES}


def per_change(runs):
    return sum(len(each.rebalanced) for each in runs) / sum(each.changes for each in runs)


def stopped(runs):
    return sum(each.stopped_members for each in runs) / sum(len(each.rebalanced) for each in runs)


def test_the_same_happens_to_all_kinds_of_members(runs):
    counts = {kind: [each.changes for each in some] for kind, some in runs.items()}
    assert len({tuple(each) for each in counts.values()}) == 1
    for what in churn.EVENTS:
        assert sum(each.counts[what] for each in runs["eager"]) > 0, what


def test_a_change_costs_eager_members_about_one_rebalance(runs):
    assert per_change(runs["eager"]) <= 1.3


def test_a_restart_costs_static_members_none(runs):
    restarts = sum(each.counts["restart"] for each in runs["static"])
    changes = sum(each.changes for each in runs["static"])
    assert per_change(runs["static"]) <= 1.3 * (changes - restarts) / changes


def test_a_change_costs_cooperative_members_some_more_that_stop_hardly_anybody(runs):
    assert per_change(runs["cooperative"]) <= 3
    assert stopped(runs["cooperative"]) <= 2
    assert stopped(runs["eager"]) > MEMBERS / 2


def test_a_run_is_repeated_event_by_event(runs):
    for kind, some in runs.items():
        again = churn.run(kind, MEMBERS, PARTITIONS, MINUTES, SEEDS[0])
        assert (again.rebalanced, again.journal.group) == (some[0].rebalanced, some[0].journal.group)


@pytest.mark.parametrize("kind", ["eager", "static"])
def test_members_that_keep_in_a_rebalance_what_others_may_get_are_found(kind):
    with mock.patch.object(SharedPartitions, "prepare"), pytest.raises(Violation, match="owns it"):
        churn.run(kind, MEMBERS, PARTITIONS, MINUTES)


def test_partitions_that_move_before_they_are_given_up_are_found():
    one_phase = {"cooperative-sticky": consumer.assign_sticky}
    with mock.patch.dict(consumer.ASSIGNORS, one_phase), pytest.raises(Violation, match="owns it"):
        churn.run("cooperative", MEMBERS, PARTITIONS, MINUTES)


def test_the_table_and_the_plot_have_a_part_for_each_kind(runs):
    first = {kind: some[0] for kind, some in runs.items()}
    assert [line.split(" | ")[0] for line in churn.table(first)[2:]] == ["| eager", "| static", "| cooperative"]
    title, *bars = churn.plot(first)
    assert title.split() == ["minute", *churn.STRATEGIES]
    assert len(bars) == churn.BUCKETS
