"""A node that comes back cuts by leader epochs, never by the high watermark."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log_coordinator.replication.truncation import divergence

LINEAGE = ((0, 0), (1, 300), (2, 500))


@pytest.mark.parametrize(
    ("local", "local_end", "lineage", "lineage_end", "cut"),
    [
        (LINEAGE, 700, LINEAGE, 800, 700),  # it missed rows
        (((0, 0),), 310, LINEAGE, 800, 300),  # it led, and wrote rows that no other node copied
        (((0, 0), (1, 10)), 20, ((0, 0), (2, 15)), 30, 10),  # KIP-279: the answer is about epoch 0
        (((0, 0), (2, 10), (3, 14)), 20, ((0, 0), (1, 12), (4, 16)), 30, 10),  # the question is put twice
        (((1, 0),), 5, ((0, 0), (2, 3)), 9, 0),  # no epoch in common
        (((0, 0),), 20, ((2, 10),), 30, 10),  # the epoch has expired
        (((0, 5), (1, 10)), 20, ((1, 10),), 30, 20),  # the log start moved
    ],
)
def test_a_node_cuts_what_is_not_the_logs(local, local_end, lineage, lineage_end, cut):
    assert divergence(local, local_end, lineage, lineage_end) == cut


branches = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(0, 4)), max_size=8)
"""Histories, each of which branches off an older one: which, after how many of its rows, and how many it adds."""


def grown(branches):
    """Return logs as lists with the leader epoch of each row. Each branch has a leader epoch of its own."""
    logs = [[]]
    for epoch, (parent, kept, added) in enumerate(branches):
        base = logs[parent % len(logs)]
        logs.append(base[: kept % (len(base) + 1)] + [epoch] * added)
    return logs


def checkpoint(log):
    """Return a log's leader epochs with their first offsets."""
    return tuple((epoch, log.index(epoch)) for epoch, _ in itertools.groupby(log))


@settings(max_examples=50, deadline=None)
@given(branches, st.data())
def test_whatever_the_two_histories_exactly_the_rows_that_both_have_stay(made, data):
    logs = grown(made)
    local, lineage = data.draw(st.sampled_from(logs)), data.draw(st.sampled_from(logs))
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(local, lineage, strict=False)))
    assert divergence(checkpoint(local), len(local), checkpoint(lineage), len(lineage)) == same
