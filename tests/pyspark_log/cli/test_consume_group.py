"""`pyspark-log consume --group`: prints what the group has not read, and commits what was printed."""

import pytest

from pyspark_log import Consumer
from pyspark_log.cli.rows import follow
from pyspark_log.clients import consumer_group
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


def test_each_row_is_printed_once_and_only_what_was_printed_is_committed(cli):
    first = rows(cli, "--max-messages", 4)
    assert sum(committed(cli).values()) == len(first) == 4
    assert sorted(first + rows(cli, "--from", "latest")) == everything(range(3))
    assert committed(cli) == {0: 3, 1: 3}
    assert rows(cli) == []
    write(cli, [3])
    assert rows(cli, "--follow", "--max-messages", 2) == everything([3])
    assert committed(cli) == {0: 4, 1: 4}


def test_an_empty_group_is_refused_before_anything_is_printed(cli):
    assert "option group.id is ''" in cli.error("consume", "t", "--group", "")


def test_a_group_without_offsets_begins_where_it_is_told(cli):
    assert rows(cli, "--from", "latest") == []
    write(cli, [3])
    assert rows(cli, "--from", "earliest") == everything([3])


def test_a_partition_may_be_chosen_without_joining_a_group_that_has_no_members(cli):
    assert rows(cli, "--partition", 1) == ["1.0", "1.1", "1.2"]
    assert committed(cli) == {1: 3}
    assert rows(cli, "--partition", 1) == []
    handle = open_log(str(cli.path)).group("g")
    handle.submit(JoinGroup(MemberDetails("m", (Protocol("range"),)), "consumer"))
    failed = cli.run("consume", "t", "--group", "g", "--partition", 0, code=1)
    assert "a consumer that is not one cannot commit offsets" in failed.stderr


def test_an_interrupt_leaves_nothing_printed_that_is_not_committed(cli, monkeypatch):
    look = Consumer.poll_batches

    def interrupted(consumer, timeout_ms):
        found = look(consumer, timeout_ms)
        if not found and sum(map(consumer.position, consumer.assignment())) == 6:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(Consumer, "poll_batches", interrupted)
    monkeypatch.setattr(follow, "COMMIT_SECONDS", 60)
    assert rows(cli, "--follow") == everything(range(3))
    assert committed(cli) == {0: 3, 1: 3}


def test_rows_that_could_not_be_printed_are_not_committed(cli, monkeypatch):
    monkeypatch.setattr(follow._Printed, "is_due", False)
    calls = []

    def fails():
        calls.append(1)
        raise BrokenPipeError

    monkeypatch.setattr(follow, "_check_reader", fails)
    cli.run("consume", "t", "--group", "g", "--follow")
    assert calls
    assert committed(cli) == {}


@pytest.mark.slow
def test_nothing_of_a_deleted_topic_is_committed_to_the_next_one_of_its_name(cli, monkeypatch):
    monkeypatch.setattr(consumer_group, "FIND_AGAIN_SECONDS", 0)
    monkeypatch.setattr(follow, "COMMIT_SECONDS", 0)
    looks = []

    def once_more():
        looks.append(1)
        if len(looks) == 5:
            cli.run("topics", "delete", "t", "--yes")
            cli.run("topics", "create", "t", "--partitions", "2")
            produced(cli, {"value": "new", "partition": 0})
        elif len(looks) == 20:
            raise KeyboardInterrupt

    monkeypatch.setattr(follow, "_check_reader", once_more)
    assert rows(cli, "--follow") == sorted([*everything(range(3)), "new"])
    assert committed(cli)[0] == 1
    assert committed(cli).get(1, 0) == 0


def test_a_member_that_was_removed_says_which_rows_come_again(cli, monkeypatch):
    commit, failures = Consumer.commit, []

    def refused(consumer, offsets=None):
        if not failures:
            failures.append(1)
            raise UnknownMember("g", "m", "member 'm' was removed")
        commit(consumer, offsets)

    monkeypatch.setattr(Consumer, "commit", refused)
    done = cli.run("consume", "t", "--group", "g")
    assert "member 'm' was removed; rows that were printed since the last commit will be printed again" in done.stderr
    assert rows(cli) == everything(range(3))


def test_what_a_group_cannot_do_is_refused_and_no_group_is_created(cli):
    for arguments, said in (
        (["--from", "3"], "with --group it is earliest or latest, not '3'"),
        (["--from", "@1000"], "use: pyspark-log groups reset-offsets"),
        (["--to", "latest"], "cannot be combined with --group"),
        (["--output", "rows.jsonl"], "cannot be combined with --group"),
    ):
        assert said in cli.misuse("consume", "t", "--group", "h", *arguments)
    assert "topic 'x' does not exist" in cli.error("consume", "x", "--group", "h")
    assert [each["group"] for each in cli.documents("groups", "list")] == ["g"]
