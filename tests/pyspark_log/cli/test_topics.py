"""`pyspark-log topics create`, `list`, `describe`, `alter` and `delete`, and `pyspark-log offsets`."""

from pathlib import Path

import pytest

from pyspark_log.cli import arguments
from pyspark_log.opening import open_log
from pyspark_log_coordinator.topic.machine import DeleteTopic
from tests.support.command_line import CommandLine, on_three_nodes


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "log")


def test_the_first_topic_begins_the_cluster_and_a_topic_is_created_once(cli):
    [created] = cli.documents("topics", "create", "flights", "--partitions", 3)
    [listed] = cli.documents("topics", "list")
    [described] = cli.documents("topics", "describe", "flights")
    assert created["created"]
    assert (listed["topic"], listed["partitions"], listed["id"]) == ("flights", 3, described["id"])
    assert "already exists" in cli.error("topics", "create", "flights")
    [again] = cli.documents("topics", "create", "flights", "--partitions", 5, "--if-not-exists")
    assert (again["created"], again["partitions"]) == (False, 3)
    assert cli.documents("topics", "create", "u", "--if-not-exists")[0]["created"]


def test_topics_are_shown_in_the_order_of_their_names_and_without_any_it_is_said_how_one_begins(cli):
    for name in ("b", "a.b", "c"):
        cli.run("topics", "create", name)
    for command in ("list", "describe"):
        assert [each["topic"] for each in cli.documents("topics", command)] == ["a.b", "b", "c"]
    assert [each["topic"] for each in cli.documents("topics", "describe", "c", "b")] == ["c", "b"]
    for name in ("a.b", "b", "c"):
        cli.run("topics", "delete", name, "--yes")
    for command in ("list", "describe"):
        assert "pyspark-log topics create" in cli.out("topics", command)
        assert cli.documents("topics", command) == []


def test_settings_change_and_get_their_defaults_back_and_the_others_stay(cli):
    cli.run("topics", "create", "t", "--config", "compression.type=zstd", "--config", "retention.ms=5")
    words = ("topics", "alter", "t", "--config", "segment.bytes=5", "--config", "retention.ms=5")
    assert cli.documents(*words) == [{"topic": "t", "changed": {"segment.bytes": 5}}]
    assert cli.documents(*words) == [{"topic": "t", "changed": {}}]
    cli.run("topics", "alter", "t", "--delete-config", "retention.ms")
    [described] = cli.documents("topics", "describe", "t")
    expected = {"retention.ms": 604_800_000, "segment.bytes": 5, "compression.type": "zstd"}
    assert described["config"].items() >= expected.items()
    assert "segment.bytes=5" in cli.out("topics", "describe", "t")
    assert "replication.mode=isr" not in cli.out("topics", "describe", "t")
    assert "replication.mode=isr" in cli.out("topics", "describe", "t", "--all-configs")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("retention.msec=5", "did you mean 'retention.ms'?"),
        ("retention.ms=soon", "whole number"),
        ("compression.type=gzip", "choose none, lz4 or zstd"),
        ("cleanup.policy=compaction", "choose delete, compact or compact,delete"),
        ("log.segment.bytes=1", "it is a setting of Kafka's brokers; use the topic's segment.bytes"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_and_none_is_changed(cli, setting, said):
    assert said in cli.error("topics", "create", "u", "--config", setting)
    cli.run("topics", "create", "t")
    before = cli.documents("topics", "describe")
    assert said in cli.error("topics", "alter", "t", "--config", "segment.ms=5", "--config", setting)
    assert cli.documents("topics", "describe") == before


def test_a_change_that_is_typed_wrong_is_refused(cli):
    assert "'zstd' is not KEY=VALUE" in cli.misuse("topics", "create", "t", "--config", "zstd")
    assert not cli.path.exists()
    cli.run("topics", "create", "t")
    assert "--config, --delete-config" in cli.misuse("topics", "alter", "t")
    both = ("--config", "retention.ms=1", "--delete-config", "retention.ms")
    assert "retention.ms is also given with --config" in cli.misuse("topics", "alter", "t", *both)
    assert "did you mean 'retention.ms'?" in cli.error("topics", "alter", "t", "--delete-config", "retention.m")


def test_describe_finds_the_partitions_in_trouble(tmp_path):
    cli = on_three_nodes(tmp_path)
    cli.run("topics", "create", "t", "--replica-assignment", "0:1,0:2", "--config", "min.insync.replicas=2")
    cli.run("nodes", "fence", "1")
    expected = {
        "under-replicated": [("t", 0)],
        "unavailable": [],
        "under-min-isr": [("t", 0)],
        "at-min-isr": [("first", 0), ("t", 1)],
    }
    for which, partitions in expected.items():
        documents = cli.documents("topics", "describe", f"--{which}-partitions")
        assert [(each["topic"], one["partition"]) for each in documents for one in each["partitions"]] == partitions
    (tmp_path / "disk2").rename(tmp_path / "gone")  # nobody writes, so it stays in the ISR
    (idle,) = cli.documents("topics", "describe", "t", "--under-min-isr-partitions")
    assert [(each["isr"], each["offline"]) for each in idle["partitions"]] == [(["0"], []), (["0", "2"], ["2"])]
    assert "offline" in cli.out("topics", "describe", "t")
    two = ("--unavailable-partitions", "--at-min-isr-partitions")
    assert "give only one of these" in cli.misuse("topics", "describe", *two)


def test_a_topic_that_is_not_there_is_an_error_that_says_what_is(cli):
    cli.run("topics", "create", "flights")
    offsets = ("delete-records", "flihgts", "--partition", 0, "--before", 1, "--yes")
    alter = ("topics", "alter", "flihgts", "--config", "retention.ms=1")
    words = [("topics", "describe"), ("topics", "delete"), ("produce",), ("consume",), ("offsets",), ("maintain",)]
    for command in (offsets, alter, *((*each, "flihgts") for each in words)):
        said = cli.error(*command)
        assert said == "topic 'flihgts' does not exist; did you mean 'flights'? (existing: flights)", command


def test_an_address_without_a_log_is_an_error_and_none_is_made(cli):
    said = cli.error("produce", "t", "--create", stdin="v\n")
    assert said.startswith(f"there is no log at {cli.path}: check the address, and whether its disk is mounted")
    assert not cli.path.exists()
    cli.run("topics", "create", "t", "--path", cli.path.with_name("other"))
    assert not cli.path.exists()
    nowhere = CommandLine(Path()).run("topics", "list", "--path", "", code=1)
    assert "the address of a store is empty; give a folder or a URL" in nowhere.stderr
    assert "hdfs:// stores cannot hold a log" in cli.error("topics", "list", "--path", "hdfs://host/log")
    cli.path.write_text("a file where the log should be")
    assert str(cli.path) in cli.error("topics", "create", "t")


def test_offsets_are_told_and_found_by_time(cli):
    cli.run("topics", "create", "t", "--partitions", 2)
    rows = "".join(f'{{"value": "v", "partition": 1, "timestamp": {ms}}}\n' for ms in (1000, 2000, 3000))
    cli.run("produce", "t", "--format", "json", stdin=rows)
    assert cli.documents("offsets", "t") == [
        {"topic": "t", "partition": 0, "earliest": 0, "latest": 0, "rows": 0},
        {"topic": "t", "partition": 1, "earliest": 0, "latest": 3, "rows": 3},
    ]
    times = {-2: [0, 0], -1: [0, 3], 0: [None, 0], 1500: [None, 1], 3000: [None, 2], 3001: [None, None]}
    for time, expected in times.items():
        assert [each["offset"] for each in cli.documents("offsets", "t", "--time", time)] == expected
    for impossible in ("-3", "99999999999999999", "noon"):
        assert "--time" in cli.misuse("offsets", "t", "--time", impossible)


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_a_topic_is_deleted_only_after_a_yes_and_is_another_one_when_it_is_created_again(cli, answer):
    cli.run("topics", "create", "t", "--partitions", 2)
    cli.run("produce", "t", stdin="a\nb\nc\n")
    [before] = cli.documents("topics", "describe", "t")
    refused = cli.run("topics", "delete", "t", stdin=answer, code=1)
    assert "delete topic t with 3 rows in 2 partitions? This cannot be undone. [y/N]" in refused.stderr
    assert refused.stderr.endswith("pyspark-log: nothing was deleted\n")
    assert cli.out("consume", "t") == "a\nb\nc\n"
    deleted = cli.run("topics", "delete", "t", "--json", stdin="y\n")
    assert deleted.stdout == '{"topic":"t","deleted":true,"partitions":2,"rows":3}\n'
    cli.run("topics", "create", "t")
    assert cli.documents("topics", "describe", "t")[0]["id"] != before["id"]
    assert cli.out("consume", "t") == ""


def test_a_topic_that_was_created_again_while_delete_asked_stays(cli, monkeypatch):
    cli.run("topics", "create", "t")

    def confirm(*_, **__):
        monkeypatch.undo()
        cli.run("topics", "delete", "t", "--yes")
        cli.run("produce", "t", "--create", stdin="new\n")

    monkeypatch.setattr(arguments, "confirm", confirm)
    assert "was deleted and created again meanwhile; nothing was deleted" in cli.error("topics", "delete", "t")
    assert cli.out("consume", "t") == "new\n"


def test_a_topic_that_is_not_there_may_be_deleted_if_that_is_said(cli):
    cli.run("topics", "create", "t")
    [document] = cli.documents("topics", "delete", "u", "--if-exists")
    assert document == {"topic": "u", "deleted": False, "partitions": 0, "rows": 0}


def test_a_deletion_that_was_interrupted_can_be_finished_and_keeps_no_election(cli):
    for name in ("t", "u"):
        cli.run("topics", "create", name)
    open_log(str(cli.path)).topic("t").submit(DeleteTopic())  # and its name stays
    assert "was deleted" in cli.error("offsets", "t")
    for more in ([], ["--unclean"]):
        assert cli.documents("topics", "elect-leaders", *more) == []
    cli.run("topics", "delete", "t", "--yes")
    assert [each["topic"] for each in cli.documents("topics", "list")] == ["u"]
