"""`pyspark-log verify`."""

import json
from pathlib import Path

import pytest

from pyspark_log_coordinator.journal import journal
from pyspark_log_coordinator.topic.machine import AlterConfig, DeleteTopic
from tests.support.command_line import CommandLine
from tests.support.coordinator.spares import spare_file
from tests.support.lost_folders import lose_folder
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


def test_sound_topics_are_told_sound(cli):
    cluster, *lines = cli.out("verify").splitlines()
    assert cluster == "the cluster: no problems; 3 journal entries, 0 orphans"
    assert [line.split("; ")[0] for line in lines] == ["t: no problems", "u: no problems"]
    assert "6 rows" in lines[0]
    assert "in 1 segment and" in lines[0]


def test_for_machines_it_is_a_document_for_each_topic(cli):
    cluster, t, u = cli.documents("verify")
    assert (cluster["topic"], cluster["sound"], cluster["findings"], cluster["entries"]) == (None, True, [], 3)
    assert (t["topic"], t["sound"], t["findings"], t["rows"], t["segments"]) == ("t", True, [], 6, 1)
    assert (u["topic"], u["sound"], u["rows"], u["repaired"]) == ("u", True, 1, [])


def test_only_the_topics_that_are_named_are_read(cli):
    [line] = cli.out("verify", "u").splitlines()
    assert line.startswith("u: no problems")


def test_damage_is_named_and_the_exit_code_is_one(cli):
    log = only(cli, "topics/t/*/0/*.log")
    flip_bit(log, 8 * 100)
    result = cli.run("verify", code=1)
    cluster, first, verdict, other = result.stdout.splitlines()
    assert cluster.startswith("the cluster: no problems; ")
    assert first.startswith("t: segment ")
    assert log.name in first
    assert verdict.startswith("t: 1 problem; ")
    assert other.startswith("u: no problems; ")


def test_damage_is_told_to_machines_and_the_exit_code_is_one(cli):
    only(cli, "topics/u/*/append/*").unlink()
    result = cli.run("verify", "u", "--json", code=1)
    document = json.loads(result.stdout)
    assert (document["sound"], len(document["findings"])) == (False, 1)
    assert "there is no object" in document["findings"][0]["detail"]
    assert document["findings"][0]["repairable"] is False


def test_damage_to_the_clusters_journal_is_named_and_the_topics_are_read_all_the_same(cli, monkeypatch):
    monkeypatch.setattr(journal, "SNAPSHOT_EVERY", 4)
    log = PlainLog(cli.path)
    for number in range(6):
        log.create(f"topic-{number}")
    flip_bit(cli.path / "cluster" / "entries" / f"{6:020d}", 8 * 20)
    first, verdict, *others = cli.run("verify", code=1).stdout.splitlines()
    assert first.startswith("the cluster: ")
    assert f"{6:020d}" in first
    assert verdict.startswith("the cluster: 1 problem; ")
    assert len(others) == 8
    assert all(": no problems; " in line for line in others)
    documents = [json.loads(line) for line in cli.run("verify", "--json", code=1).stdout.splitlines()]
    assert [each["sound"] for each in documents] == [False] + 8 * [True]


def test_a_topic_that_cannot_be_opened_is_named_and_the_others_are_read_all_the_same(cli):
    newest = PlainLog(cli.path).newest_entry("t")
    flip_bit(newest, 8 * 20)
    _, first, verdict, other = cli.run("verify", code=1).stdout.splitlines()
    assert newest.name in first
    assert verdict.startswith("t: 1 problem; ")
    assert other.startswith("u: no problems; ")


def test_a_topic_whose_deletion_was_cut_short_is_no_fault_unless_it_is_named(cli):
    PlainLog(cli.path).log.topic("t").submit(DeleteTopic())
    assert [line.split(";")[0] for line in cli.out("verify").splitlines()] == [
        "the cluster: no problems",
        "u: no problems",
    ]
    assert "was deleted" in cli.error("verify", "t")


def test_a_lost_index_can_be_made_again(cli):
    index = only(cli, "topics/t/*/0/*.index")
    whole = index.read_bytes()
    index.unlink()
    told = cli.run("verify", "t", code=1).stdout.splitlines()
    assert told[0].endswith("(verify --repair can fix this)")
    repaired = cli.out("verify", "t", "--repair").splitlines()
    assert index.name in repaired[0]
    assert repaired[1].startswith("t: no problems")
    assert index.read_bytes() == whole


def test_what_cannot_be_made_again_is_still_wrong_after_a_repair(cli):
    flip_bit(only(cli, "topics/t/*/0/*.log"), 8 * 100)
    result = cli.run("verify", "t", "--repair", "--json", code=1)
    assert json.loads(result.stdout)["repaired"] == []


def test_it_changes_nothing(cli):
    before = {path: path.read_bytes() for path in cli.path.rglob("*") if path.is_file()}
    cli.run("verify")
    assert {path: path.read_bytes() for path in cli.path.rglob("*") if path.is_file()} == before


def test_an_unknown_topic_is_an_error(cli):
    assert "'v'" in cli.error("verify", "v")


def test_a_lost_entry_is_told_and_made_again_from_its_spare(cli):
    newest = PlainLog(cli.path).newest_entry("t")
    whole = newest.read_bytes()
    newest.unlink()
    first, *_ = cli.run("verify", "t", code=1).stdout.splitlines()
    assert newest.name in first
    assert first.endswith("its spare is intact (verify --repair can fix this)")
    assert cli.out("verify", "t", "--repair").splitlines()[1].startswith("t: no problems")
    assert newest.read_bytes() == whole


def test_a_damaged_entry_of_the_cluster_is_made_again_from_its_spare(cli):
    entry = cli.path / "cluster" / "entries" / f"{2:020d}"
    whole = entry.read_bytes()
    flip_bit(entry, 8 * 20)
    assert cli.out("verify", "--repair").splitlines()[1].startswith("the cluster: no problems")
    assert entry.read_bytes() == whole


@pytest.mark.parametrize("kind", ["damaged", "missing"])
def test_a_spare_that_is_damaged_or_missing_is_told_and_is_no_problem(cli, kind):
    spare = spare_file(PlainLog(cli.path).newest_entry("t"))
    whole = spare.read_bytes()
    flip_bit(spare, 8 * 20) if kind == "damaged" else spare.unlink()
    said, verdict = cli.out("verify", "t").splitlines()
    assert said == "t: 1 missing or damaged spare of the journal; nothing is lost (verify --repair can fix this)"
    assert verdict.startswith("t: no problems; ")
    [document] = cli.documents("verify", "t")
    assert (document["sound"], document["damaged_spares"]) == (True, [str(spare)])
    repaired, verdict = cli.out("verify", "t", "--repair").splitlines()
    assert (repaired, verdict[:14]) == (f"t: repaired {spare}", "t: no problems")
    assert spare.read_bytes() == whole


def test_a_damaged_chunk_is_named_once(cli):
    chunk = only(cli, "topics/u/*/append/*")
    flip_bit(chunk, 8 * 100)
    first, _ = cli.run("verify", "u", code=1).stdout.splitlines()
    assert first.startswith(f"u: partition 0, offset 0 ({chunk} at byte 0) is damaged: ")


def test_a_missing_journal_node_is_named_once(tmp_path):
    disks = [tmp_path / name for name in "abc"]
    cli = CommandLine(disks[0])
    cli.run("cluster", "create", "--journal-nodes", ",".join(map(str, disks)))
    lose_folder(disks[2])
    first, _ = cli.run("verify", code=1).stdout.splitlines()
    assert first.startswith(f"the cluster: journal node '2' at {disks[2]} has no marker: ")


def test_a_copy_in_the_place_of_the_next_entry_on_one_journal_node_is_replaced_after_that_is_written(
    tmp_path,
):
    disks = [tmp_path / name for name in "abc"]
    cli = CommandLine(disks[0])
    cli.run("cluster", "create", "--journal-nodes", ",".join(map(str, disks)))
    cli.run("topics", "create", "t")
    cli.run("produce", "t", stdin="one\n")
    newest = PlainLog(cli.path).newest_entry("t")
    number, _, ballot = newest.name.partition(".")
    astray = newest.with_name(f"{int(number) + 1:020d}.{ballot}")
    astray.write_bytes(newest.read_bytes())
    first, *_ = cli.run("verify", "t", code=1).stdout.splitlines()
    assert f"{astray}: it is a copy of another object, and no other store tells what belongs here" in first
    cli.run("produce", "t", stdin="two\n")
    assert cli.out("consume", "t") == "one\ntwo\n"
    first, *_ = cli.run("verify", "t", code=1).stdout.splitlines()
    assert first.endswith("it is a copy of another object; other stores have it intact (verify --repair can fix this)")
    assert cli.out("verify", "t", "--repair").splitlines()[-1].startswith("t: no problems")
    other = disks[1] / astray.relative_to(disks[0])
    assert astray.read_bytes() == other.read_bytes()
