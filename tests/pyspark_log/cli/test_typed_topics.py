"""Typed topics at the command line: created, described, shown, checked, and made again after all journals are lost."""

import json
import math

import pyarrow as pa
import pytest

from pyspark_log.writing import typed_json
from pyspark_log_storage.columns.column_ddl import parse
from tests.support.command_line import CommandLine
from tests.support.pyspark_log.typed_frames import write

DDL = "id BIGINT NOT NULL, price DECIMAL(5,2), tags MAP<STRING, INT>, raw BINARY"
ROW = {"id": 1, "price": None, "tags": [("a", 1)], "raw": b"\xff"}
SHOWN = {"id": 1, "price": None, "tags": {"a": 1}, "raw": "/w=="}


@pytest.fixture
def cli(tmp_path):
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t", "--schema", DDL, "--partitions", "1")
    return cli


def test_a_typed_topic_is_described_with_its_columns_and_takes_no_records(cli):
    [found] = cli.documents("topics", "describe", "t")
    assert (found["schema"], found["schemas"]) == (DDL, 1)
    assert "takes no records of key and value" in cli.error("produce", "t", stdin="v\n")
    shown = cli.misuse("topics", "create", "u", "--schema", "id INTERVAL")
    assert "column 'id' has type interval, which a topic cannot store" in " ".join(shown.split())


def test_rows_are_consumed_and_dumped_as_json(cli):
    write(cli.path, DDL, [ROW])
    assert json.loads(cli.out("consume", "t")) == SHOWN
    [shown] = cli.documents("consume", "t")
    assert shown.pop("timestamp") > 0
    assert shown == {"topic": "t", "partition": 0, "offset": 0} | SHOWN
    [file] = cli.path.glob("topics/t/*/append/*")
    dumped = json.loads(cli.out("dump", "--rows", file).splitlines()[-1])
    assert dumped.pop("timestamp") > 0
    assert dumped == SHOWN


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_text_that_is_not_utf8_is_shown_beside_times_that_python_lacks(kind):
    wrong = pa.array([b"b\xffd"], pa.large_binary() if pa.types.is_large_string(kind) else pa.binary()).view(kind)
    late = pa.array([2**60], pa.timestamp("us"))
    both = pa.StructArray.from_arrays([wrong, late], ["s", "t"])
    batch = pa.RecordBatch.from_arrays([wrong, both], ["text", "both"])
    shown = "b\N{REPLACEMENT CHARACTER}d"
    assert typed_json.objects(batch) == [{"text": shown, "both": {"s": shown, "t": 2**60}}]


def test_values_that_json_and_python_lack_are_shown():
    columns = parse("a DOUBLE, b TIMESTAMP, c MAP<INT, DATE>, d ARRAY<STRUCT<e: DECIMAL(3,1), f: FLOAT>>")
    late = pa.array([2**60], pa.int64()).cast(pa.timestamp("us", "UTC"))
    nested = [[[(1, 3)]], [[{"e": 1, "f": -math.inf}]]]
    nested = [pa.array(value, columns.field(name).type) for name, value in zip("cd", nested, strict=True)]
    batch = pa.RecordBatch.from_arrays([pa.array([float("nan")]), late, *nested], schema=columns)
    shown = json.loads(typed_json.ENCODER.encode(typed_json.objects(batch)[0]))
    assert shown == {"a": "NaN", "b": 2**60, "c": {"1": "1970-01-04"}, "d": [{"e": 1.0, "f": "-Infinity"}]}
