"""Typed topics at the command line: created, described, shown, checked, and made again after all journals are lost."""

import json

import pyarrow as pa
import pytest

from pyspark_log.writing import typed_json
from pyspark_log_storage.columns.column_ddl import parse
from tests.support.command_line import CommandLine
from tests.support.lost_folders import lose_folder
from tests.support.pyspark_log.typed_frames import write

DDL = "id BIGINT NOT NULL, price DECIMAL(5,2), tags MAP<STRING, INT>, raw BINARY"
ROW = {"id": 1, "price": None, "tags": [("a", 1)], "raw": b"\xff"}


@pytest.fixture
def cli(tmp_path):
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t", "--schema", DDL, "--partitions", "1")
    return cli


def test_a_typed_topic_is_created_and_described(cli):
    [found] = cli.documents("topics", "describe", "t")
    assert (found["schema"], found["schemas"]) == (DDL, 1)
    assert f"schema         {DDL}" in cli.out("topics", "describe", "t")


def test_a_schema_that_cannot_be_stored_is_a_usage_error(cli):
    shown = cli.misuse("topics", "create", "u", "--schema", "id INTERVAL")
    assert "column 'id' has type interval, which a topic cannot store" in " ".join(shown.split())


def test_rows_are_shown_as_json(cli, tmp_path):
    write(tmp_path / "log", DDL, [ROW])
    expected = {"id": 1, "price": None, "tags": {"a": 1}, "raw": "/w=="}
    assert json.loads(cli.out("consume", "t")) == expected
    shown = json.loads(cli.out("consume", "t", "--json"))
    assert shown.pop("timestamp") > 0
    assert shown == {"topic": "t", "partition": 0, "offset": 0} | expected


def test_a_file_with_typed_rows_is_dumped(cli, tmp_path):
    write(tmp_path / "log", DDL, [ROW])
    [file] = tmp_path.glob("log/topics/t/*/append/*")
    dumped = json.loads(cli.out("dump", "--rows", file).splitlines()[-1])
    assert dumped.pop("timestamp").startswith("20")
    assert dumped == {"id": 1, "price": None, "tags": {"a": 1}, "raw": "/w=="}


def test_records_are_not_produced_to_a_typed_topic(cli):
    assert "takes no records of key and value" in cli.error("produce", "t", stdin="v\n")


def test_verify_and_recover_read_typed_rows(cli, tmp_path):
    write(tmp_path / "log", DDL, [ROW])
    write(tmp_path / "log", "id BIGINT, more STRING", [{"id": 2, "more": "x"}], mergeSchema="true")
    cli.run("verify")
    cli.run("topics", "alter", "t", "--config", "flush.messages=1")
    cli.run("maintain")
    cli.run("verify")
    [found] = cli.documents("recover", "t", "--all")
    assert (found["good_up_to"], found["damage"]) == (2, None)


@pytest.mark.parametrize("rolled", [False, True])
def test_columns_survive_the_loss_of_all_journals(cli, tmp_path, rolled):
    root = tmp_path / "log"
    write(root, DDL, [ROW])
    write(root, "id BIGINT, more STRING", [{"id": 2, "more": "x"}], mergeSchema="true")
    if rolled:
        cli.run("topics", "alter", "t", "--config", "flush.messages=1")
    cli.run("maintain")
    lose_folder(root / "cluster")
    for journal in root.glob("topics/*/*/journal"):
        lose_folder(journal)
    cli.run("cluster", "rebuild", "--nodes", root, "--yes")
    [found] = cli.documents("topics", "describe", "t")
    assert found["schema"] == f"{DDL}, more STRING"
    assert [json.loads(line)["id"] for line in cli.out("consume", "t").splitlines()] == [1, 2]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_text_that_is_not_utf8_is_shown_beside_times_that_python_lacks(kind):
    wrong = pa.array([b"b\xffd"], pa.large_binary() if pa.types.is_large_string(kind) else pa.binary()).view(kind)
    late = pa.array([2**60], pa.timestamp("us"))
    both = pa.StructArray.from_arrays([wrong, late], ["s", "t"])
    batch = pa.RecordBatch.from_arrays([wrong, both], ["text", "both"])
    shown = "b\N{REPLACEMENT CHARACTER}d"
    assert typed_json.objects(batch) == [{"text": shown, "both": {"s": shown, "t": 2**60}}]


def test_values_that_json_and_python_lack_are_shown(tmp_path):
    columns = parse("a DOUBLE, b TIMESTAMP, c MAP<INT, DATE>, d ARRAY<STRUCT<e: DECIMAL(3,1)>>")
    late = pa.array([2**60], pa.int64()).cast(pa.timestamp("us", "UTC"))
    nested = [pa.array([[(1, 3)]], columns.field("c").type), pa.array([[{"e": 1}]], columns.field("d").type)]
    batch = pa.RecordBatch.from_arrays([pa.array([float("nan")]), late, *nested], schema=columns)
    assert json.loads(typed_json.ENCODER.encode(typed_json.objects(batch)[0])) == {
        "a": None,
        "b": 2**60,
        "c": {"1": "1970-01-04"},
        "d": [{"e": 1.0}],
    }
