"""`pyspark-log recover`."""

import json
from pathlib import Path

import pytest

from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.maintenance import roll_task
from pyspark_log_coordinator.segments.roll_plan import RollJob
from pyspark_log_coordinator.topic.machine import AlterConfig, DeleteTopic, ElectLeaders, Holder, Suspect, Suspicion
from tests.support.command_line import CommandLine
from tests.support.coordinator.replicated_topic import write
from tests.support.lost_folders import lose_folder
from tests.support.plain_log import PlainLog, flip_bit


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """Topic t of one partition with three segments of a row each, of which the checkpoint knows two."""
    cli = CommandLine(tmp_path / "log")
    log = PlainLog(cli.path)
    log.create("t").submit(AlterConfig({"flush.messages": "1"}))
    for value in (b"0", b"1"):
        log.append("t", {0: [value]})
        cli.run("maintain")
    [checkpoint] = cli.path.glob("topics/t/*/recovery-point-offset-checkpoint")
    known = checkpoint.read_bytes()
    log.append("t", {0: [b"2"]})
    cli.run("maintain")
    checkpoint.write_bytes(known)
    return cli


def segments(cli: CommandLine, ending: str = ".log") -> list[Path]:
    return sorted(cli.path.glob(f"topics/t/*/0/*{ending}"))


def test_what_lies_behind_the_recovery_point_is_read(cli):
    [document] = cli.documents("recover", "t")
    assert (document["partition"], document["recovery_point"], document["good_up_to"]) == (0, 2, 3)
    assert [key.rsplit("/", 1)[1] for key in document["checked"]] == [segments(cli)[2].stem]
    assert (document["rebuilt"], document["damage"]) == ([], None)


def test_on_request_all_segments_are_read(cli):
    [document] = cli.documents("recover", "t", "--all")
    assert len(document["checked"]) == 3


def test_people_get_a_table(cli):
    lines = cli.out("recover", "t").splitlines()
    assert lines[0].split("  ")[0] == "partition"
    assert lines[2].split() == ["0", "2", "3", "1", "0"]


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
    assert cli.run("recover", "t").exit_code == 0  # before the recovery point
    result = cli.run("recover", "t", "--all", code=1)
    assert result.stdout.splitlines()[-1].startswith("partition 0, offset 1: segment ")
    assert bad.stem in result.stdout
    document = json.loads(cli.run("recover", "t", "--all", "--json", code=1).stdout)
    assert document["good_up_to"] == 1


def test_it_needs_no_journal(cli):
    lose_folder(cli.path / "cluster")
    [journal] = cli.path.glob("topics/t/*/journal")
    lose_folder(journal)
    (cli.path / "node").unlink()
    assert cli.documents("recover", "t", "--all")[0]["good_up_to"] == 3


def test_an_address_that_says_of_no_node_is_an_error(cli, tmp_path):
    nowhere = tmp_path / "nowhere"
    assert f"no node at {nowhere}" in cli.error("recover", "--path", nowhere)
    assert f"no node at {nowhere}" in cli.error("recover", "--node", nowhere)
    assert "select a node with --node" in cli.error("recover", "--path", f"{cli.path},{nowhere}")


def test_without_checkpoints_there_is_nothing_to_check(tmp_path):
    cli = CommandLine(tmp_path / "other")
    cli.run("topics", "create", "t")
    told = f"nothing to check: no checkpoints and no descriptions of topics at {cli.path}\n"
    assert cli.out("recover") == told
    assert cli.documents("recover") == []


def test_an_unknown_topic_is_an_error(cli):
    assert "topic 'u' has no checkpoints" in cli.error("recover", "u")


def test_a_damaged_checkpoint_is_an_error_that_names_it(cli):
    [checkpoint] = cli.path.glob("topics/t/*/recovery-point-offset-checkpoint")
    checkpoint.write_text("0\n1\nt 0\n")
    assert checkpoint.name in cli.error("recover", "t")


def test_of_a_node_that_returns_the_folder_is_held_against_the_journals(cli, tmp_path):
    """Rows that only node 0 had were cut by an unclean election while it was away."""
    log = PlainLog(cli.path).log
    for number in (1, 2):
        node_admin.join(log, str(tmp_path / f"node{number}"))
    topic = log.create_topic("u", 1, replicas=[("0", "1", "2")])
    write(log, topic, 0, {0: [b"kept"]}, ("0", "1", "2"), "all")
    write(log, topic, 1, {0: [b"cut"]}, ("0",), "all")
    job = RollJob(0, 0, 1, (), tuple(topic.refresh().partitions[0].chunks[1:]), ((0, 0),))
    stray = roll_task.run_roll(log.store_at, roll_task.roll_task_of(topic, job), log.environment).segment.name
    state = topic.refresh()
    for node in ("0", "1"):
        topic.submit(Suspect(node, state.incarnations[node]))
    gone = tuple(Suspicion(*each) for each in topic.refresh().suspects.items())
    topic.submit(ElectLeaders((Holder("2", state.incarnations["2"]),), gone, unclean=True))
    printed = cli.out("recover", "--node", "0", "--dry-run")
    assert (
        f"topic u, partition 0: segment topics/u/{topic.topic_id}/0/{stray}: rows from 1 on were truncated" in printed
    )
    assert (cli.path / f"{topic.segment(0, stray)}.log").exists()
    documents = cli.documents("recover", "--node", "0")
    assert [(each["partition"], each["strays"][0]["cut"]) for each in documents if "strays" in each] == [(0, 1)]
    assert not (cli.path / f"{topic.segment(0, stray)}.log").exists()


def test_a_damaged_journal_of_another_topic_does_not_matter(cli):
    log = PlainLog(cli.path).log
    damaged = log.create_topic("damaged", 1).journal.folder
    for key in list(log.store.list(damaged)):
        log.store.put(key, b"damaged")
    assert "intact up to" in cli.out("recover", "t", "--node", "0")
    assert "topics/damaged/" in cli.error("recover", "--node", "0")


def test_a_topic_whose_deletion_was_interrupted_stops_no_recovery(cli):
    log = PlainLog(cli.path).log
    log.create_topic("u", 1)
    log.topic("t").submit(DeleteTopic())
    assert "intact up to" in cli.out("recover", "--node", "0")
