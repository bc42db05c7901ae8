"""`pyspark-log produce` waits for nodes that are away, as long as it is told to."""

from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, on_three_nodes


def take_away(*disks: Path) -> None:
    for disk in disks:
        disk.rename(disk.with_suffix(".away"))


def bring_back(*disks: Path) -> None:
    for disk in disks:
        disk.with_suffix(".away").rename(disk)


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


@pytest.mark.deep
@pytest.mark.parametrize(
    ("cluster", "acks", "gone"),
    [
        ("followers", "all", ["disk1", "disk2"]),
        ("journals", "1", ["disk1", "disk2"]),
        ("journals", "all", ["log", "disk1", "disk2"]),
    ],
)
def test_a_write_waits_until_the_nodes_are_back_also_between_two_batches(cluster, acks, gone, request, tmp_path):
    cli = request.getfixturevalue(cluster)
    disks = [tmp_path / name for name in gone]
    with cli.start("produce", "t", "--acks", acks, "--linger-ms", 0) as process:
        process.stdin.write(b"one\n")
        process.stdin.flush()
        while cli.documents("offsets", "t")[0]["rows"] == 0:
            assert process.poll() is None
        take_away(*disks)
        process.stdin.write(b"two\nthree\n")
        process.stdin.close()
        assert b"retrying for up to 120 s" in process.stderr.readline()
        bring_back(*disks)
        assert process.wait(60) == 0, process.stderr.read()
    assert cli.out("consume", "t").split() == ["one", "two", "three"]


@pytest.mark.parametrize("config", ["delivery.timeout.ms=1", "retries=0"])
def test_a_write_gives_up_when_its_options_say_so(followers, tmp_path, config):
    take_away(tmp_path / "disk1", tmp_path / "disk2")
    told = followers.error("produce", "t", "--config", config, stdin="one\n")
    assert f"{tmp_path}/disk1 has no marker: is its disk mounted" in told
    assert told.endswith("; nothing was written")
