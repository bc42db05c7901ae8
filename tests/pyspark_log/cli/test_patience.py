"""`pyspark-log produce` waits for nodes that are away, as long as it is told to."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, on_three_nodes


def away(disk: Path) -> Path:
    return disk.with_suffix(".away")


def take_away(*disks: Path) -> None:
    for disk in disks:
        disk.rename(away(disk))


def bring_back(*disks: Path) -> None:
    for disk in disks:
        away(disk).rename(disk)


@pytest.fixture
def followers(tmp_path: Path) -> CommandLine:
    """A cluster with its journals on node 0, and topic t on nodes 1 and 2."""
    cli = on_three_nodes(tmp_path)
    cli.run("topics", "create", "t", "--replica-assignment", "1:2")
    return cli


@pytest.fixture
def journals(tmp_path: Path) -> CommandLine:
    """A cluster with its journals, and topic t, on three nodes."""
    addresses = ",".join(str(tmp_path / name) for name in ("log", "disk1", "disk2"))
    cli = CommandLine(Path(addresses))
    cli.run("cluster", "create", "--journal-nodes", addresses)
    cli.run("topics", "create", "t")
    return cli


@pytest.mark.parametrize("acks", ["all", "1"])
@pytest.mark.parametrize(
    ("cluster", "gone"),
    [
        ("followers", ["disk1", "disk2"]),
        ("journals", ["disk1", "disk2"]),
        ("journals", ["log", "disk1", "disk2"]),
    ],
)
def test_a_write_waits_until_the_nodes_are_back(cluster, gone, acks, request, tmp_path):
    cli = request.getfixturevalue(cluster)
    disks = [tmp_path / name for name in gone]
    take_away(*disks)
    process = cli.start("produce", "t", "--acks", acks)
    process.stdin.write(b"one\ntwo\nthree\n")
    process.stdin.close()
    assert b"retrying for up to 120 s" in process.stderr.readline()
    bring_back(*disks)
    assert process.wait(60) == 0, process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    assert cli.out("consume", "t").split() == ["one", "two", "three"]


def test_the_nodes_that_go_away_between_two_batches_of_a_pipe_are_waited_for(followers, tmp_path):
    disks = [tmp_path / "disk1", tmp_path / "disk2"]
    process = followers.start("produce", "t", "--linger-ms", 0)
    process.stdin.write(b"one\n")
    process.stdin.flush()
    while followers.documents("offsets", "t")[0]["rows"] == 0:
        assert process.poll() is None
    take_away(*disks)
    process.stdin.write(b"two\n")
    process.stdin.close()
    assert b"retrying for up to 120 s" in process.stderr.readline()
    bring_back(*disks)
    assert process.wait(60) == 0
    process.stdout.close()
    process.stderr.close()
    assert followers.out("consume", "t").split() == ["one", "two"]


@pytest.mark.parametrize("config", ["delivery.timeout.ms=1", "retries=0"])
def test_a_write_gives_up_when_its_options_say_so(followers, tmp_path, config):
    take_away(tmp_path / "disk1", tmp_path / "disk2")
    told = followers.error("produce", "t", "--config", config, stdin="one\n")
    assert f"{tmp_path}/disk1 has no marker: is its disk mounted" in told
    assert told.endswith("; nothing was written")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("retries=-1", "option retries is '-1': it is less than 0"),
        ("delivery.timeout.ms=soon", "option delivery.timeout.ms is 'soon': it is not a whole number"),
        ("acks=1", "produce does not support --config acks: use --acks instead"),
        ("txnAppId=a", "produce does not support --config txnAppId: remove it"),
        ("kafka.linger.ms=5", "produce does not support --config kafka.linger.ms: there is no Kafka producer"),
        (
            "delivery.timeout=5",
            "unknown --config delivery.timeout; did you mean delivery",
        ),
    ],
)
def test_a_config_that_produce_cannot_use_is_an_error_before_anything_is_written(followers, config, said):
    assert said in followers.error("produce", "t", "--config", config, stdin="one\n")
    assert json.loads(followers.out("offsets", "t", "--json"))["rows"] == 0
