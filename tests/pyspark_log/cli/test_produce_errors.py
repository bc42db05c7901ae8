"""`pyspark-log produce`: malformed input, and arguments that it refuses."""

from pathlib import Path

import pytest

from tests.support.command_line import CommandLine


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t")
    return cli


def refused(cli: CommandLine, *arguments: object, stdin: str | bytes) -> str:
    """Return why `produce` wrote nothing, and left nothing."""
    message = cli.error("produce", "t", *arguments, stdin=stdin)
    assert "nothing was written" in message or "topic 't': a row" in message
    assert cli.out("consume", "t") == ""
    assert [path for pattern in (".tmp/[0-9a-f]*", "topics/t/*/append/*") for path in cli.path.glob(pattern)] == []
    return message


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{}", "(it lacks the field `value`)"),
        (b'{"vaule": "v"}', "(it has the unknown field `vaule`)"),
        (b'{"value": "v"', "Input data was truncated"),
        (b'{"value": "v"} x', "trailing characters"),
        (b"[]", "(it is not an object)"),
        (b'{"value": "v", "partition": -1}', "its partition: -1 is not a whole number from 0 to 2147483647"),
        (b'{"value": "v", "timestamp": 99999999999999999}', "its timestamp: 99999999999999999 is not milliseconds"),
        (b'{"value": "v", "timestamp": "noon"}', 'its timestamp: "noon" is not milliseconds since 1970'),
        (b'{"value": "v", "headers": [{"value": "v"}]}', "is not a list of objects such as "),
        (b'{"value": "\\ud800"}', "truncated"),
        (b'{"value": {"base64": "!"}}', "invalid base64"),
        (b'{"value": "\xff"}', "can't decode byte 0xff"),
        (b'{"value": {"a": "\xff"}}', "can't decode byte 0xff"),
    ],
)
def test_a_malformed_line_is_an_error_with_its_number_and_nothing_is_written(cli, line, reason):
    stdin = b'{"value": "good"}\n\n' + line + b'\n{"value": "good"}\n'
    message = refused(cli, "--format", "json", stdin=stdin)
    assert message.startswith("line 3 is not a valid row (")
    assert reason in message


def test_a_line_that_is_too_deep_too_long_or_without_key_is_an_error_with_its_number(cli):
    deep = b'{"value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    said = refused(cli, "--format", "json", stdin=b'{"value": "good"}\n' + deep)
    assert said.startswith("line 2 is nested too deeply for JSON; ")
    said = refused(cli, "--key-separator", ":", stdin="a:b\nc\nd:e\n")
    assert said.startswith("line 2 has no key separator ':'")
    cli.run("topics", "alter", "t", "--config", "max.message.bytes=10")
    assert refused(cli, stdin=b"a\n" + b"x" * 3_000_000).startswith("line 2 has more than 1,048,656 bytes")
    said = refused(cli, stdin="short\nmuch too long\n")
    assert said.startswith("topic 't': a row of 13 bytes is larger than max.message.bytes (10)")
    said = refused(cli, "--format", "json", stdin='{"value": "v", "partition": 1}\n')
    assert said.startswith("topic 't': a row names partition 1, but the topic has only partition 0")


def test_batches_are_journal_entries_and_those_before_a_malformed_line_are_written(cli):
    assert cli.documents("produce", "t", stdin="") == [{"topic": "t", "rows": 0, "partitions": []}]
    [before] = cli.documents("topics", "describe", "t")
    stdin = "".join('{"value": "v"}\n' for _ in range(5)) + "bad\n"
    message = cli.error("produce", "t", "--format", "json", "--batch-rows", 2, stdin=stdin)
    assert message.startswith("line 6 is not a valid row")
    assert message.endswith("; lines 1 to 4 were written, later lines were not")
    assert cli.out("consume", "t") == "v\n" * 4
    assert cli.documents("topics", "describe", "t")[0]["journal_entry"] == before["journal_entry"] + 2


def test_a_topic_is_created_only_if_that_is_asked_for(cli):
    assert "topic 'new' does not exist; create it first" in cli.error("produce", "new", stdin="v\n")
    for value in ("v\n", "w\n"):
        cli.run("produce", "new", "--create", stdin=value)
    assert cli.out("consume", "new") == "v\nw\n"


@pytest.mark.parametrize(("acks", "compression"), [("all", "none"), ("-1", "lz4"), ("1", "zstd"), ("0", "none")])
def test_acks_and_compression_are_kafkas(cli, acks, compression):
    cli.run("produce", "t", "--acks", acks, "--compression", compression, stdin="squeeze " * 500 + "\n")
    assert cli.out("consume", "t") == "squeeze " * 500 + "\n"
    [file] = cli.path.glob("topics/t/*/append/*")
    assert (file.stat().st_size > 4000) == (compression == "none")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("produce t --acks 2", "'2' is not one of 'all', '-1', '1', '0'"),
        ("produce t --compression gzip", "'gzip' is not one of 'none', 'lz4', 'zstd'"),
        ("produce t --batch-rows 0", "'0' should be greater than or equal to 1"),
        ("produce t --format xml", "'xml' is not one of 'text', 'json'"),
        ("produce t --key-separator=", "it is empty"),
        ("produce t --key-separator : --format json", "it applies to text lines"),
        ("consume t --key-separator : --json", "it applies to text lines"),
        ("consume t --max-messages -1", "Invalid value for '--max-messages'"),
        ("node run --interval x", "'x' should be a valid number"),
        ("node run --leader-imbalance-per-broker-percentage 101", "'101' should be less than or equal to 100"),
        ("maintain --watch", "No such option: --watch; use: pyspark-log node run"),
        # What is typed as for Kafka
        ("--path /x topics list", "No such option: --path; put options after the command"),
        ("topics --json list", "No such option: --json; put options after the command"),
        ("node run 1 --replica-lag-time-max-ms 4", "No such option: --replica-lag-time-max-ms; it is a"),
        ("topics create --topic t", "name the topic without an option"),
        ("topics list --bootstrap-server b:9092", "use --path for the address of the cluster"),
        ("topics alter t --partitions 3", "use: pyspark-log topics add-partitions TOPIC --partitions N"),
        ("consume t --from-beginning", "this is the default; use --from to start elsewhere"),
        ("consumer-groups --list", "No such command 'consumer-groups'; use: pyspark-log groups"),
        ("topics create t --partition 3", "Possible options: --partitions"),
        ("topics creat", "Did you mean 'create'?"),
    ],
)
def test_what_is_typed_wrong_is_told_with_what_is_right(cli, words, said):
    assert said in cli.misuse(*words.split(" "))
