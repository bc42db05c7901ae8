"""`pyspark-log recover`."""

import json
from pathlib import Path

import pytest

from pyspark_log_coordinator.topic.machine import AlterConfig
from tests.support.command_line import CommandLine
from tests.support.plain_log import PlainLog, flip_bit


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """Topic t of one partition with three segments of a row each, of which the description knows two."""
    cli = CommandLine(tmp_path / "log")
    log = PlainLog(cli.path)
    log.create("t").submit(AlterConfig({"flush.messages": "1"}))
    for value in (b"0", b"1"):
        log.append("t", {0: [value]})
        cli.run("maintain")
    [description] = cli.path.glob("topics/t/*/description")
    known = description.read_bytes()
    log.append("t", {0: [b"2"]})
    cli.run("maintain")
    description.write_bytes(known)
    return cli


def segments(cli: CommandLine, ending: str = ".log") -> list[Path]:
    return sorted(cli.path.glob(f"topics/t/*/0/*{ending}"))


def test_what_lies_behind_the_recovery_point_is_read_and_on_request_all(cli):
    [document] = cli.documents("recover", "t")
    assert (document["partition"], document["recovery_point"], document["good_up_to"]) == (0, 2, 3)
    assert [key.rsplit("/", 1)[1] for key in document["checked"]] == [segments(cli)[2].stem]
    assert (document["rebuilt"], document["damage"]) == ([], None)
    assert len(cli.documents("recover", "t", "--all")[0]["checked"]) == 3
    assert cli.out("recover", "t").splitlines()[2].split()[2:] == ["0", "2", "3", "1", "0"]


def test_a_lost_index_is_made_again(cli):
    index = segments(cli, ".index")[2]
    whole = index.read_bytes()
    index.unlink()
    [dry] = cli.documents("recover", "t", "--dry-run")
    assert (len(dry["rebuilt"]), index.exists()) == (1, False)
    assert len(cli.documents("recover", "t")[0]["rebuilt"]) == 1
    assert index.read_bytes() == whole


def test_damage_is_told_and_the_exit_code_is_one(cli):
    bad = segments(cli)[1]
    flip_bit(bad, 8 * 100)
    cli.run("recover", "t")  # it is before the recovery point
    document = json.loads(cli.run("recover", "t", "--all", "--json", code=1).stdout)
    assert document["good_up_to"] == 1
    assert bad.stem in cli.run("recover", "t", "--all", code=1).stderr


def test_what_cannot_be_recovered_is_an_error_that_names_it(cli, tmp_path):
    nowhere = tmp_path / "nowhere"
    for option in ("--path", "--node"):
        assert f"no node at {nowhere}" in cli.error("recover", option, nowhere)
    assert "select a node with --node" in cli.error("recover", "--path", f"{cli.path},{nowhere}")
    assert "topic 'u' has no description" in cli.error("recover", "u")
    [description] = cli.path.glob("topics/t/*/description")
    description.write_text("0\n1\nt 0\n")
    assert description.name in cli.error("recover", "t")
