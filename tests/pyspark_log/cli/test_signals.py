"""SIGTERM and SIGHUP, which supervisors send, end commands as Ctrl-C does."""

import os
import signal
from pathlib import Path

import pytest

from pyspark_log.cli.rows import consume, follow, produce
from pyspark_log.cli.rows.produce import Batches
from tests.support.command_line import CommandLine

BOTH = pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t")
    return cli


@pytest.fixture(autouse=True)
def _no_signal_may_end_the_tests():
    def unhandled(*_):
        raise AssertionError("the command does not handle the signal")

    before = {each: signal.signal(each, unhandled) for each in (signal.SIGTERM, signal.SIGHUP)}
    yield
    assert all(signal.getsignal(each) is unhandled for each in before)
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.fixture
def pipe(tmp_path):
    """A named pipe with two lines, whose writer lives on."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    os.write(writer, b"one\ntwo\n")
    yield path
    os.close(writer)


@BOTH
def test_produce_writes_what_its_pipe_has_had_when_a_signal_comes_while_it_waits(cli, pipe, monkeypatch, number, code):
    select = produce.select.select

    def wait(*arguments):
        if arguments[3]:  # rows linger
            with pipe.open("ab", buffering=0) as writer:
                writer.write(b"three\n")
            signal.raise_signal(number)
        return select(*arguments)

    monkeypatch.setattr(produce.select, "select", wait)
    result = cli.run("produce", "t", pipe, "--linger-ms", 100_000, code=code)
    assert (result.stdout.splitlines()[0], result.stderr) == ("wrote 3 rows to topic t", "")
    assert cli.out("consume", "t") == "one\ntwo\nthree\n"


@pytest.mark.parametrize("step", ["add", "end"])
def test_produce_finishes_its_batch_when_a_signal_comes_twice_while_it_works(cli, pipe, monkeypatch, step):
    work = getattr(Batches, step)

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)  # a supervisor may send several
        work(*arguments)

    monkeypatch.setattr(Batches, step, interrupted)
    result = cli.run("produce", "t", pipe, "--batch-rows", 2, code=143)
    assert (result.stdout.splitlines()[0], result.stderr) == ("wrote 2 rows to topic t", "")
    assert cli.out("consume", "t") == "one\ntwo\n"


@BOTH
def test_a_member_leaves_its_group_and_has_committed_what_it_printed(cli, monkeypatch, number, code):
    cli.run("produce", "t", stdin="one\n")
    monkeypatch.setattr(follow, "_check_reader", lambda: signal.raise_signal(number))  # after the first poll with a row
    cli.run("groups", "alter", "g", "--config", "group.initial.rebalance.delay.ms=0")
    assert cli.run("consume", "t", "--group", "g", "--follow", code=code).stderr == ""
    [group] = cli.documents("groups", "describe", "g")
    assert (group["state"], group["members"], group["partitions"][0]["lag"]) == ("Empty", [], 0)


def test_a_signal_that_is_ignored_stays_so(cli, monkeypatch):
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    monkeypatch.setattr(consume, "_printer", lambda *_: signal.raise_signal(signal.SIGHUP))
    cli.run("consume", "t")
    signal.signal(signal.SIGHUP, handler)
