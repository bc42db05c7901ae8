"""The program `pyspark-log` as a process: without Spark, in pipes, interrupted, and quick to start."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.command_line import PROGRAM, CommandLine

PATIENCE_SECONDS = 60


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t")
    return cli


@pytest.fixture
def start(cli: CommandLine) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Start the program; what still runs at the end of the test is killed."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: object, **streams: object) -> "subprocess.Popen[bytes]":
        running.append(cli.start(*arguments, **streams))
        return running[-1]

    yield begin
    for process in running:
        with process:
            process.kill()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


WITHOUT_SPARK = """
import sys
for name in ("pyspark", "py4j"):
    sys.modules[name] = None
from pyspark_log.cli.main import app
app(sys.argv[1:])
"""


def test_everything_works_where_pyspark_cannot_be_imported(tmp_path):
    def run(*arguments: str, stdin: str = "") -> str:
        process = subprocess.run(
            [sys.executable, "-c", WITHOUT_SPARK, *arguments, "--path", str(tmp_path / "log")],
            input=stdin,
            capture_output=True,
            text=True,
            env=os.environ | {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"},
            check=False,
        )
        creates = [f"created a new log at {tmp_path / 'log'} "] if "create" in arguments else []
        assert (process.returncode, process.stderr.split("(")[: len(creates)]) == (0, creates)
        assert creates or not process.stderr
        return process.stdout

    run("topics", "create", "t", "--partitions", "2")
    run("topics", "list")
    run("produce", "t", "--format", "json", stdin='{"value": "v", "key": "k", "headers": [{"key": "h"}]}\n')
    assert json.loads(run("consume", "t", "--json"))["value"] == "v"
    run("offsets", "t", "--time", "0")
    run("topics", "describe", "t")
    run("topics", "delete", "t", "--yes")


IMPORTED = """
import sys
from pyspark_log.cli.main import app
try:
    app(sys.argv[1:])
finally:
    print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
    print(*(name for name in sys.modules if name.startswith("pyspark_log.cli.")), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("command", "heavy"),
    [
        (["--help"], set()),
        (["produce"], set()),
        (["topics", "list", "--json"], set()),
        (["topics", "list"], {"rich"}),
        (["groups", "list"], set()),  # there is none, so no table
        (["nodes", "list"], {"rich"}),
        (["cluster", "describe"], {"rich"}),
        (["topics", "describe", "t"], {"rich", "pyarrow", "numpy"}),  # the schema is one of Arrow
        (["offsets", "t"], {"rich"}),
        (["consume", "t"], {"pyarrow", "numpy"}),
    ],
)
def test_a_command_imports_only_what_it_needs(cli, command, heavy):
    process = subprocess.run(
        [sys.executable, "-c", IMPORTED, *command],
        capture_output=True,
        text=True,
        env=os.environ | {"PYSPARK_LOG_PATH": str(cli.path)},
        check=False,
    )
    imported = set(process.stderr.splitlines()[-2].split())
    assert imported & {"numpy", "pyarrow", "pyspark", "rich"} == heavy


@pytest.mark.parametrize("command", [["--help"], ["topics", "--help"], ["--version"], ["topics", "creat"]])
def test_a_list_of_commands_imports_none_of_them(command):
    process = subprocess.run([sys.executable, "-c", IMPORTED, *command], capture_output=True, text=True, check=False)
    imported = process.stderr.splitlines()[-1].split()
    assert not [name for name in imported if name.count(".") > 2]


def test_a_topic_is_followed_while_another_process_writes(start):
    follower = start("consume", "t", "--follow")
    producer = start("produce", "t", "--linger-ms", "50")
    for value in (b"one\n", b"two\n", b"three\n"):
        producer.stdin.write(value)
        producer.stdin.flush()
        assert follower.stdout.readline() == value
    producer.stdin.close()
    assert producer.wait(PATIENCE_SECONDS) == 0
    assert producer.stdout.readline() == b"wrote 3 rows to topic t\n"


def test_rows_of_a_pipe_do_not_wait_for_ever(cli, start):
    producer = start("produce", "t", "--linger-ms", "50")
    producer.stdin.write(b"one\nhal")
    producer.stdin.flush()
    wait_until(lambda: cli.out("consume", "t") == "one\n")
    producer.stdin.write(b"f")
    producer.stdin.close()
    assert producer.wait(PATIENCE_SECONDS) == 0
    assert cli.out("consume", "t") == "one\nhalf\n"


def test_rows_of_a_pipe_are_one_batch_within_the_linger(cli, start):
    producer = start("produce", "t", "--linger-ms", "1000000")
    for value in (b"one\n", b"two\n"):
        producer.stdin.write(value)
        producer.stdin.flush()
    producer.stdin.close()
    assert producer.wait(PATIENCE_SECONDS) == 0
    (described,) = cli.documents("topics", "describe", "t")
    assert described["journal_entry"] == 2


def test_ctrl_c_ends_follow_in_peace(cli, start):
    cli.run("produce", "t", stdin="one\n")
    follower = start("consume", "t", "--follow")
    assert follower.stdout.readline() == b"one\n"
    follower.send_signal(signal.SIGINT)
    assert (follower.wait(PATIENCE_SECONDS), follower.stdout.read(), follower.stderr.read()) == (0, b"", b"")


def test_ctrl_c_at_the_input_of_produce_writes_what_was_read(cli, start):
    producer = start("produce", "t", "--linger-ms", "1000000", "--batch-rows", "2")
    producer.stdin.write(b"one\ntwo\nthree\n")
    producer.stdin.flush()
    wait_until(lambda: cli.out("consume", "t") == "one\ntwo\n")
    wait_until(lambda: sleeps(producer.pid))  # for input
    producer.send_signal(signal.SIGINT)
    assert (producer.wait(PATIENCE_SECONDS), producer.stderr.read()) == (130, b"")
    assert producer.stdout.readline() == b"wrote 3 rows to topic t\n"
    assert cli.out("consume", "t") == "one\ntwo\nthree\n"


def sleeps(pid: int) -> bool:
    """Return whether the process waits for something that a signal can interrupt."""
    return "\nState:\tS" in Path(f"/proc/{pid}/status").read_text()


def test_max_messages_ends_follow(start):
    follower = start("consume", "t", "--follow", "--max-messages", "3", "--json")
    producer = start("produce", "t", "--linger-ms", "50")
    producer.stdin.write(b"one\n")
    producer.stdin.flush()
    assert json.loads(follower.stdout.readline())["value"] == "one"
    producer.stdin.write(b"two\nthree\nfour\n")
    producer.stdin.close()
    assert follower.wait(PATIENCE_SECONDS) == 0
    assert [json.loads(line)["value"] for line in follower.stdout] == ["two", "three"]


@pytest.mark.parametrize("follow", [[], ["--follow"]])
def test_a_reader_that_goes_away_is_no_error(cli, start, follow):
    cli.run("produce", "t", stdin="".join(f"{i}\n" for i in range(100_000)))
    reading = start("consume", "t", *follow)
    assert reading.stdout.readline() == b"0\n"
    reading.stdout.close()
    assert (reading.wait(PATIENCE_SECONDS), reading.stderr.read()) == (0, b"")


def test_follow_notices_a_reader_that_goes_away_where_nothing_comes(cli, start):
    cli.run("produce", "t", stdin="one\n")
    reading = start("consume", "t", "--follow")
    assert reading.stdout.readline() == b"one\n"
    reading.stdout.close()
    assert (reading.wait(PATIENCE_SECONDS), reading.stderr.read()) == (0, b"")


@pytest.mark.parametrize("command", [["topics", "list"], ["topics", "list", "--json"], ["topics", "describe", "t"]])
def test_a_short_answer_that_nobody_reads_is_no_error(start, command):
    reader, writer = os.pipe()
    os.close(reader)
    process = start(*command, stdout=writer)
    os.close(writer)
    assert (process.wait(PATIENCE_SECONDS), process.stderr.read()) == (0, b"")


def test_a_full_disk_behind_stdout_is_an_error(cli, start):
    cli.run("produce", "t", stdin="one\n")
    with open("/dev/full", "wb") as full:
        process = start("consume", "t", stdout=full)
    assert process.wait(PATIENCE_SECONDS) == 1
    assert process.stderr.read() == b"pyspark-log: cannot read or write: No space left on device\n"


def test_a_topic_that_is_deleted_ends_follow_with_an_error(cli, start):
    cli.run("produce", "t", stdin="one\n")
    follower = start("consume", "t", "--follow")
    assert follower.stdout.readline() == b"one\n"
    cli.run("topics", "delete", "t", "--yes")
    cli.run("topics", "create", "t")
    assert follower.wait(PATIENCE_SECONDS) == 1
    assert b"was deleted; create it again" in follower.stderr.read()


def test_a_topic_that_is_deleted_ends_produce_with_an_error(cli, start):
    producer = start("produce", "t", "--linger-ms", "50")
    producer.stdin.write(b"old\n")
    producer.stdin.flush()
    wait_until(lambda: cli.out("consume", "t") == "old\n")
    cli.run("topics", "delete", "t", "--yes")
    cli.run("topics", "create", "t")
    producer.stdin.write(b"new\n")
    producer.stdin.close()
    assert producer.wait(PATIENCE_SECONDS) == 1
    error = producer.stderr.read().decode()
    assert "was deleted" in error
    assert error.endswith("; line 1 was written, later lines were not\n")
    assert cli.out("consume", "t") == ""


def test_produce_shows_its_progress_to_a_terminal_only(cli, start, tmp_path):
    (tmp_path / "rows.txt").write_text("row\n" * 300_000)
    master, terminal = pty.openpty()
    with (tmp_path / "rows.txt").open("rb") as rows:
        shown = start("produce", "t", "--json", stdin=rows, stderr=terminal)
        os.close(terminal)
        bar = b"".join(iter(lambda: read(master), b""))
    assert shown.wait(PATIENCE_SECONDS) == 0
    assert b"/1.2 MB" in bar
    assert json.loads(shown.stdout.read())["rows"] == 300_000
    quiet = start("produce", "t", tmp_path / "rows.txt", "--json")
    assert (quiet.wait(PATIENCE_SECONDS), quiet.stderr.read()) == (0, b"")


def read(terminal: int) -> bytes:
    """Return what was written to a terminal: nothing once no process has it open."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def test_producers_at_once_lose_and_double_nothing(cli, start):
    expected = []
    for writer in range(4):
        lines = [f"{writer}-{i}" for i in range(20)]
        expected += lines
        producer = start("produce", "t", "--batch-rows", 4)
        producer.stdin.write("\n".join(lines).encode())
        producer.stdin.close()
    # `start` keeps them; each ends by itself
    wait_until(lambda: len(cli.out("consume", "t").split()) >= len(expected))
    found = cli.out("consume", "t").split()
    assert sorted(found) == sorted(expected)
    for writer in range(4):
        assert [line for line in found if line.startswith(f"{writer}-")] == [f"{writer}-{i}" for i in range(20)]


def test_the_script_is_installed_under_its_name(cli):
    script = Path(sys.executable).with_name("pyspark-log")
    if not script.exists():
        pytest.skip("the package is not installed, only on the path")
    shown = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    module = subprocess.run([*PROGRAM, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == module.stdout


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["--path", "/x", "topics", "list"], "No such option: --path; put options after the command"),
        (["topics", "--json", "list"], "No such option: --json; put options after the command"),
        (["node", "run", "1", "--replica-lag-time-max-ms", "4"], "No such option: --replica-lag-time-max-ms; it is a"),
        (["topics", "create", "--topic", "t"], "No such option: --topic; name the topic without an option"),
        (["topics", "list", "--bootstrap-server", "b:9092"], "; use --path for the address of the cluster"),
        (
            ["topics", "alter", "t", "--partitions", "3"],
            "; use: pyspark-log topics add-partitions TOPIC --partitions N",
        ),
        (["consume", "t", "--from-beginning"], "; this is the default; use --from to start elsewhere"),
        (["groups", "describe", "--group", "g"], "; name the group without an option"),
        (["consumer-groups", "--list"], "No such command 'consumer-groups'; use: pyspark-log groups"),
        (["topics", "create", "t", "--partition", "3"], "No such option: --partition (Possible options: --partitions)"),
    ],
)
def test_what_is_typed_as_for_kafka_is_told_as_it_is_here(cli, command, told):
    assert told in cli.misuse(*command)


@pytest.mark.parametrize("group", [[], ["topics"], ["cluster"], ["nodes"], ["node"], ["groups"]])
def test_no_sentence_in_a_list_of_commands_is_cut(cli, group):
    _, listed = cli.out(*group, "--help").split("Commands:")
    assert "..." not in listed
