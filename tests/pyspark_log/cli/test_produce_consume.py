"""`pyspark-log produce` and `consume`: what goes in comes out."""

import base64
import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log.cli import json_rows
from pyspark_log.client.read.fetch import BATCH_ROWS
from pyspark_log.client.write.rows import rows_of
from tests.command_line import CommandLine


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t")
    return cli


def consumed(cli: CommandLine, *arguments: object) -> list[dict]:
    return cli.documents("consume", "t", *arguments)


def produced(cli: CommandLine, *lines: dict | str) -> None:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    cli.run("produce", "t", "--format", "json", stdin=text)


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
    batch = rows_of(json_rows.decode(lines, 1), now_us=0, by_topic_column=False).record
    again = json_rows.encode(batch, "t", 3, 7).splitlines()
    assert (
        json_rows.decode(again, 1)
        .drop_columns(["partition"])
        .equals(json_rows.decode(lines, 1).drop_columns(["partition"]))
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


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{}", "Object missing required field `value`"),
        ('{"vaule": "v"}', "Object contains unknown field `vaule`"),
        ('{"value": "v"', "Input data was truncated"),
        ('{"value": "v"} x', "trailing characters"),
        ("value", "malformed"),
        ("[]", "Expected `object`, got `array`"),
        ('{"value": "v", "partition": -1}', "its partition is -1: Expected `int` >= 0"),
        ('{"value": "v", "partition": "0"}', "Expected `int | null`, got `str`"),
        ('{"value": "v", "timestamp": 99999999999999999}', "its timestamp is 99999999999999999: Expected `int` <= "),
        ('{"value": "v", "timestamp": 9e999}', "its timestamp is 9e999: "),
        ('{"value": "v", "timestamp": "noon"}', 'its timestamp is "noon": Expected `int | null`'),
        ('{"value": "v", "headers": {"k": "v"}}', "Expected `array | null`, got `object`"),
        ('{"value": "v", "headers": [{"value": "v"}]}', "missing required field `key`"),
        ('{"value": "\\ud800"}', "truncated"),
        ('{"value": {"base64": "!"}}', "bad base64"),
        ('{"value": {"base64": "aGk"}}', "bad base64"),
        (b'{"value": "\xff"}', "can't decode byte 0xff"),
        (b'{"value": {"a": "\xff"}}', "can't decode byte 0xff"),
    ],
)
def test_a_malformed_line_is_an_error_with_its_number_and_nothing_is_written(cli, line, reason):
    stdin = b'{"value": "good"}\n\n' + (line if isinstance(line, bytes) else line.encode()) + b'\n{"value": "good"}\n'
    message = cli.error("produce", "t", "--format", "json", stdin=stdin)
    assert message.startswith("line 3 is not a row as JSON (")
    assert reason in message
    assert message.endswith("; nothing was written")
    assert consumed(cli) == []
    assert leftovers(cli) == []


def test_json_that_is_nested_too_deeply_is_an_error_with_its_number(cli):
    depth = 100_000
    deep = b'{"value": ' + b"[" * depth + b"]" * depth + b"}"
    message = cli.error("produce", "t", "--format", "json", stdin=b'{"value": "good"}\n' + deep + b"\n")
    assert message.startswith("line 2 is nested too deeply to be read as JSON; ")
    assert consumed(cli) == []


def leftovers(cli: CommandLine) -> list[Path]:
    """Append files and temporary ones, where no row was written."""
    return [path for pattern in (".tmp/*", "topics/t/*/append/*") for path in cli.path.glob(pattern)]


def test_batches_before_a_malformed_line_are_written(cli):
    stdin = "".join('{"value": "v"}\n' for _ in range(5)) + "bad\n"
    message = cli.error("produce", "t", "--format", "json", "--batch-rows", 2, stdin=stdin)
    assert message.startswith("line 6 is not a row")
    assert message.endswith("; lines 1 to 4 were written, and none after them")
    assert len(consumed(cli)) == 4


def test_a_line_without_key_separator_is_an_error_with_its_number(cli):
    message = cli.error("produce", "t", "--key-separator", ":", stdin="a:b\nc\nd:e\n")
    assert message == "line 2 has no key separator ':'; correct it, or leave --key-separator out; nothing was written"
    assert consumed(cli) == []


def test_a_row_that_is_too_large_is_an_error_that_names_the_limit(cli):
    cli.run("topics", "create", "small", "--config", "max.message.bytes=10")
    message = cli.error("produce", "small", stdin="short\nmuch too long\n")
    assert message.startswith("topic 'small': a row of 13 bytes is larger than max.message.bytes (10)")
    assert cli.out("consume", "small") == ""


def test_a_line_that_never_ends_is_an_error_before_memory_is_full(cli):
    cli.run("topics", "create", "small", "--config", "max.message.bytes=10")
    message = cli.error("produce", "small", stdin=b"a\n" + b"x" * 3_000_000)
    assert message.startswith("line 2 has more than 1,048,656 bytes")
    assert message.endswith("; nothing was written")


def test_a_partition_that_the_topic_does_not_have_is_an_error(cli):
    message = cli.error("produce", "t", "--format", "json", stdin='{"value": "v", "partition": 1}\n')
    assert message.startswith("topic 't': a row asks for partition 1, but the topic has 1 partitions")
    assert leftovers(cli) == []


def test_no_input_is_no_batch(cli):
    assert cli.out("produce", "t") == "wrote 0 rows to topic t\n"
    assert cli.documents("produce", "t", "--format", "json", stdin="\n\n") == [
        {"topic": "t", "rows": 0, "partitions": []}
    ]
    (described,) = cli.documents("topics", "describe", "t")
    assert described["journal_entry"] == 1


def test_each_batch_is_one_journal_entry(cli):
    cli.run("produce", "t", "--batch-rows", 3, stdin="".join(f"{i}\n" for i in range(7)))
    (described,) = cli.documents("topics", "describe", "t")
    assert described["journal_entry"] == 1 + 3
    assert cli.out("consume", "t").split() == [str(i) for i in range(7)]


def test_a_topic_is_made_only_when_that_is_asked_for(cli, tmp_path):
    assert cli.error("produce", "new", stdin="v\n") == "topic 'new' does not exist; create it first (existing: t)"
    cli.run("produce", "new", "--create", stdin="v\n")
    cli.run("produce", "new", "--create", stdin="w\n")
    assert cli.out("consume", "new") == "v\nw\n"
    fresh = CommandLine(tmp_path / "fresh")
    fresh.run("produce", "new", "--create", stdin="v\n")
    assert fresh.out("consume", "new") == "v\n"


@pytest.mark.parametrize("acks", ["all", "-1", "1", "0"])
@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_acks_and_compression_are_kafkas(cli, acks, compression):
    cli.run("produce", "t", "--acks", acks, "--compression", compression, stdin="squeeze " * 500 + "\n")
    assert cli.out("consume", "t") == "squeeze " * 500 + "\n"
    (file,) = cli.path.glob("topics/t/*/append/*")
    assert (file.stat().st_size > 4000) == (compression == "none")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["produce", "t", "--acks", "2"], "--acks: '2': there is no such value. It takes all, -1, 1 or 0"),
        (["produce", "t", "--compression", "gzip"], "Arrow has no such codec. It takes none, lz4 or zstd"),
        (["produce", "t", "--batch-rows", "0"], "Invalid value for '--batch-rows'"),
        (["produce", "t", "--key-separator", ""], "--key-separator: it is empty"),
        (["produce", "t", "--key-separator", ":", "--format", "json"], "--key-separator: it is for text lines"),
        (["consume", "t", "--key-separator", ":", "--json"], "--key-separator: it is for text lines"),
        (["consume", "t", "--from", "now"], "--from: 'now' is not earliest, latest, an offset, or @"),
        (["consume", "t", "--from", "-1"], "--from: '-1' is not"),
        (["consume", "t", "--from", "@noon"], "--from: '@noon' is not"),
        (["consume", "t", "--max-messages", "-1"], "Invalid value for '--max-messages'"),
    ],
)
def test_what_is_typed_wrong_is_told(cli, arguments, message):
    assert message.lower() in cli.misuse(*arguments).lower()


def test_consume_begins_where_it_is_told(cli):
    for number, ms in enumerate((1000, 2000, 3000)):
        produced(cli, {"value": str(number), "timestamp": ms})
    starts = {"earliest": "012", "latest": "", "0": "012", "1": "12", "3": "", "@0": "012", "@2000": "12", "@3001": ""}
    for start, expected in starts.items():
        assert cli.out("consume", "t", "--from", start).replace("\n", "") == expected


def test_an_offset_that_the_partition_does_not_have_is_an_error(cli):
    message = cli.error("consume", "t", "--from", 1)
    assert message == (
        "topic 't', partition 0 has no offset 1: its offsets are 0 to 0, where 0 is the next row's; choose one of these"
    )


def test_an_offset_is_of_one_partition(cli):
    cli.run("topics", "create", "p", "--partitions", 2)
    cli.run(
        "produce", "p", "--format", "json", stdin='{"value": "a", "partition": 1}\n{"value": "b", "partition": 1}\n'
    )
    assert cli.error("consume", "p", "--from", 1).endswith("choose one with --partition")
    assert cli.out("consume", "p", "--from", 1, "--partition", 1) == "b\n"


def test_a_partition_to_consume_must_be_there(cli):
    message = cli.error("consume", "t", "--partition", 1)
    assert message == "topic 't' has no partition 1: it has 1, numbered from 0; choose one of these"


@pytest.mark.parametrize("most", [0, 1, 3, 99])
def test_max_messages_ends_consume(cli, most):
    cli.run("topics", "create", "p", "--partitions", 3)
    for partition in range(3):
        cli.run("produce", "p", "--format", "json", stdin=f'{{"value": "v", "partition": {partition}}}\n' * 2)
    assert len(cli.documents("consume", "p", "--max-messages", most)) == min(most, 6)


def test_many_rows_come_out_in_order(cli):
    rows = BATCH_ROWS * 2 + 5
    text = "".join(f"{i}\n" for i in range(rows))
    cli.run("produce", "t", "--batch-rows", BATCH_ROWS + 1, stdin=text)
    assert cli.out("consume", "t") == text
    assert [row["offset"] for row in consumed(cli, "--from", BATCH_ROWS - 1)] == list(range(BATCH_ROWS - 1, rows))


def test_a_damaged_file_is_told_by_topic_partition_and_offsets(cli):
    cli.run("produce", "t", stdin="one\ntwo\n")
    (file,) = cli.path.glob("topics/t/*/append/*")
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    message = cli.error("consume", "t")
    assert message.startswith("topic 't', partition 0, offsets 0 to 1 (")
    assert "is damaged" in message
