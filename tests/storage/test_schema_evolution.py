"""The evolution of a typed topic's columns."""

import math
import re
from random import Random

import pyarrow as pa
import pytest

from pyspark_log_storage.columns import schema, schema_evolution
from pyspark_log_storage.columns.column_conversion import as_newest
from pyspark_log_storage.columns.column_ddl import parse
from pyspark_log_storage.columns.column_types import ddl
from pyspark_log_storage.errors import InvalidRecord
from pyspark_log_storage.files import chunk
from tests.support.rings import sample
from tests.support.storage import random_columns


@pytest.mark.parametrize("seed", sample(range(10), 2))  # 34 topics with 3 evolutions each
def test_rows_of_every_version_read_as_the_newest(seed):
    random = Random(seed)
    for _ in range(34):
        versions = [random_columns.columns(random)]
        while len(versions) < 4:
            versions.append(random_columns.evolved(random, versions[-1]))
            assert schema_evolution.merge(versions[-2], versions[-1], relax=True).equals(versions[-1])
        for version in versions:
            batch = random_columns.rows(random, version, 5)
            newest = as_newest(batch, versions[-1])
            newest.validate(full=True)
            assert newest.schema.equals(versions[-1])
            assert newest.to_pylist() == [random_columns.read_as(row, versions[-1]) for row in batch.to_pylist()]


def test_rows_of_any_columns_come_back_from_a_chunk():
    random = Random(7)
    for _ in range(50):
        stored = schema.typed(random_columns.columns(random))
        assert schema.decode_all([schema.encode(stored)], "x") == (stored,)
        batch = random_columns.rows(random, stored, 20)
        header, data = chunk.encode(batch, 0, random.choice(["none", "lz4", "zstd"]))
        assert chunk.decode(pa.py_buffer(data), header, [stored], "x").equals(batch)


REFUSED = [
    ("a bigint", "a double", "column 'a' is bigint and cannot become double"),
    ("a int", "a float", "column 'a' is int and cannot become float"),
    ("a int", "a string", "column 'a' is int and cannot become string"),
    ("a date", "a timestamp_ntz", "column 'a' is date and cannot become timestamp_ntz"),
    ("a decimal(38,0)", "a decimal(38,38)", "cannot become decimal(38,38)"),
    (
        "s struct<x: int>",
        "s struct<x: string>",
        "column 's.x' is int and cannot become string; cast it before the write",
    ),
    ("a array<int>", "a array<string>", "column 'a.element' is int and cannot become string"),
    ("a map<int, int>", "a map<bigint, int>", "column 'a' is map<int, int> and cannot become map<bigint, int>"),
    ("a map<string, int>", "a map<string, string>", "column 'a.value' is int and cannot become string"),
]


@pytest.mark.parametrize(("old", "new", "why"), REFUSED)
def test_what_a_merge_cannot_hold_is_refused_by_name(old, new, why):
    with pytest.raises(InvalidRecord, match=re.escape(why)):
        schema_evolution.merge(parse(old), parse(new), relax=True)


@pytest.mark.parametrize(
    ("current", "wanted", "merged"),
    [
        ("a int, b string", "c date, a int", "a int, b string, c date"),
        ("a bigint", "a int", "a bigint"),
        ("a int", "a bigint", "a bigint"),
        ("a int not null", "a bigint", "a bigint not null"),
        ("a int", "b int not null, c struct<x: int not null>", "a int, b int, c struct<x: int>"),
        ("A int", "a bigint", "A bigint"),
        ("a decimal(5,0)", "a decimal(4,2)", "a decimal(7,2)"),
        ("a struct<x: int, y: int>", "a struct<y: bigint, z: int>", "a struct<x: int, y: bigint, z: int>"),
    ],
)
def test_columns_are_merged_with_those_of_a_frame(current, wanted, merged):
    found = schema_evolution.merge(parse(current), parse(wanted))
    assert ddl(found) == ddl(parse(merged))


def test_a_number_that_does_not_fit_a_narrower_column_is_an_error():
    wide = pa.record_batch({"a": pa.array([1, 2**40])})
    with pytest.raises(ValueError, match=r"column 'a'.*1099511627776"):
        as_newest(wide, parse("a int"))
    assert as_newest(wide.slice(0, 1), parse("a int")).to_pylist() == [{"a": 1}]


@pytest.mark.parametrize("lost", [0.1, 1e300, -1e300, 16_777_217.0])
def test_a_double_that_is_another_number_as_a_float_is_an_error(lost):
    fits = [0.5, None, float("inf"), -0.0, 3.0]
    wide = pa.record_batch({"a": pa.array([*fits, lost])})
    with pytest.raises(ValueError, match=r"column 'a': double value .* does not fit into float"):
        as_newest(wide, parse("a float"))
    assert as_newest(wide.slice(0, len(fits)), parse("a float")).column("a").to_pylist() == fits
    (nan,) = as_newest(pa.record_batch({"a": pa.array([float("nan")])}), parse("a float")).column("a").to_pylist()
    assert math.isnan(nan)
    nested = pa.record_batch({"a": pa.array([[0.5], [lost]])})
    with pytest.raises(ValueError, match="column 'a': double value"):
        as_newest(nested, parse("a array<float>"))


@pytest.mark.parametrize(("lost", "wide", "narrow"), [(2**40, pa.int64(), "int"), (0.1, pa.float64(), "float")])
def test_numbers_in_lists_and_maps_of_other_rows_need_not_fit(lost, wide, narrow):
    lists = pa.array([[lost], [1], None, [2, 3], [lost]], pa.list_(wide))
    maps = pa.array([[("k", lost)], [("k", 1)], None, [("k", 2)], [("k", lost)]], pa.map_(pa.string(), wide))
    batch = pa.record_batch({"l": lists, "m": maps})
    wanted = parse(f"l array<{narrow}>, m map<string, {narrow}>")
    found = as_newest(batch.slice(1, 3), wanted)
    found.validate(full=True)
    assert found.to_pylist() == batch.slice(1, 3).to_pylist()
    assert as_newest(batch.slice(1, 0), wanted).num_rows == 0
    with pytest.raises(ValueError, match="column 'l'"):
        as_newest(batch.slice(1), wanted)


def test_a_null_in_a_column_without_nulls_is_an_error():
    with pytest.raises(ValueError, match="column 'a' has a null"):
        as_newest(pa.record_batch({"a": pa.array([1, None])}), parse("a bigint not null"))
    with pytest.raises(ValueError, match="column 'b' has a null"):
        as_newest(pa.record_batch({"a": pa.array([1])}), parse("b bigint not null"))


@pytest.mark.parametrize(
    ("stored", "wanted", "is_possible"),
    [
        ("a struct<x: int, y: int>", "a struct<y: bigint>", True),
        ("a struct<x: int not null>", "a struct<x: int>", True),
        ("a struct<x: int>", "a struct<x: int not null>", False),
        ("a struct<x: int>", "a struct<z: int>", False),
        ("a array<struct<x: int>>", "a array<struct<x: int not null>>", False),
        ("a map<int, int>", "a map<int, bigint>", True),
        ("a map<int, int>", "a map<bigint, int>", False),
        ("a bigint", "a int", False),
    ],
)
def test_a_column_is_read_as_a_type_that_holds_its_values_and_nulls(stored, wanted, is_possible):
    assert schema_evolution.can_be_read_as(parse(stored).field("a").type, parse(wanted).field("a").type) is is_possible


def test_a_change_is_told_by_its_columns():
    assert schema_evolution.added(parse("a int, b int"), parse("a bigint, b int, c date")) == "a BIGINT, c DATE"
