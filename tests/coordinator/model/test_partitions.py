"""Partitions are a plain list that cannot be changed, and say what has changed and what is so in any of them."""

import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_coordinator.model import topic_state
from pyspark_log_coordinator.model.partition import empty
from pyspark_log_coordinator.model.partitions import BLOCK, Fact, Partitions
from tests.support.coordinator.topics import after, commit, file, started

slices = st.builds(slice, *[st.none() | st.integers(-3 * BLOCK, 3 * BLOCK)] * 2)
counts = st.integers(0, 2 * BLOCK + 3)
changes = st.lists(st.dictionaries(st.integers(0, 2 * BLOCK + 2), st.integers(1, 9), max_size=4), max_size=8)


def partition(end=0):
    return msgspec.structs.replace(empty(("A",), ("A",)), log_end=end)


def ends(partitions):
    return [each.log_end for each in partitions]


def those_in(changed, count):
    return {number: partition(end) for number, end in changed.items() if number < count}


def log_end(each, _):
    return each.log_end


@given(counts, changes, slices)
def test_each_value_keeps_its_partitions_whatever_is_replaced_in_others(count, changes, cut):
    values = [(Partitions(partition() for _ in range(count)), [0] * count)]
    for changed in changes:
        known, plain = values[len(changed) % len(values)]
        new = plain.copy()
        for number, each in those_in(changed, count).items():
            new[number] = each.log_end
        values.append((known.replace(those_in(changed, count)), new))
    for known, plain in values:
        assert ends(known) == plain
        assert ends(known[cut]) == plain[cut]
        assert [known[number].log_end for number in range(-count, count)] == plain + plain
        assert len(known) == count
        assert known == Partitions(tuple(known)) == pickle.loads(pickle.dumps(known))


@given(counts, changes)
def test_a_fact_of_all_is_the_one_that_a_look_at_each_finds(count, changes):
    fact = Fact(log_end, max)
    known = Partitions(partition() for _ in range(count))
    for changed in changes:
        known = known.replace(those_in(changed, count))
        assert known.fact_of_each(fact) == tuple(ends(known))
        assert max(known.facts(fact), default=0) == max(ends(known), default=0)
        wanted = [(number, each) for number, each in enumerate(known) if each.log_end > 4]
        assert list(known.where(fact, lambda end: end > 4)) == wanted


@given(counts, changes, st.integers(0, 2))
def test_what_has_changed_is_what_is_another_object_or_was_added(count, changes, added):
    before = Partitions(partition() for _ in range(count))
    after_all = Partitions((*before, *(partition() for _ in range(added))))
    for changed in changes:
        after_all = after_all.replace(those_in(changed, count))
    different = [number for number in range(count) if after_all[number] is not before[number]]
    assert [each for each in after_all.changed_since(before) if each < count] == different or added
    assert set(after_all.changed_since(before)) >= {*different, *range(count, count + added)}
    assert after_all.changed_since(Partitions()) == list(range(count + added))
    with pytest.raises(IndexError):
        after_all.replace({count + added: partition()})


def test_a_fact_is_found_again_only_for_what_has_changed():
    asked = []

    def of_each(each, context):
        asked.append((each.log_end, context))
        return each.log_end

    fact = Fact(of_each, max)
    known = Partitions(partition(number) for number in range(3 * BLOCK))
    assert max(known.facts(fact, "a")) == 3 * BLOCK - 1
    asked.clear()
    changed = known.replace({1: partition(1000), 2 * BLOCK: partition(2000)})
    assert max(changed.facts(fact, "a")) == 2000
    assert asked == [(1000, "a"), (2000, "a")]
    asked.clear()
    assert max(known.facts(fact, "a")) == 3 * BLOCK - 1
    assert asked == []
    known.facts(fact, "b")
    assert [context for _, context in asked] == ["b"] * 3 * BLOCK


def test_a_snapshot_has_a_plain_list_of_partitions():
    state = after(started(BLOCK + 1), commit(None, file({0: 1, BLOCK: 2})))
    stored = msgspec.msgpack.decode(topic_state.encode(state))
    assert [each["log_end"] for each in stored["partitions"]] == [1, *[0] * (BLOCK - 1), 2]
    assert topic_state.decode(topic_state.encode(state)) == state
