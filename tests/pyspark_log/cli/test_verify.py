"""`pyspark-log verify`."""

import json
from pathlib import Path

import pytest

from pyspark_log_coordinator.topic.machine import AlterConfig, DeleteTopic
from tests.support.command_line import CommandLine
from tests.support.plain_log import PlainLog, flip_bit


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """Topics t, of a segment and an unrolled chunk, and u, of one chunk."""
    cli = CommandLine(tmp_path / "log")
    log = PlainLog(cli.path)
    log.create("t")
    for batch in range(5):
        log.append("t", {0: [b"%d" % batch]})
    log.log.topic("t").submit(AlterConfig({"flush.messages": "1"}))
    cli.run("maintain")
    log.append("t", {0: [b"unrolled"]})
    log.create("u")
    log.append("u", {0: [b"x"]})
    return cli


def only(cli: CommandLine, pattern: str) -> Path:
    [found] = cli.path.glob(pattern)
    return found


def damaged(cli: CommandLine, *words: str) -> list[dict]:
    """Return the documents of a command that finds damage."""
    return [json.loads(line) for line in cli.run("verify", *words, "--json", code=1).stdout.splitlines()]


def test_sound_topics_are_told_sound_and_nothing_is_changed(cli):
    before = {path: path.read_bytes() for path in cli.path.rglob("*") if path.is_file()}
    cluster, t, u = cli.documents("verify")
    assert (cluster["topic"], cluster["sound"], cluster["findings"], cluster["entries"]) == (None, True, [], 3)
    assert (t["topic"], t["sound"], t["findings"], t["rows"], t["segments"]) == ("t", True, [], 6, 1)
    assert (u["topic"], u["sound"], u["rows"], u["repaired"]) == ("u", True, 1, [])
    said = [line.split()[:-5] for line in cli.out("verify").splitlines()[2:]]
    assert said == [["the", "cluster", "yes"], ["t", "yes"], ["u", "yes"]]
    assert [each["topic"] for each in cli.documents("verify", "u")] == ["u"]
    assert "'v'" in cli.error("verify", "v")
    assert {path: path.read_bytes() for path in cli.path.rglob("*") if path.is_file()} == before


def test_damage_is_named_once_beside_what_is_sound_and_the_exit_code_is_one(cli):
    log, chunk = only(cli, "topics/t/*/0/*.log"), only(cli, "topics/u/*/append/*")
    flip_bit(log, 8 * 100)
    done = cli.run("verify", code=1)
    cluster, t, u, _, title, _, _, finding = done.stdout.splitlines()[2:]
    assert [line.split()[-6] for line in (cluster, t, u)] == ["yes", "no", "yes"]
    assert (title, finding.split()[:2], log.name in finding) == ("findings", ["t", "partition"], True)
    assert done.stderr == "pyspark-log: 1 problem, of which verify --repair can repair 0\n"
    assert damaged(cli, "t", "--repair")[0]["repaired"] == [], "nothing is left of which it could be made"
    flip_bit(chunk, 8 * 100)
    [found] = damaged(cli, "u")
    assert (found["sound"], [each["repairable"] for each in found["findings"]]) == (False, [False])
    assert f"({chunk} at byte 0) is damaged" in found["findings"][0]["detail"]


def test_a_topic_whose_deletion_was_interrupted_is_no_fault_unless_it_is_named(cli):
    PlainLog(cli.path).log.topic("t").submit(DeleteTopic())
    assert [(each["topic"], each["sound"]) for each in cli.documents("verify")] == [(None, True), ("u", True)]
    assert "was deleted" in cli.error("verify", "t")


def test_what_can_be_made_again_is_told_and_made_again(cli):
    file = only(cli, "topics/t/*/0/*.index")
    whole = file.read_bytes()
    file.unlink()
    [finding] = [each for document in damaged(cli) for each in document["findings"]]
    assert (finding["repairable"], file.name in str(finding)) == (True, True)
    repaired = [each for document in cli.documents("verify", "--repair") for each in document["repaired"]]
    assert any(file.name in each for each in repaired)
    assert file.read_bytes() == whole


def test_a_damaged_journal_is_named_and_the_other_topics_are_read_all_the_same(cli):
    newest = PlainLog(cli.path).newest_entry("t")
    flip_bit(newest, 8 * 20)
    assert [each["topic"] for each in damaged(cli) if not each["sound"]] == ["t"]
    assert newest.name in cli.run("verify", "t", code=1).stdout
