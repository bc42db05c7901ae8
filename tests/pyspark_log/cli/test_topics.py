"""`pyspark-log topics`: create, list, describe and delete."""

import json
from pathlib import Path

import pytest

from pyspark_log.cli import arguments
from pyspark_log_coordinator.topic.machine import DeleteTopic
from tests.support.command_line import CommandLine
from tests.support.coordinator.spares import spare_file
from tests.support.plain_log import PlainLog


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "log")


def test_the_first_topic_begins_the_cluster(cli):
    assert cli.out("topics", "create", "flights", "--partitions", 3) == "created topic flights with 3 partitions\n"
    assert (cli.path / "node").exists()
    (listed,) = cli.documents("topics", "list")
    (described,) = cli.documents("topics", "describe", "flights")
    assert (listed["topic"], listed["partitions"], listed["id"]) == ("flights", 3, described["id"])


def test_topics_are_listed_in_the_order_of_their_names(cli):
    for name in ("b", "a.b", "c"):
        cli.run("topics", "create", name)
    assert [each["topic"] for each in cli.documents("topics", "list")] == ["a.b", "b", "c"]
    assert [line.split()[0] for line in cli.out("topics", "list").splitlines()[2:]] == ["a.b", "b", "c"]


def test_a_cluster_without_topics_says_how_to_make_one(cli):
    cli.run("topics", "create", "t")
    cli.run("topics", "delete", "t", "--yes")
    assert "pyspark-log topics create" in cli.out("topics", "list")
    assert cli.documents("topics", "list") == []


def test_the_configuration_has_kafkas_names(cli):
    cli.run("topics", "create", "t", "--config", "compression.type=zstd", "--config", "max.message.bytes=99")
    (described,) = cli.documents("topics", "describe", "t")
    week = 7 * 24 * 60 * 60 * 1000
    assert described["config"] == {
        "compression.type": "zstd",
        "min.insync.replicas": 1,
        "max.message.bytes": 99,
        "segment.bytes": 1024**3,
        "segment.format": "log",
        "parquet.max.lag.ms": 300_000,
        "segment.ms": week,
        "flush.messages": 2**63 - 1,
        "flush.ms": 2**63 - 1,
        "retention.ms": week,
        "retention.bytes": -1,
        "cleanup.policy": "delete",
        "min.cleanable.dirty.ratio": 0.5,
        "min.compaction.lag.ms": 0,
        "max.compaction.lag.ms": 2**63 - 1,
        "delete.retention.ms": 86_400_000,
        "file.delete.delay.ms": 60_000,
        "orphan.retention.ms": 86_400_000,
        "unclean.leader.election.enable": False,
        "replication.mode": "isr",
        "replica.lag.time.max.ms": 30_000,
        "key.column": "",
        "delete.when": "",
        "compaction.version.column": "",
    }


def test_describe_shows_the_settings_that_were_changed_and_all_where_they_are_asked_for(cli):
    cli.run("topics", "create", "t")
    assert "\nconfig         all default\n" in cli.out("topics", "describe", "t")
    cli.run("topics", "alter", "t", "--config", "unclean.leader.election.enable=true", "--config", "segment.ms=5")
    shown = cli.out("topics", "describe", "t")
    assert "\nconfig         segment.ms=5, unclean.leader.election.enable=true\n" in shown
    rows = [line.split() for line in cli.out("topics", "describe", "t", "--all-configs").splitlines()]
    assert ["config", "value", "default"] in rows
    assert ["segment.ms", "5", "604800000"] in rows
    assert ["unclean.leader.election.enable", "true", "false"] in rows
    assert ["replication.mode", "isr", "isr"] in rows


def test_describe_shows_all_topics_where_none_is_named(cli):
    for name in ("b", "a", "c"):
        cli.run("topics", "create", name)
    assert [each["topic"] for each in cli.documents("topics", "describe")] == ["a", "b", "c"]
    assert [each["topic"] for each in cli.documents("topics", "describe", "c", "a")] == ["c", "a"]
    shown = [line.split()[1] for line in cli.out("topics", "describe").splitlines() if line.startswith("topic ")]
    assert shown == ["a", "b", "c"]
    for name in "abc":
        cli.run("topics", "delete", name, "--yes")
    assert "pyspark-log topics create" in cli.out("topics", "describe")
    assert cli.documents("topics", "describe") == []


def test_describe_finds_the_partitions_in_trouble(cli, tmp_path):
    cli.run("topics", "create", "first")
    for number in (1, 2):
        cli.run("nodes", "add", tmp_path / f"disk{number}")
    cli.run("topics", "create", "t", "--replica-assignment", "0:1,0:2", "--config", "min.insync.replicas=2")

    def found(which: str) -> list[tuple[str, int]]:
        documents = cli.documents("topics", "describe", f"--{which}-partitions")
        return [(each["topic"], one["partition"]) for each in documents for one in each["partitions"]]

    everything = ("under-replicated", "unavailable", "under-min-isr", "at-min-isr")
    whole = [("first", 0), ("t", 0), ("t", 1)]
    assert [found(each) for each in everything] == [[], [], [], whole]
    assert cli.out("topics", "describe", "--unavailable-partitions") == "no partition is without a leader\n"
    cli.run("nodes", "fence", "1")
    assert [found(each) for each in everything] == [[("t", 0)], [], [("t", 0)], [("first", 0), ("t", 1)]]
    header, _, line = cli.out("topics", "describe", "t", "--under-replicated-partitions").splitlines()
    assert header.split()[:2] == ["topic", "partition"]
    assert line.split()[:3] == ["t", "0", "0"]
    cli.run("nodes", "fence", "0")
    assert found("unavailable") == [("first", 0), ("t", 0)]
    two = ("--unavailable-partitions", "--at-min-isr-partitions")
    assert "give only one of these" in cli.misuse("topics", "describe", *two)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("compresion.type=zstd", "unknown topic configuration 'compresion.type'; did you mean 'compression.type'?"),
        ("compression.type=gzip", "compression.type='gzip' is unknown; choose none, lz4 or zstd"),
        ("max.message.bytes=lots", "topic configuration max.message.bytes='lots' must be a whole number of 1 or more"),
        (
            "log.segment.bytes=1",
            (
                "unknown topic configuration 'log.segment.bytes': it is a setting of Kafka's brokers; use the topic's "
                "segment.bytes"
            ),
        ),
        ("cleanup.policy=keep", "cleanup.policy='keep' is unknown; choose delete, compact or compact,delete"),
        (
            "min.insync.replicas=2",
            "topic 't' cannot require 2 in-sync replicas: the cluster has 1 node; choose fewer",
        ),
    ],
)
def test_a_wrong_setting_is_an_error_that_says_what_is_right(cli, config, message):
    assert cli.error("topics", "create", "t", "--config", config) == message


def test_a_setting_without_value_was_typed_wrong(cli):
    last = "Error: Invalid value for --config: 'zstd' is not KEY=VALUE, such as compression.type=zstd"
    assert cli.misuse("topics", "create", "t", "--config", "zstd") == last
    assert not cli.path.exists()


def test_a_topic_is_created_once(cli):
    cli.run("topics", "create", "t", "--partitions", 2)
    assert cli.error("topics", "create", "t").startswith("topic 't' already exists; use it")
    kept = cli.out("topics", "create", "t", "--partitions", 5, "--if-not-exists")
    assert kept == "topic t already exists with 2 partitions; nothing was changed\n"
    (again,) = cli.documents("topics", "create", "t", "--if-not-exists")
    (new,) = cli.documents("topics", "create", "u", "--if-not-exists")
    assert (again["created"], again["partitions"], new["created"]) == (False, 2, True)


@pytest.mark.parametrize("name", ["..", ".", "../../etc", "a/b", "a b", "ä", "x" * 250])
def test_a_name_that_is_no_topic_name_reaches_no_path(cli, tmp_path, name):
    commands = (
        ["topics", "create", name],
        ["topics", "describe", name],
        ["topics", "delete", name, "--yes"],
        ["produce", name, "--create"],
        ["consume", name],
        ["offsets", name],
    )
    assert "invalid topic name" in cli.error(*commands[0])
    assert not cli.path.exists()
    cli.run("topics", "create", "t")
    before = sorted(tmp_path.rglob("*"))
    for command in commands:
        assert repr(name) in cli.error(*command)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "command",
    [
        ["topics", "list"],
        ["topics", "describe", "t"],
        ["topics", "delete", "t"],
        ["produce", "t"],
        ["produce", "t", "--create"],
        ["consume", "t"],
        ["consume", "t", "--group", "g"],
        ["groups", "list"],
        ["nodes", "list"],
        ["node", "run", "0", "--once"],
        ["verify"],
        ["offsets", "t"],
    ],
)
def test_where_there_is_no_cluster_none_is_made(cli, command):
    there_is_none = (
        f"there is no log at {cli.path}: check the address, and whether its disk is mounted. If that disk is lost, "
        "rebuild the log from its other nodes (pyspark-log cluster rebuild), or restore a backup. Only where there "
        f"never was a log, begin one: pyspark-log topics create NAME --path {cli.path}"
    )
    assert cli.error(*command) == there_is_none
    assert not cli.path.exists()


@pytest.mark.parametrize(
    "command",
    [
        ["topics", "describe", "nix"],
        ["topics", "delete", "nix"],
        ["produce", "nix"],
        ["consume", "nix"],
        ["offsets", "nix"],
    ],
)
def test_a_topic_that_is_not_there_is_an_error_that_says_what_is(cli, command):
    cli.run("topics", "create", "a")
    assert cli.error(*command) == "topic 'nix' does not exist; create it first (existing: a)"


def test_a_name_that_is_misspelt_is_told(cli):
    cli.run("topics", "create", "flights")
    message = "topic 'flihgts' does not exist; did you mean 'flights'? (existing: flights)"
    assert cli.error("topics", "describe", "flihgts") == message


def test_the_address_may_be_an_option_and_is_needed(cli, tmp_path):
    other = tmp_path / "other"
    cli.run("topics", "create", "t", "--path", other)
    assert (other / "node").exists()
    assert not cli.path.exists()
    missing = CommandLine(Path()).run("topics", "list", "--path", "", code=1)
    assert "option 'path' is empty" in missing.stderr


def test_an_address_of_another_kind_of_store_is_refused(cli):
    assert "hdfs:// stores cannot hold a log" in cli.error("topics", "list", "--path", "hdfs://host/log")


def test_a_folder_that_cannot_be_used_is_told_in_one_sentence(cli):
    cli.path.write_text("a file where the cluster should be")
    assert str(cli.path) in cli.error("topics", "create", "t")


def test_a_damaged_journal_is_told_in_one_sentence(cli):
    cli.run("topics", "create", "t")
    (entry, *_) = sorted(cli.path.glob("topics/t/*/journal/entries/*"))
    for each in (entry, spare_file(entry)):
        each.write_bytes(each.read_bytes()[:-1])
    assert "is damaged" in CommandLine(cli.path.parent / "." / "log").error(
        "offsets", "t", "--path", f"{link(cli.path)}"
    )


def link(path: Path) -> Path:
    """Another address of the same cluster, which this process has not opened yet."""
    other = path.with_name("link")
    other.symlink_to(path)
    return other


def test_describe_shows_each_partition(cli):
    cli.run("topics", "create", "t", "--partitions", 2)
    cli.run(
        "produce", "t", "--format", "json", stdin='{"value": "a", "partition": 1}\n{"value": "b", "partition": 1}\n'
    )
    (described,) = cli.documents("topics", "describe", "t")
    assert described["journal_entry"] == 2
    empty, full = described["partitions"]
    assert empty == {
        "partition": 0,
        "leader": "0",
        "leader_epoch": 0,
        "replicas": ["0"],
        "isr": ["0"],
        "adding": [],
        "removing": [],
        "log_start": 0,
        "log_end": 0,
        "high_watermark": 0,
        "rows": 0,
        "table_end": 0,
        "log_end_offsets": {"0": 0},
    }
    assert full == empty | {
        "partition": 1,
        "log_end": 2,
        "high_watermark": 2,
        "rows": 2,
        "log_end_offsets": {"0": 2},
    }
    lines = cli.out("topics", "describe", "t").splitlines()
    assert [line.split()[-1] for line in lines[:3]] == ["t", described["id"], "2"]
    header = "partition leader epoch replicas ISR log start LEO HW rows"
    assert [" ".join(line.split()) for line in lines if line.strip(" ─")][4:] == [
        header,
        "0 0 0 0 0 0 0 0 0",
        "1 0 0 0 0 0 2 2 2",
        "total 2",
    ]


def test_delete_asks_first_and_says_how_many_rows_go(cli):
    cli.run("topics", "create", "t", "--partitions", 2)
    cli.run("produce", "t", stdin="a\nb\nc\n")
    for answer in ("n\n", "\n", ""):
        refused = cli.run("topics", "delete", "t", stdin=answer, code=1)
        assert "delete topic t with 3 rows in 2 partitions? This cannot be undone. [y/N]" in refused.stderr
        assert refused.stderr.endswith("pyspark-log: nothing was deleted\n")
    assert cli.out("consume", "t") == "a\nb\nc\n"
    asked = cli.run("topics", "delete", "t", stdin="y\n")
    assert asked.stdout == "deleted topic t with 3 rows in 2 partitions\n"
    assert cli.documents("topics", "list") == []


def test_delete_leaves_a_topic_that_was_created_again_while_it_asked(cli, monkeypatch):
    cli.run("topics", "create", "t")

    def confirm(*_, **__):
        monkeypatch.undo()
        cli.run("topics", "delete", "t", "--yes")
        cli.run("produce", "t", "--create", stdin="new\n")

    monkeypatch.setattr(arguments, "confirm", confirm)
    assert "was deleted and created again meanwhile; nothing was deleted" in cli.error("topics", "delete", "t")
    assert cli.out("consume", "t") == "new\n"


def test_a_topic_that_is_not_there_may_be_deleted_where_that_is_said(cli):
    cli.run("topics", "create", "t")
    assert cli.out("topics", "delete", "u", "--if-exists") == "topic u does not exist; nothing was deleted\n"
    (document,) = cli.documents("topics", "delete", "u", "--if-exists")
    assert document == {"topic": "u", "deleted": False, "partitions": 0, "rows": 0}
    assert "topic 'u' does not exist" in cli.error("topics", "delete", "u", "--yes")


def test_delete_with_json_asks_on_stderr(cli):
    cli.run("topics", "create", "t")
    deleted = cli.run("topics", "delete", "t", "--json", stdin="y\n")
    assert json.loads(deleted.stdout) == {"topic": "t", "deleted": True, "partitions": 1, "rows": 0}


def test_a_topic_that_is_created_again_is_empty_and_another(cli):
    cli.run("topics", "create", "t")
    cli.run("produce", "t", stdin="old\n")
    (before,) = cli.documents("topics", "describe", "t")
    assert cli.out("topics", "delete", "t", "--yes") == "deleted topic t with 1 row in 1 partition\n"
    cli.run("topics", "create", "t")
    (after,) = cli.documents("topics", "describe", "t")
    assert after["id"] != before["id"]
    assert cli.out("consume", "t") == ""
    cli.run("produce", "t", stdin="new\n")
    assert cli.out("consume", "t") == "new\n"


def test_a_deletion_that_was_cut_short_can_be_finished(cli):
    from pyspark_log.opening import open_log
    from pyspark_log_coordinator.topic.machine import DeleteTopic

    cli.run("topics", "create", "t")
    open_log(str(cli.path)).topic("t").submit(DeleteTopic())
    assert "was deleted" in cli.error("offsets", "t")
    cli.run("topics", "delete", "t", "--yes")
    assert cli.documents("topics", "list") == []


def test_leaders_are_elected_beside_a_topic_whose_deletion_was_interrupted(cli):
    log = PlainLog(cli.path)
    for name in ("t", "u"):
        log.create(name)
    log.log.topic("t").submit(DeleteTopic())  # and its name stays
    for more in ([], ["--unclean"]):
        assert cli.documents("topics", "elect-leaders", *more) == []
    assert "was deleted" in cli.error("topics", "elect-leaders", "t")
