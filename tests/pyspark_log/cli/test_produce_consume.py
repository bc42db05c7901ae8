"""`pyspark-log produce` and `consume`: the rows that go in come out."""

import base64
import json
import time
from pathlib import Path

import pytest
from hypothesis import given
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


def test_text_lines_come_out_as_they_went_in(cli):
    text = "one\n\nthree äöü 🚀\n  four  \n"
    written = cli.out("produce", "t", stdin=text).splitlines()
    assert written[0] == "wrote 4 rows to topic t"
    assert written[-1].split() == ["0", "4", "0", "3"]
    assert cli.out("consume", "t") == text


def test_bytes_that_are_no_text_pass_through_text_lines(cli):
    cli.run("produce", "t", stdin=b"\xff\x00\xfe\nplain\n")
    assert cli.run("consume", "t").stdout_bytes == b"\xff\x00\xfe\nplain\n"
    assert [row["value"] for row in consumed(cli)] == [{"base64": "/wD+"}, "plain"]


def test_a_key_separator_may_be_bytes_that_are_no_text(cli):
    cli.run("produce", "t", "--key-separator", "\udcff", stdin=b"k\xffv\n")
    assert [(row["key"], row["value"]) for row in consumed(cli)] == [("k", "v")]
    assert cli.run("consume", "t", "--key-separator", "\udcff").stdout_bytes == b"k\xffv\n"


def test_a_line_ends_with_lf_or_cr_lf_and_the_last_needs_no_end(cli):
    cli.run("produce", "t", stdin="one\r\ntwo\nthree")
    assert [row["value"] for row in consumed(cli)] == ["one", "two", "three"]


def test_a_file_is_read_as_stdin_is(cli, tmp_path):
    (tmp_path / "rows.txt").write_text("one\ntwo\n")
    cli.run("produce", "t", tmp_path / "rows.txt")
    cli.run("produce", "t", "-", stdin="three\n")
    assert cli.out("consume", "t") == "one\ntwo\nthree\n"


def test_a_file_that_is_not_there_is_an_error_before_a_topic_is_made(cli):
    assert cli.error("produce", "new", "no-such-file", "--create") == "no-such-file: No such file or directory"
    assert [each["topic"] for each in cli.documents("topics", "list")] == ["t"]


def test_a_key_separator_splits_at_its_first_place(cli):
    cli.run("produce", "t", "--key-separator", "::", stdin="k::v::w\n::empty key\nempty value::\n")
    assert [(row["key"], row["value"]) for row in consumed(cli)] == [
        ("k", "v::w"),
        ("", "empty key"),
        ("empty value", ""),
    ]
    assert cli.out("consume", "t", "--key-separator", "=") == "k=v::w\n=empty key\nempty value=\n"


def test_rows_with_one_key_are_in_one_partition_where_kafka_puts_them(cli):
    cli.run("topics", "create", "p", "--partitions", 3)
    cli.run(
        "produce", "p", "--key-separator", ":", stdin="".join(f"{k}:{i}\n" for i in range(20) for k in ("21", "foobar"))
    )
    rows = cli.documents("consume", "p")
    # Kafka's own values for murmur2: "21" -973932308, "foobar" -790332482 (UtilsTest.testMurmur2)
    expected = {"21": (-973932308 & 0x7FFFFFFF) % 3, "foobar": (-790332482 & 0x7FFFFFFF) % 3}
    assert {(row["key"], row["partition"]) for row in rows} == set(expected.items())
    assert [row["value"] for row in rows if row["key"] == "21"] == [str(i) for i in range(20)]


def test_rows_without_key_take_turns_at_partitions_by_batch(cli):
    cli.run("topics", "create", "p", "--partitions", 4)
    cli.run("produce", "p", "--batch-rows", 2, stdin="".join(f"{i}\n" for i in range(8)))
    assert [each["rows"] for each in cli.documents("offsets", "p")] == [2, 2, 2, 2]


@pytest.mark.parametrize(
    "row",
    [
        {"value": "v"},
        {"value": "v", "key": "k"},
        {"value": None, "key": "tombstone"},
        {"value": "", "key": ""},
        {"value": 'ünï\u2028 🚀 \u0000 " \\ \n\r\t', "key": "日本"},
        {"value": {"base64": base64.b64encode(bytes(range(256))).decode()}, "key": {"base64": "/w=="}},
        {
            "value": "v",
            "headers": [
                {"key": "a", "value": "1"},
                {"key": "a", "value": None},
                {"key": "ä", "value": {"base64": "gA=="}},
            ],
        },
        {"value": "v", "headers": []},
        {"value": "v", "headers": [{"key": None, "value": "x"}]},
        {"value": "v", "timestamp": 1_700_000_000_123},
        {"value": "v", "timestamp": 0},
        {"value": "v", "timestamp": -1},
    ],
)
def test_a_json_row_comes_out_as_it_went_in(cli, row):
    produced(cli, row)
    (found,) = consumed(cli)
    assert found == {"topic": "t", "partition": 0, "offset": 0, "timestamp": found["timestamp"], "key": None} | row


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ('{"a": [1, 2.50,  true]}', '{"a": [1, 2.50,  true]}'),
        ("[]", "[]"),
        ("12345678901234567890123", "12345678901234567890123"),
        ("1.10", "1.10"),
        ("false", "false"),
        ('"a string"', "a string"),
        ('"\\u00e9\\ud83d\\ude80"', "é🚀"),
        ('{"base64": "aGk="}', "hi"),
        ('{"base64": "aGk=", "other": 1}', '{"base64": "aGk=", "other": 1}'),
        ('{"base64": 7}', '{"base64": 7}'),
    ],
)
def test_a_value_that_is_no_string_is_stored_as_its_text(cli, value, stored):
    produced(cli, f'{{"value": {value}, "key": {value}, "headers": [{{"key": "h", "value": {value}}}]}}')
    (row,) = consumed(cli)
    assert (row["value"], row["key"], row["headers"][0]["value"]) == (stored, stored, stored)


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
    again = row_lines.encode_json(batch, "t", 3, 7).splitlines()
    assert (
        row_lines.decode_json(again, 1)
        .drop_columns(["partition"])
        .equals(row_lines.decode_json(lines, 1).drop_columns(["partition"]))
    )
    assert batch.column("value").to_pylist() == [row["value"] for row in columns]
    assert batch.column("key").to_pylist() == [row["key"] for row in columns]
    assert [(row["topic"], row["partition"], row["offset"]) for row in map(json.loads, again)] == [
        ("t", 3, 7 + i) for i in range(len(rows))
    ]


def as_line(row: dict) -> bytes:
    def plain(data: object) -> object:
        if isinstance(data, bytes):
            return {"base64": base64.b64encode(data).decode()}
        if isinstance(data, list):
            return [{"key": each["key"], "value": plain(each["value"])} for each in data]
        return data

    return json.dumps({name: plain(data) for name, data in row.items()}).encode()


def test_what_consume_prints_produce_takes(cli):
    cli.run("topics", "create", "copy")
    produced(cli, {"value": "v", "key": "k", "timestamp": 5, "headers": [{"key": "h", "value": "w"}]}, {"value": None})
    cli.run("produce", "copy", "--format", "json", stdin=cli.out("consume", "t", "--json"))
    copies = [row | {"topic": "t"} for row in cli.documents("consume", "copy")]
    assert copies == consumed(cli)


def test_rows_with_and_without_headers_and_times_may_be_mixed(cli):
    before = time.time_ns() // 1_000_000
    produced(cli, {"value": "a"}, {"value": "b", "headers": [{"key": "h"}], "timestamp": 7}, "", {"value": "c"})
    a, b, c = consumed(cli)
    assert ("headers" in a, b["headers"], "headers" in c) == (False, [{"key": "h", "value": None}], False)
    assert b["timestamp"] == 7
    assert before <= a["timestamp"] == c["timestamp"] <= time.time_ns() // 1_000_000


def test_a_null_is_printed_as_the_word_null_in_text(cli):
    produced(cli, {"value": None})
    assert cli.out("consume", "t") == "null\n"
    assert cli.out("consume", "t", "--key-separator", "\t") == "null\tnull\n"


def test_a_row_goes_to_the_partition_that_it_names(cli):
    cli.run("topics", "create", "p", "--partitions", 3)
    lines = (
        '{"value": "a", "partition": 2}\n{"value": "b", "partition": 0, "key": "k"}\n{"value": "c", "partition": 2}\n'
    )
    (written,) = cli.documents("produce", "p", "--format", "json", stdin=lines)
    assert written == {
        "topic": "p",
        "rows": 3,
        "partitions": [
            {"partition": 0, "rows": 1, "first_offset": 0, "last_offset": 0},
            {"partition": 2, "rows": 2, "first_offset": 0, "last_offset": 1},
        ],
    }
    assert [(row["partition"], row["value"]) for row in cli.documents("consume", "p")] == [(0, "b"), (2, "a"), (2, "c")]
    assert cli.out("consume", "p", "--partition", 2) == "a\nc\n"
    assert cli.out("consume", "p", "--partition", 2, "--partition", 0, "--partition", 1) == "b\na\nc\n"
