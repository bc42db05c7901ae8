"""`pyspark-log consume --group`: prints what the group has not read, and commits what was printed."""

import pytest

from pyspark_log import Consumer
from pyspark_log.cli.rows import consume_group
from pyspark_log.opening import open_log
from pyspark_log_coordinator.group.joining import JoinGroup
from pyspark_log_coordinator.group.state import MemberDetails, Protocol
from pyspark_log_storage.errors import UnknownMember
from tests.support.command_line import CommandLine
from tests.support.pyspark_log.cli_rows import produced


@pytest.fixture
def cli(tmp_path):
    """Topic t with three rows in each of two partitions, and group g, whose first rebalance waits for nobody."""
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t", "--partitions", "2")
    write(cli, range(3))
    cli.run("groups", "alter", "g", "--config", "group.initial.rebalance.delay.ms=0")
    return cli


def write(cli, numbers):
    produced(cli, *({"value": f"{p}.{n}", "partition": p} for p in (0, 1) for n in numbers))


def rows(cli, *arguments):
    return sorted(cli.out("consume", "t", "--group", "g", *arguments).split())


def committed(cli):
    [document] = cli.documents("groups", "describe", "g")
    assert document["members"] == [], "it has left"
    return {each["partition"]: each["committed"] for each in document["partitions"]}


def everything(numbers):
    return sorted(f"{p}.{n}" for p in (0, 1) for n in numbers)


def test_each_row_is_printed_once_by_the_commands_of_a_group(cli):
    assert rows(cli) == everything(range(3))
    assert committed(cli) == {0: 3, 1: 3}
    assert rows(cli) == []
    write(cli, range(3, 5))
    assert rows(cli) == everything(range(3, 5))


def test_the_partition_that_no_row_was_printed_of_is_read_whole_later(cli):
    [first] = rows(cli, "--max-messages", 1)
    assert sorted([first, *rows(cli, "--from", "latest")]) == everything(range(3))


def test_only_the_rows_that_were_printed_are_committed(cli):
    first = rows(cli, "--max-messages", 4)
    assert sum(committed(cli).values()) == len(first) == 4
    assert sorted(first + rows(cli)) == everything(range(3))


def test_a_group_without_offsets_begins_where_it_is_told(cli):
    assert rows(cli, "--from", "latest") == []
    write(cli, [3])
    assert rows(cli, "--from", "earliest") == everything([3])


def test_a_partition_may_be_chosen_without_joining_the_group(cli):
    assert rows(cli, "--partition", 1) == ["1.0", "1.1", "1.2"]
    assert committed(cli) == {1: 3}
    assert rows(cli, "--partition", 1) == []


def test_a_chosen_partition_of_a_group_with_members_cannot_be_committed(cli):
    handle = open_log(str(cli.path)).group("g")
    handle.submit(JoinGroup(MemberDetails("m", (Protocol("range"),)), "consumer"))
    failed = cli.run("consume", "t", "--group", "g", "--partition", 0, code=1)
    assert "a consumer that is not one cannot commit offsets" in failed.stderr


def test_to_follow_ends_with_the_last_row_that_is_wanted_and_commits_it(cli):
    assert len(rows(cli, "--follow", "--max-messages", 6)) == 6
    assert committed(cli) == {0: 3, 1: 3}


def test_an_interrupt_leaves_nothing_printed_that_is_not_committed(cli, monkeypatch):
    look = Consumer.poll_batches

    def interrupted(consumer, timeout_ms):
        found = look(consumer, timeout_ms)
        if not found and sum(map(consumer.position, consumer.assignment())) == 6:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(Consumer, "poll_batches", interrupted)
    monkeypatch.setattr(consume_group, "COMMIT_SECONDS", 60)
    assert rows(cli, "--follow") == everything(range(3))
    assert committed(cli) == {0: 3, 1: 3}


def test_rows_that_could_not_be_printed_are_not_committed(cli, monkeypatch):
    monkeypatch.setattr(consume_group._Printed, "is_due", False)
    calls = []

    def fails(_):
        calls.append(1)
        raise BrokenPipeError

    monkeypatch.setattr("pyspark_log.cli.rows.consume._wait", fails)
    cli.run("consume", "t", "--group", "g", "--follow")
    assert calls
    assert committed(cli) == {}


def test_a_member_that_was_removed_says_which_rows_come_again_and_joins_anew(cli, monkeypatch):
    commit, failures = Consumer.commit, []

    def refused(consumer, offsets=None):
        if not failures:
            failures.append(1)
            raise UnknownMember("g", "m", "member 'm' was removed")
        commit(consumer, offsets)

    monkeypatch.setattr(Consumer, "commit", refused)
    done = cli.run("consume", "t", "--group", "g")
    assert done.stderr == (
        "pyspark-log: member 'm' was removed; rows that were printed since the last commit will be printed again\n"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from", "3"], "with --group it is earliest or latest, not '3'"),
        (["--from", "@1000"], "use: pyspark-log groups reset-offsets"),
        (["--to", "latest"], "cannot be combined with --group"),
        (["--output", "rows.jsonl"], "cannot be combined with --group"),
    ],
)
def test_what_a_group_cannot_do_is_refused(cli, arguments, words):
    assert words in cli.misuse("consume", "t", "--group", "g", *arguments)


def test_a_topic_that_does_not_exist_is_an_error_and_the_group_is_not_joined(cli):
    assert "topic 'x' does not exist" in cli.error("consume", "x", "--group", "h")
    assert [each["group"] for each in cli.documents("groups", "list")] == ["g"]
