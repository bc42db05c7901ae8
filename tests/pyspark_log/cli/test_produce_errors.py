"""`pyspark-log produce`: malformed input, and arguments that it refuses."""

from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.pyspark_log.cli_rows import consumed


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t")
    return cli


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{}", "(it lacks the field `value`)"),
        ('{"vaule": "v"}', "(it has the unknown field `vaule`)"),
        ('{"value": "v"', "Input data was truncated"),
        ('{"value": "v"} x', "trailing characters"),
        ("value", "malformed"),
        ("[]", "(it is not an object)"),
        ('{"value": "v", "partition": -1}', "its partition: -1 is not a whole number from 0 to 2147483647"),
        ('{"value": "v", "partition": "0"}', 'its partition: "0" is not a whole number'),
        ('{"value": "v", "timestamp": 99999999999999999}', "its timestamp: 99999999999999999 is not milliseconds "),
        ('{"value": "v", "timestamp": 9e999}', "its timestamp: 9e999 is not "),
        ('{"value": "v", "timestamp": "noon"}', 'its timestamp: "noon" is not milliseconds since 1970'),
        ('{"value": "v", "headers": {"k": "v"}}', 'its headers: {"k": "v"} is not a list of objects such as '),
        (
            '{"value": "v", "headers": [{"value": "v"}]}',
            'its headers: [{"value": "v"}] is not a list of objects such as {"key": ',
        ),
        ('{"value": "\\ud800"}', "truncated"),
        ('{"value": {"base64": "!"}}', "invalid base64"),
        ('{"value": {"base64": "aGk"}}', "invalid base64"),
        (b'{"value": "\xff"}', "can't decode byte 0xff"),
        (b'{"value": {"a": "\xff"}}', "can't decode byte 0xff"),
    ],
)
def test_a_malformed_line_is_an_error_with_its_number_and_nothing_is_written(cli, line, reason):
    stdin = b'{"value": "good"}\n\n' + (line if isinstance(line, bytes) else line.encode()) + b'\n{"value": "good"}\n'
    message = cli.error("produce", "t", "--format", "json", stdin=stdin)
    assert message.startswith("line 3 is not a valid row (")
    assert reason in message
    assert message.endswith("; nothing was written")
    assert consumed(cli) == []
    assert leftovers(cli) == []


def test_json_that_is_nested_too_deeply_is_an_error_with_its_number(cli):
    depth = 100_000
    deep = b'{"value": ' + b"[" * depth + b"]" * depth + b"}"
    message = cli.error("produce", "t", "--format", "json", stdin=b'{"value": "good"}\n' + deep + b"\n")
    assert message.startswith("line 2 is nested too deeply for JSON; ")
    assert consumed(cli) == []


def leftovers(cli: CommandLine) -> list[Path]:
    """Append files and temporary ones, where no row was written."""
    return [path for pattern in (".tmp/*-*", "topics/t/*/append/*") for path in cli.path.glob(pattern)]


def test_batches_before_a_malformed_line_are_written(cli):
    stdin = "".join('{"value": "v"}\n' for _ in range(5)) + "bad\n"
    message = cli.error("produce", "t", "--format", "json", "--batch-rows", 2, stdin=stdin)
    assert message.startswith("line 6 is not a valid row")
    assert message.endswith("; lines 1 to 4 were written, later lines were not")
    assert len(consumed(cli)) == 4


def test_a_line_without_key_separator_is_an_error_with_its_number(cli):
    message = cli.error("produce", "t", "--key-separator", ":", stdin="a:b\nc\nd:e\n")
    assert message == "line 2 has no key separator ':'; correct it, or omit --key-separator; nothing was written"
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
    assert message.startswith("topic 't': a row names partition 1, but the topic has only partition 0; correct")
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


def test_a_topic_is_made_only_when_that_is_asked_for(cli):
    assert cli.error("produce", "new", stdin="v\n") == "topic 'new' does not exist; create it first (existing: t)"
    cli.run("produce", "new", "--create", stdin="v\n")
    cli.run("produce", "new", "--create", stdin="w\n")
    assert cli.out("consume", "new") == "v\nw\n"


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
        (["produce", "t", "--acks", "2"], "--acks: '2': it is not a known value; expected all, -1, 1 or 0"),
        (["produce", "t", "--compression", "gzip"], "Arrow does not support this codec; expected none, lz4 or zstd"),
        (["produce", "t", "--batch-rows", "0"], "Invalid value for '--batch-rows': 0 is less than 1"),
        (["produce", "t", "--batch-rows", "x"], "Invalid value for '--batch-rows': 'x' is not a whole number"),
        (["produce", "t", "--format", "xml"], "Invalid value for '--format': 'xml' is not one of 'text', 'json'"),
        (["maintain", "--interval", "x"], "Invalid value for '--interval': 'x' is not a number"),
        (["maintain", "--leader-imbalance-per-broker-percentage", "101"], "': 101 is greater than 100"),
        (["produce", "t", "--key-separator", ""], "--key-separator: it is empty"),
        (["produce", "t", "--key-separator", ":", "--format", "json"], "--key-separator: it applies to text lines"),
        (["consume", "t", "--key-separator", ":", "--json"], "--key-separator: it applies to text lines"),
        (["consume", "t", "--from", "now"], "--from: 'now' is not earliest, latest, an offset, or a time: @"),
        (["consume", "t", "--from", "-1"], "--from: '-1' is not"),
        (["consume", "t", "--from", "@noon"], "--from: '@noon' is not"),
        (["consume", "t", "--max-messages", "-1"], "Invalid value for '--max-messages'"),
    ],
)
def test_what_is_typed_wrong_is_told(cli, arguments, message):
    assert message.lower() in cli.misuse(*arguments).lower()


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("acsk=all", "did you mean --acks?"),
        ("retrys=1", "did you mean retries?"),
        ("zzz=1", "expected one of retries, retry.backoff.ms, delivery.timeout.ms"),
        ("txnAppI=1", "expected one of retries, retry.backoff.ms, delivery.timeout.ms"),
    ],
)
def test_a_setting_that_is_misspelt_is_refused_with_the_nearest_one(cli, setting, hint):
    name = setting.split("=")[0].lower()
    assert cli.error("produce", "t", "--config", setting) == f"unknown --config {name}; {hint}"
