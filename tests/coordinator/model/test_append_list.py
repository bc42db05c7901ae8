"""An append list is a plain list that cannot be changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_coordinator.model.append_list import AppendList, to_builtin

ends = st.none() | st.integers(-9, 9)
slices = st.builds(slice, ends, ends, st.sampled_from([None, 1, 2, 3, -1, -2]))


@given(st.lists(st.tuples(st.integers(0, 20), st.lists(st.integers(), max_size=3)), max_size=20))
def test_branches_do_not_see_each_others_items(appends):
    branches: list[tuple[AppendList[int], list[int]]] = [(AppendList(), [])]
    for choice, new in appends:
        tail, plain = branches[choice % len(branches)]
        branches.append((tail.append(new), plain + new))
        for each, expected in branches:
            assert list(each) == expected
            assert len(each) == len(expected)


@given(st.lists(st.integers(), max_size=6), st.lists(st.integers(), max_size=3), slices, st.integers(-8, 8))
def test_slices_and_indices_are_those_of_a_list_whatever_a_branch_has_behind_it(items, behind, cut, index):
    tail = AppendList(list(items))
    tail.append(behind)
    assert tail[cut] == items[cut]
    if -len(items) <= index < len(items):
        assert tail[index] == items[index]
    else:
        with pytest.raises(IndexError):
            tail[index]


def test_appending_in_turn_copies_nothing():
    tail: AppendList[int] = AppendList()
    storage = tail._items
    for i in range(100):
        tail = tail.append([i])
    assert tail._items is storage


def test_equality_is_that_of_the_items():
    old = AppendList([1, 2])
    old.append([3])
    assert old == AppendList([1, 2])
    assert hash(old) == hash(AppendList([1, 2]))
    assert old != AppendList([1, 2, 3])
    assert old != [1, 2]
    assert to_builtin(old) == [1, 2]
    with pytest.raises(NotImplementedError):
        to_builtin(object())
