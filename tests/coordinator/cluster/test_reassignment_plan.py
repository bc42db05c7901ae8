"""The plan of a reassignment moves as few replicas as possible."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_coordinator.cluster.placement import spread
from pyspark_log_coordinator.cluster.reassignment_plan import even_out, relocate
from pyspark_log_storage.errors import InvalidOption

THREE = spread(dict.fromkeys("012", ""), 6, 3, seed=0)


def nodes(names, rack=""):
    return dict.fromkeys(names, rack)


def as_text(assignment):
    return [" ".join(each) for each in assignment]


def moved(before, after):
    """Return how many replicas are where there was none."""
    return sum(len(set(new) - set(old)) for old, new in zip(before, after, strict=True))


def loads(assignment):
    return Counter(node for each in assignment for node in each)


def test_a_removed_preferred_leader_is_replaced_by_the_node_that_leads_least():
    after = relocate((("0", "1"), ("0", "2"), ("1", "2")), nodes("12"), replication_factor=1)
    assert as_text(after) == ["1", "2", "1"]
    assert as_text(relocate((("0", "1", "2"), ("1", "2", "0")), nodes("12"), 2)) == ["2 1", "1 2"]


def test_one_replica_more_or_less_makes_racks_even_and_the_preferred_leader_stays():
    racks = {"0": "a", "1": "a", "2": "b", "3": "b"}
    assert as_text(relocate((("0",), ("2",)), racks, 2)) == ["0 3", "2 1"]
    racks = {"0": "a", "1": "a", "2": "b"}
    assert as_text(relocate((("0", "1", "2"), ("1", "2", "0")), racks, 2)) == ["0 2", "1 2"]


def test_one_replica_less_is_one_that_is_out_of_sync_even_if_it_is_the_preferred_leader():
    before, racks = (("0", "1", "2"), ("1", "2", "0"), ("2", "0", "1")), {"0": "a", "1": "b", "2": "b"}
    assert as_text(relocate(before, racks, 2, ("0",), behind=({"0"},) * 3)) == ["1 2", "1 2", "2 1"]
    assert as_text(relocate(before, racks, 2, behind=({"1"}, (), {"2", "1"}))) == ["0 2", "1 0", "2 0"]


def test_evening_out_takes_no_partition_out_of_a_rack():
    racks = {"0": "a", "1": "b", "2": "a"}
    after = even_out((("0", "1"),) * 4, racks)
    assert loads(after) == {"0": 2, "1": 4, "2": 2}


def test_a_closed_node_keeps_what_it_has_and_gets_nothing():
    assert as_text(relocate((("0", "1"), ("2", "1")), nodes("123"), closed={"1"})) == ["3 1", "2 1"]


def test_a_closed_node_becomes_preferred_leader_only_if_there_is_no_other():
    assert as_text(relocate((("0", "1", "2"),), nodes("12"), 2, closed={"1"})) == ["2 1"]
    assert as_text(relocate((("0", "1"),), nodes("12"), 1, closed={"1"})) == ["1"]


def test_too_few_nodes_are_an_error():
    with pytest.raises(
        InvalidOption, match=r"cannot have 3 replicas: only these nodes can be used: 1, 2; choose fewer"
    ):
        relocate(THREE, nodes("12"))


racks_of_nodes = st.lists(st.sampled_from(["a", "b", ""]), min_size=3, max_size=7).map(
    lambda racks: {str(node): rack for node, rack in enumerate(racks)}
)


@st.composite
def asked(draw):
    racks = draw(racks_of_nodes)
    before = spread(racks, draw(st.integers(1, 12)), draw(st.integers(1, len(racks))), draw(st.integers(0, 2**32)))
    factor = draw(st.integers(1, len(racks)))
    left = draw(st.sets(st.sampled_from(sorted(racks)), min_size=factor))
    return before, {node: racks[node] for node in left}, factor


@given(asked())
def test_every_partition_has_its_replicas_on_nodes_of_their_own_and_the_same_again_moves_nothing(case):
    before, racks, factor = case
    moved_off = relocate(before, racks, factor)
    evened = even_out(moved_off, racks)
    for after in (moved_off, evened):
        assert all(len(each) == len(set(each)) == factor and set(each) <= set(racks) for each in after)
        assert relocate(after, racks, factor) == after
    assert even_out(evened, racks) == evened


@given(asked())
def test_without_evening_out_only_what_must_move_does(case):
    before, racks, factor = case
    after = relocate(before, racks, factor)
    kept = [[node for node in each if node in racks] for each in before]
    assert moved(before, after) == sum(max(0, factor - len(each)) for each in kept)
    assert all(new[0] == old[0] for old, new in zip(before, after, strict=True) if old[0] in racks)


@given(asked())
def test_in_one_rack_replicas_differ_by_one_when_they_are_evened_out(case):
    before, racks, factor = case
    racks = dict.fromkeys(racks, "a")
    after = loads(even_out(relocate(before, racks, factor), racks))
    counts = [after[node] for node in racks]
    assert max(counts) - min(counts) <= 1
