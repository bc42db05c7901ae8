"""The placement of the replicas of new partitions."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_coordinator.cluster.placement import alternated, check, spread
from pyspark_log_storage.errors import InvalidOption

NO_RACK = ""
FIVE = dict.fromkeys("01234", NO_RACK)
SIX_IN_RACKS = {"0": "rack1", "1": "rack3", "2": "rack3", "3": "rack2", "4": "rack2", "5": "rack1"}


def as_numbers(spread_out):
    return [" ".join(nodes) for nodes in spread_out]


# What Kafka's own documentation of AdminUtils shows


def test_without_racks_replicas_go_round_and_followers_move_on_with_each_round():
    assert as_numbers(spread(FIVE, 10, 3, seed=0)) == [
        *("0 1 2", "1 2 3", "2 3 4", "3 4 0", "4 0 1"),
        *("0 2 3", "1 3 4", "2 4 0", "3 0 1", "4 1 2"),
    ]


def test_nodes_are_put_in_an_order_in_which_racks_alternate_and_numbers_as_numbers():
    assert alternated(SIX_IN_RACKS) == ["0", "3", "1", "5", "4", "2"]
    ten = dict.fromkeys(map(str, range(11)), NO_RACK)
    assert [nodes[0] for nodes in spread(ten, 11, 1, seed=0)] == [str(node) for node in range(11)]
    assert {spread(FIVE, 1, 1, seed)[0][0] for seed in range(5)} == set(FIVE), "topics begin at other nodes"


def test_with_racks_each_partition_is_in_all_of_them_and_followers_move_on_with_each_round():
    assert as_numbers(spread(SIX_IN_RACKS, 12, 3, seed=0)) == [
        *("0 3 1", "3 1 5", "1 5 4", "5 4 2", "4 2 0", "2 0 3"),
        *("0 4 2", "3 2 0", "1 0 3", "5 3 1", "4 1 5", "2 5 4"),
    ]


# What holds of every spread

racks_of_nodes = st.lists(st.sampled_from(["a", "b", "c", NO_RACK]), min_size=1, max_size=9).map(
    lambda racks: {str(node): rack for node, rack in enumerate(racks)}
)
seeds = st.integers(0, 2**64 - 1)


@st.composite
def spreads(draw, racks=racks_of_nodes):
    racks = draw(racks)
    return racks, draw(st.integers(0, 40)), draw(st.integers(1, len(racks))), draw(seeds)


@given(spreads())
def test_no_rack_gets_a_second_replica_before_every_rack_has_one(asked):
    racks, partitions, factor, seed = asked
    for nodes in spread(racks, partitions, factor, seed):
        assert len({racks[node] for node in nodes}) == min(factor, len(set(racks.values())))


@given(spreads())
def test_every_partition_has_its_replicas_on_distinct_nodes_and_leaders_are_even(asked):
    racks, partitions, factor, seed = asked
    spread_out = spread(racks, partitions, factor, seed)
    assert len(spread_out) == partitions
    for nodes in spread_out:
        assert len(set(nodes)) == len(nodes) == factor
        assert set(nodes) <= set(racks)
    leads = Counter(dict.fromkeys(racks, 0))
    leads.update(nodes[0] for nodes in spread_out)
    assert max(leads.values()) - min(leads.values()) <= 1


@given(racks=st.integers(1, 4), size=st.integers(1, 3), rounds=st.integers(0, 4), seed=seeds, data=st.data())
def test_after_full_rounds_over_racks_of_one_size_every_node_has_as_many_replicas(racks, size, rounds, seed, data):
    nodes = {str(node): f"rack {node % racks}" for node in range(racks * size)}
    factor = data.draw(st.integers(1, len(nodes)))
    held = Counter(node for each in spread(nodes, rounds * len(nodes), factor, seed) for node in each)
    assert set(held.values()) <= {rounds * factor}


@given(spreads(), st.integers(0, 40))
def test_partitions_that_are_added_later_go_on_where_the_first_ended(asked, more):
    racks, partitions, factor, seed = asked
    whole = spread(racks, partitions + more, factor, seed)
    assert spread(racks, partitions, factor, seed) + spread(racks, more, factor, seed, first=partitions) == whole


# Assignments by hand


@pytest.mark.parametrize(
    ("replicas", "said"),
    [
        ((("0",), ("9",)), r"partition 1, names node '9', which does not exist \(existing: 0, 1, 2\)"),
        ((("0", "2"),), "partition 0, names node '2', which is fenced"),
        ((("0", "1"), ("1", "1")), "partition 1, names node '1' twice"),
        ((("0", "1", "0"),), "partition 0, names node '0' twice"),
        ((("0", "1"), ("1",)), "partition 1, has 1 replica, but partition 0 has 2"),
        ((("0",), ()), "partition 1, names no node"),
    ],
)
def test_a_wrong_assignment_is_refused_with_the_partition_that_is_wrong(replicas, said):
    with pytest.raises(InvalidOption, match=said) as raised:
        check(replicas, live="01", known="012", topic="t")
    assert raised.value.option == "replica.assignment"
