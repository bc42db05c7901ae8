"""`pyspark-log produce` and `consume`: the rows that go in come out."""

import base64
import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log.writing import row_lines
from pyspark_log.writing.rows import rows_of
from tests.support.command_line import CommandLine
from tests.support.pyspark_log.cli_rows import consumed, produced


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t")
    return cli


def test_text_lines_come_out_as_they_went_in_whatever_ends_them(cli, tmp_path):
    text = "one\n\nthree äöü 🚀\n  four  \n".encode() + b"\xff\x00\xfe\n"
    cli.run("produce", "t", stdin=text)
    assert cli.run("consume", "t").stdout_bytes == text
    (tmp_path / "rows.txt").write_text("cr\r\nlf\nno end")
    [written] = cli.documents("produce", "t", tmp_path / "rows.txt")
    assert written["partitions"] == [{"partition": 0, "rows": 3, "first_offset": 5, "last_offset": 7}]
    cli.run("produce", "t", "-", stdin="stdin")
    assert [row["value"] for row in consumed(cli)][4:] == [{"base64": "/wD+"}, "cr", "lf", "no end", "stdin"]
    assert cli.error("produce", "new", "no-such-file", "--create") == "no-such-file: No such file or directory"
    assert [each["topic"] for each in cli.documents("topics", "list")] == ["t"]


def test_a_key_separator_splits_at_its_first_place_and_a_null_is_the_word(cli):
    cli.run("produce", "t", "--key-separator", "::", stdin="k::v::w\n::empty key\nempty value::\n")
    cli.run("produce", "t", "--key-separator", "\udcff", stdin=b"b\xffv\n")
    rows = [("k", "v::w"), ("", "empty key"), ("empty value", ""), ("b", "v")]
    assert [(row["key"], row["value"]) for row in consumed(cli)] == rows
    assert cli.out("consume", "t", "--key-separator", "=") == "".join(f"{key}={value}\n" for key, value in rows)
    produced(cli, {"value": None})
    assert cli.run("consume", "t", "--key-separator", "\udcff", "--from", 3).stdout_bytes == b"b\xffv\nnull\xffnull\n"


def test_rows_go_to_the_partition_that_they_or_kafka_name_and_without_a_key_take_turns(cli):
    cli.run("topics", "create", "p", "--partitions", 4)
    cli.run("produce", "p", "--batch-rows", 2, stdin="".join(f"{i}\n" for i in range(8)))
    assert [each["rows"] for each in cli.documents("offsets", "p")] == [2, 2, 2, 2]
    cli.run("produce", "p", "--key-separator", ":", stdin="".join(f"21:{i}\n" for i in range(20)))
    # Kafka's own value for murmur2: "21" -973932308 (UtilsTest.testMurmur2)
    values = cli.out("consume", "p", "--partition", (-973932308 & 0x7FFFFFFF) % 4).split()
    assert values[2:] == [str(i) for i in range(20)]
    rows = [{"value": "a", "partition": 2, "key": "k"}, {"value": "b", "partition": 0, "key": "k"}]
    lines = "\n".join(map(json.dumps, rows))
    [written] = cli.documents("produce", "p", "--format", "json", stdin=lines)
    assert [(each["partition"], each["rows"]) for each in written["partitions"]] == [(0, 1), (2, 1)]
    shown = cli.out("consume", "p", "--partition", 2, "--partition", 0).split()
    assert ("a" in shown, "b" in shown) == (True, True)


def test_json_rows_come_out_as_they_went_in(cli):
    headers = [{"key": "a", "value": "1"}, {"key": "a", "value": None}, {"key": "ä", "value": {"base64": "gA=="}}]
    rows = [
        {"value": None, "key": "tombstone", "timestamp": -1},
        {"value": "", "key": "", "headers": []},
        {"value": 'ünï\u2028 🚀 \u0000 " \\ \n\r\t', "key": "日本", "timestamp": 1_700_000_000_123},
        {"value": {"base64": base64.b64encode(bytes(range(256))).decode()}, "key": {"base64": "/w=="}},
        {"value": "v", "headers": headers, "timestamp": 0},
    ]
    before = time.time_ns() // 1_000_000
    produced(cli, *rows[:3], "", *rows[3:])
    found = consumed(cli)
    for offset, (row, one) in enumerate(zip(found, rows, strict=True)):
        assert row == {"topic": "t", "partition": 0, "offset": offset, "timestamp": row["timestamp"], "key": None} | one
        assert "timestamp" in one or before <= row["timestamp"] <= time.time_ns() // 1_000_000
    cli.run("topics", "create", "copy")
    cli.run("produce", "copy", "--format", "json", stdin=cli.out("consume", "t", "--json"))
    assert [row | {"topic": "t"} for row in cli.documents("consume", "copy")] == found


def test_a_value_that_is_no_string_is_stored_as_its_text(cli):
    texts = {
        '{"a": [1, 2.50,  true]}': '{"a": [1, 2.50,  true]}',
        "12345678901234567890123": "12345678901234567890123",
        "1.10": "1.10",
        "false": "false",
        '"\\u00e9\\ud83d\\ude80"': "é🚀",
        '{"base64": "aGk="}': "hi",
        '{"base64": "aGk=", "other": 1}': '{"base64": "aGk=", "other": 1}',
        '{"base64": 7}': '{"base64": 7}',
    }
    produced(
        cli, *(f'{{"value": {each}, "key": {each}, "headers": [{{"key": "h", "value": {each}}}]}}' for each in texts)
    )
    for row, stored in zip(consumed(cli), texts.values(), strict=True):
        assert (row["value"], row["key"], row["headers"][0]["value"]) == (stored, stored, stored)


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(),
            st.none() | st.text(),
            st.none() | st.lists(st.tuples(st.text(), st.none() | st.binary())),
            st.integers(-(10**15), 10**15),
        )
    )
)
def test_any_row_survives_json(rows):
    columns = [
        {
            "value": value,
            "key": None if key is None else key.encode(),
            "headers": headers and [{"key": name, "value": data} for name, data in headers],
            "timestamp": ms,
        }
        for value, key, headers, ms in rows
    ]
    lines = list(map(as_line, columns))
    batch = rows_of(row_lines.decode_json(lines, 1), now_us=0, by_topic_column=False).record
    again = row_lines.encode_json(batch, "t", 3, np.arange(7, 7 + len(rows))).splitlines()
    first, second = (row_lines.decode_json(each, 1).drop_columns(["partition"]) for each in (lines, again))
    assert first.equals(second)
    assert batch.column("value").to_pylist() == [row["value"] for row in columns]
    assert batch.column("key").to_pylist() == [row["key"] for row in columns]
    places = [(row["topic"], row["partition"], row["offset"]) for row in map(json.loads, again)]
    assert places == [("t", 3, 7 + i) for i in range(len(rows))]


def as_line(row: dict) -> bytes:
    def plain(data: object) -> object:
        if isinstance(data, bytes):
            return {"base64": base64.b64encode(data).decode()}
        if isinstance(data, list):
            return [{"key": each["key"], "value": plain(each["value"])} for each in data]
        return data

    return json.dumps({name: plain(data) for name, data in row.items()}).encode()
