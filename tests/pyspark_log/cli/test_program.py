"""The program `pyspark-log` as a process: without Spark, in pipes, interrupted, and quick to start."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine

pytestmark = pytest.mark.deep
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


def write(process: "subprocess.Popen[bytes]", text: bytes) -> None:
    process.stdin.write(text)
    process.stdin.flush()


IMPORTED = """
import sys
from pyspark_log.cli.main import app
try:
    app(sys.argv[1:])
finally:
    print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
    print(*(name for name in sys.modules if name.startswith("pyspark_log.cli.")), file=sys.stderr)
"""


def imports(cli: CommandLine, *command: str) -> tuple[set[str], list[str]]:
    """Return the packages that a command imports, and the modules of the command line."""
    environment = os.environ | {"PYSPARK_LOG_PATH": str(cli.path)}
    words = [sys.executable, "-c", IMPORTED, *command]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    *_, packages, modules = done.stderr.splitlines()
    return set(packages.split()), modules.split()


@pytest.mark.parametrize(
    ("command", "heavy"),
    [
        ("topics --help", set()),
        ("topics list --json", set()),
        ("nodes list", set()),
        ("consume t", {"pyarrow", "numpy"}),
    ],
)
def test_a_command_imports_only_what_it_needs_and_a_list_of_commands_none_of_them(cli, command, heavy):
    packages, modules = imports(cli, *command.split())
    assert packages & {"numpy", "pyarrow", "pyspark", "rich"} == heavy
    assert "--help" not in command or not [name for name in modules if name.count(".") > 2]


def test_a_topic_is_followed_while_another_process_writes_until_ctrl_c(start):
    follower = start("consume", "t", "--follow")
    producer = start("produce", "t", "--linger-ms", "50")
    for value in (b"one\n", b"two\n", b"three\n"):
        write(producer, value)
        assert follower.stdout.readline() == value
    producer.stdin.close()
    assert producer.wait(PATIENCE_SECONDS) == 0
    assert producer.stdout.readline() == b"wrote 3 rows to topic t\n"
    follower.send_signal(signal.SIGINT)
    assert (follower.wait(PATIENCE_SECONDS), follower.stdout.read(), follower.stderr.read()) == (0, b"", b"")


def test_rows_of_a_pipe_wait_for_others_within_the_linger_and_no_longer(cli, start):
    producer = start("produce", "t", "--linger-ms", "50")
    write(producer, b"one\nhal")
    wait_until(lambda: cli.out("consume", "t") == "one\n")
    write(producer, b"f")
    producer.stdin.close()
    assert producer.wait(PATIENCE_SECONDS) == 0
    assert cli.out("consume", "t") == "one\nhalf\n"
    [before] = cli.documents("topics", "describe", "t")
    patient = start("produce", "t", "--linger-ms", "1000000")
    for value in (b"one\n", b"two\n"):
        write(patient, value)
    patient.stdin.close()
    assert patient.wait(PATIENCE_SECONDS) == 0
    assert cli.documents("topics", "describe", "t")[0]["journal_entry"] == before["journal_entry"] + 1


@pytest.mark.parametrize(("rows", "follow"), [(100_000, []), (100_000, ["--follow"]), (1, ["--follow"])])
def test_a_reader_that_goes_away_is_no_error(cli, start, rows, follow):
    cli.run("produce", "t", stdin="".join(f"{i}\n" for i in range(rows)))
    reading = start("consume", "t", *follow)
    assert reading.stdout.readline() == b"0\n"
    reading.stdout.close()
    assert (reading.wait(PATIENCE_SECONDS), reading.stderr.read()) == (0, b"")
