"""Key indexes compare keys by hash and check, and tell which rows are the newest."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_storage.columns import key_hash, key_index
from pyspark_log_storage.columns.column_types import VERSION_TYPES
from pyspark_log_storage.columns.compaction_columns import CompactionColumns
from pyspark_log_storage.columns.key_hash import key_hashes
from pyspark_log_storage.columns.key_index import Found, Keys, keys_of

BINARY = st.lists(st.binary(max_size=40), max_size=60)


def pairs(*columns):
    return list(zip(*(each.tolist() for each in key_hashes(list(columns))), strict=True))


def test_stored_hashes_never_change():
    assert pairs(pa.array([b"", b"a", b"abcdefgh", b"a key of more than one word"])) == [
        (9364726213123032385, 73297337),
        (7265465643680733195, 2761655972),
        (7375660263823168841, 1665004561),
        (6728150449099051486, 1561011781),
    ]
    assert pairs(pa.array([0, 1, -1], pa.int64())) == [
        (16942443605602238925, 2019888415),
        (17005983985096428232, 3706326351),
        (15618738613049890071, 3100183788),
    ]


@given(BINARY, st.integers(0, 5), st.integers(1, 7))
def test_a_key_has_one_hash_wherever_it_is(values, skipped, block):
    before, key_hash.BLOCK_ROWS = key_hash.BLOCK_ROWS, block
    try:
        whole = pairs(pa.array(values, pa.binary()))
    finally:
        key_hash.BLOCK_ROWS = before
    assert whole == [pairs(pa.array([each], pa.binary()))[0] for each in values]
    assert whole[skipped:] == pairs(pa.array(values, pa.binary()).slice(skipped))
    assert whole == pairs(pa.array(values, pa.large_binary()))
    assert len(set(whole)) == len(set(values))


def test_numbers_and_texts_are_the_same_key_in_each_type():
    for kind in (pa.int8(), pa.int16(), pa.int32()):
        assert pairs(pa.array([-3, 0, 100], kind)) == pairs(pa.array([-3, 0, 100], pa.int64()))
    assert pairs(pa.array(["", "grün"])) == pairs(pa.array([b"", "grün".encode()]))
    assert pairs(pa.array(["grün"], pa.large_string())) == pairs(pa.array(["grün"]))


def test_two_columns_are_another_key_than_their_values_joined():
    one, other = pairs(pa.array([b"a", b"ab"]), pa.array([b"bc", b"c"]))
    assert one != other
    assert pairs(pa.array([b"a"]), pa.array([b""])) != pairs(pa.array([b""]), pa.array([b"a"]))


def test_similar_keys_have_different_hashes_and_every_bit_is_used():
    hashes, checks = key_hashes([pa.array([b"user-%d" % number for number in range(200_000)])])
    assert len(np.unique(hashes)) == 200_000
    for values, bits in ((hashes, 64), (checks.astype(np.uint64), 32)):
        shares = [float(((values >> np.uint64(bit)) & np.uint64(1)).mean()) for bit in range(bits)]
        assert all(0.49 < share < 0.51 for share in shares), shares


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(-2, 2)), max_size=30))
def test_the_newest_row_of_each_key_has_the_largest_version_and_then_the_largest_offset(rows):
    """Hashes are made to be the same, so that the checks decide."""
    hashes, checks, versions = np.array(rows, np.int64).reshape(-1, 3).T
    keys = Keys(hashes.astype(np.uint64), checks.astype(np.uint32), np.arange(len(rows)), versions)
    largest = {}
    for at, (*key, version) in enumerate(rows):
        largest[tuple(key)] = max(largest.get(tuple(key), (version, at)), (version, at))
    found = key_index.newest(keys)
    assert list(zip(found.versions.tolist(), found.offsets.tolist(), strict=True)) == [
        largest[key] for key in sorted(largest)
    ]
    last = {tuple(key): at for at, (*key, _) in enumerate(rows)}
    assert key_index.newest(keys._replace(versions=None)).offsets.tolist() == [last[key] for key in sorted(last)]


def test_found_rows_and_wanted_ones_are_compared_by_version():
    wanted = Keys(np.arange(4, dtype=np.uint64), np.zeros(4, np.uint32), np.arange(10, 14), np.array([5, 5, 5, 5]))
    found = Found(np.array([1, 2, 3, 4]), np.array([4, 5, 6, 9]), np.array([0, 1, 2, 3]))
    older, are_older = key_index.compared(found, wanted, dead=np.array([4]))
    assert (older.tolist(), are_older.tolist()) == ([1, 2], [2])
    older, are_older = key_index.compared(found, wanted._replace(versions=None), dead=np.array([4]))
    assert (older.tolist(), are_older.tolist()) == ([1, 2, 3], [])


@pytest.mark.parametrize(
    ("column", "versions"),
    [
        (pa.array([3, None, -(2**63)], pa.int64()), [3, -(2**63), -(2**63)]),
        (pa.array([3, None], pa.int8()), [3, key_index.NO_VERSION]),
        (pa.array([-1, None], pa.date32()), [-1, key_index.NO_VERSION]),
        (pa.array([7, None], pa.timestamp("us", "UTC")), [7, key_index.NO_VERSION]),
    ],
    ids=lambda found: str(getattr(found, "type", "")),
)
def test_versions_are_whole_numbers(column, versions):
    assert column.type in VERSION_TYPES
    found = key_index.versions_of(column)
    assert (found.dtype, found.tolist()) == (np.int64, versions)


def test_a_row_deletes_its_key_only_if_its_column_is_true():
    columns = CompactionColumns(("id",), "", "", "gone")
    rows = pa.record_batch({"id": [1, 2, 3], "gone": [True, False, None]})
    assert key_index.deletes(rows, columns).tolist() == [True, False, False]
    assert key_index.deletes(rows.select(["id"]), columns).tolist() == [False] * 3


def test_rows_of_before_a_column_was_added_have_no_key_or_no_version():
    columns = CompactionColumns(("id",), "seq", "", "gone")
    rows = pa.record_batch({"id": [1, 2], "seq": [5, None]})
    assert key_index.keys_in(rows, np.array([8, 9]), columns).versions.tolist() == [5, key_index.NO_VERSION]
    found = key_index.keys_in(rows.select(["id"]), np.array([8, 9]), columns)
    assert (found.offsets.tolist(), found.versions.tolist()) == ([8, 9], [key_index.NO_VERSION] * 2)
    found = key_index.keys_in(rows.select(["seq"]), np.array([8, 9]), columns)
    assert [each.tolist() for each in found] == [[], [], [], []]


@given(
    st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3))), st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)))
)
def test_wanted_keys_are_found_by_hash_and_check(stored, wanted):
    def keys(some):
        hashes, checks = np.array(sorted(some), np.uint64).reshape(-1, 2).T
        return Keys(hashes, checks.astype(np.uint32), np.arange(len(some)) * 10)

    there = [at * 10 for at, each in enumerate(sorted(stored)) if each in wanted]
    found = key_index.found_in(keys(stored), keys(wanted))
    assert sorted(found.offsets.tolist()) == there
    assert [sorted(wanted)[at] for at in found.wanted] == [sorted(stored)[at // 10] for at in found.offsets]


def test_rows_without_a_key_are_left_out():
    found = keys_of([pa.array([b"a", None, b"b"])], np.array([4, 7, 9]))
    assert found.offsets.tolist() == [4, 9]
    found = keys_of([pa.array([b"a", None, b"b"]), pa.array([1, 2, None])], np.array([4, 7, 9]), np.array([1, 2, 3]))
    assert (found.offsets.tolist(), found.versions.tolist()) == ([4], [1])


@given(st.lists(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_offsets_are_looked_up_in_others(offsets, others):
    found = key_index.is_in(np.array(offsets, np.int64), np.array(sorted(others), np.int64))
    assert found.tolist() == [each in others for each in offsets]
