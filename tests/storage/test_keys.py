"""Keys are compared as they are, whatever columns they are in, and the newest row of each is found."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_log_storage.columns.compaction_columns import CompactionColumns
from pyspark_log_storage.columns.keys import are_among, deletes, is_in, keys_in, matched, newest

PAIRS = CompactionColumns(("name", "id", "data"), "", "gone")
TEXTS = st.text(alphabet="a:1\0é", max_size=3)
rows = st.lists(
    st.tuples(st.none() | TEXTS, st.none() | st.integers(-11, 11), st.none() | TEXTS.map(str.encode)),
    min_size=1,
    max_size=30,
)


def batch_of(found):
    names, ids, data = zip(*found, strict=True)
    columns = [pa.array(names, pa.string()), pa.array(ids, pa.int16()), pa.array(data, pa.binary())]
    return pa.record_batch(columns, ["name", "id", "data"])


@given(rows)
@example([("a:1", 1, b"x"), ("a", 1, b"1:x")])
def test_two_rows_have_one_key_if_all_of_its_columns_are_equal(found):
    keys = keys_in(batch_of(found), PAIRS).to_pylist()
    for one, key in zip(found, keys, strict=True):
        assert (key is None) == (None in one)
        for other, others in zip(found, keys, strict=True):
            assert key is None or (key == others) == (one == other)


@pytest.mark.parametrize(
    ("column", "other"),
    [
        (pa.array(["a", None, "b"]), pa.array([b"a", None, b"b"])),
        (pa.array([1, None, -2], pa.int8()), pa.array([1, None, -2])),
    ],
)
def test_a_key_is_the_same_in_columns_of_another_width(column, other):
    columns = CompactionColumns(("key",))
    first, second = (keys_in(pa.record_batch([each], ["key"]), columns) for each in (column, other))
    assert first.equals(second)
    assert are_among(first, newest([(second, np.arange(3))]).keys).tolist() == [True, False, True]


def test_rows_of_before_the_key_was_a_column_have_none():
    old = pa.record_batch([pa.array(["a"])], ["name"])
    keys = keys_in(old, PAIRS)
    assert keys.null_count == 1
    some = keys_in(batch_of([("a", 1, b"x")]), PAIRS)
    found = newest([(keys, np.array([0])), (some, np.array([1]))])
    assert found.offsets.tolist() == [1]
    both = [(keys, np.array([0])), (some, np.array([1]))]
    for wanted in (found.keys, pa.concat_arrays([found.keys, pa.array([b"other"], pa.large_binary())])):
        rows = [each for parts in matched(both, wanted) for each in zip(*parts, strict=True)]
        assert rows == [(0, False, False), (1, True, True)]
    assert newest([(keys, np.array([0]))]).offsets.tolist() == []


@given(st.lists(st.lists(st.none() | st.sampled_from([b"", b"a", b"b", b"c"]), max_size=5), max_size=5), st.data())
def test_the_newest_row_of_each_key_and_all_rows_with_some_keys_are_found(batches, data):
    offsets = iter(range(100))
    found = [(pa.array(each, pa.large_binary()), np.array([next(offsets) for _ in each], np.int64)) for each in batches]
    every = [(key, at) for keys, some in found for key, at in zip(keys.to_pylist(), some.tolist(), strict=True)]
    of_each = newest(found)
    expected = {key: at for key, at in every if key is not None}
    assert dict(zip(of_each.keys.to_pylist(), of_each.offsets.tolist(), strict=True)) == expected
    wanted = data.draw(st.sets(st.sampled_from([b"a", b"b"])))
    rows = [
        each
        for parts in matched(found, pa.array(sorted(wanted), pa.large_binary()))
        for each in zip(*parts, strict=True)
    ]
    assert [(at, has, among) for at, has, among in rows] == [(at, key is not None, key in wanted) for key, at in every]


def test_rows_delete_their_key_by_a_null_value_or_a_column_that_says_so():
    records = pa.record_batch([pa.array([b"k", b"k"]), pa.array([b"", None], pa.binary())], ["key", "value"])
    assert deletes(records, CompactionColumns()).tolist() == [False, True]
    typed = pa.record_batch([pa.array([True, False, None])], ["gone"])
    assert deletes(typed, PAIRS).tolist() == [True, False, False]
    assert deletes(typed, CompactionColumns(("k",), "", "")).tolist() == [False] * 3


@given(st.lists(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_offsets_are_found_among_others(offsets, others):
    found = is_in(np.array(offsets, np.int64), np.array(sorted(others), np.int64))
    assert found.tolist() == [each in others for each in offsets]
