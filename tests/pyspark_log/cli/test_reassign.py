"""`pyspark-log topics reassign`, `add-partitions`, `elect-leaders` and `nodes drain`."""

import json
import shutil
import signal
import time
from pathlib import Path

import pytest

from pyspark_log.cli.topics import reassign
from pyspark_log.opening import open_log
from pyspark_log_coordinator.sync import reassigner
from tests.support.command_line import CommandLine
from tests.support.coordinator.replicated_topic import write
from tests.support.lost_folders import lose_folder

PATIENCE_SECONDS = 60


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """A cluster of five nodes with topic t on 0 and 1, of 18 rows."""
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "first")
    for number in range(1, 5):
        cli.run("nodes", "add", tmp_path / f"disk{number}")
    cli.run("topics", "create", "t", "--replica-assignment", "0:1,1:0")
    append(cli, 3)
    return cli


def append(cli: CommandLine, batches: int, on: str = "01", first: int = 0) -> None:
    log = open_log(str(cli.path))
    for batch in range(first, first + batches):
        write(log, log.topic("t"), batch, {0: [b"a" * 1000] * 3, 1: [b"b" * 1000] * 3}, on=list(on), acks="all")


def partitions(cli: CommandLine, topic: str = "t") -> list[dict[str, object]]:
    return cli.documents("topics", "describe", topic)[0]["partitions"]


def where(cli: CommandLine, topic: str = "t") -> list[str]:
    return [":".join(each["replicas"]) for each in partitions(cli, topic)]


def rows(cli: CommandLine) -> int:
    return len(cli.documents("consume", "t"))


# Reassigning


def test_a_topic_moves_to_the_nodes_that_are_named(cli):
    planned = cli.documents("topics", "reassign", "t", "--to-nodes", "2,3", "--dry-run")
    assert where(cli) == ["0:1", "1:0"]
    told = cli.out("topics", "reassign", "t", "--to-nodes", "2,3")
    assert told.splitlines() == [
        "topic t, partition 0: 0, 1 -> 2, 3",
        "topic t, partition 1: 1, 0 -> 3, 2",
        f"copied 6 files, {planned[0]['bytes']:,} bytes",
        "the reassignment of topic t is complete",
    ]
    assert where(cli) == ["2:3", "3:2"]
    assert [each["leader"] for each in partitions(cli)] == ["2", "3"]
    assert rows(cli) == 18
    again = cli.out("topics", "reassign", "t", "--to-nodes", "2,3")
    assert again == "topic t: all replicas are already on these nodes; nothing was changed\n"


def test_without_options_it_says_that_no_reassignment_has_begun(cli):
    said = "begin one with --to-nodes, --replication-factor or --replica-assignment"
    assert cli.out("topics", "reassign", "t") == f"topic t: no reassignment to continue; {said}\n"


def test_what_would_move_is_shown(cli):
    printed = cli.out("topics", "reassign", "t", "--replica-assignment", "0:2,1:0", "--dry-run")
    header, _, line = [line.split() for line in printed.splitlines()]
    assert header == ["topic", "partition", "nodes", "new", "nodes", "bytes", "to", "copy"]
    assert line[:6] == ["t", "0", "0,", "1", "0,", "2"]
    assert cli.out("topics", "reassign", "t", "--dry-run") == "nothing would be moved\n"
    assert where(cli) == ["0:1", "1:0"]


def test_machines_are_told_what_moved(cli):
    (done,) = cli.documents("topics", "reassign", "t", "--replica-assignment", "0:2,1:0")
    assert done == {
        "topic": "t",
        "partitions": [{"partition": 0, "before": ["0", "1"], "after": ["0", "2"], "adding": ["2"], "removing": ["1"]}],
        "objects": 3,
        "bytes": done["bytes"],
        "unfinished": [],
        "failures": [],
    }


def test_the_replication_factor_rises_and_falls(cli):
    cli.run("topics", "reassign", "t", "--replication-factor", 3)
    assert [len(each["isr"]) for each in partitions(cli)] == [3, 3]
    cli.run("topics", "reassign", "t", "--replication-factor", 1)
    assert where(cli) == ["0", "1"]
    assert rows(cli) == 18
    said = cli.error("topics", "reassign", "t", "--replication-factor", 6)
    assert said.startswith("topic 't', partition 0 cannot have 6 replicas: only these nodes can be used: 0, 1, ")


def test_a_run_that_was_killed_is_gone_on_with(cli):
    with cli.start("topics", "reassign", "t", "--to-nodes", "2,3", "--throttle", "1000") as process:
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while where(cli) != ["2:3:0:1", "3:2:1:0"]:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        finally:
            process.send_signal(signal.SIGKILL)
    assert partitions(cli)[0]["adding"] == ["2", "3"]
    assert cli.out("topics", "reassign", "t").splitlines()[-1] == "the reassignment of topic t is complete"
    assert where(cli) == ["2:3", "3:2"]


def test_a_reassignment_that_cannot_end_says_why_and_may_be_cancelled(cli, tmp_path):
    shutil.move(tmp_path / "disk2", tmp_path / "away")
    result = cli.run("topics", "reassign", "t", "--to-nodes", "2,3", code=1)
    first, last = result.stderr.splitlines()
    assert "node '2' at" in first
    assert last.endswith(
        "the reassignment of partitions 0, 1 is incomplete; fix the errors above and continue with: pyspark-log "
        "topics reassign t"
    )
    told = cli.out("topics", "reassign", "t", "--cancel")
    assert told.splitlines()[-1] == "the reassignment of topic t is cancelled"
    assert where(cli) == ["0:1", "1:0"]
    assert cli.out("topics", "reassign", "t", "--cancel").endswith("nothing was changed\n")


def test_cancelling_brings_the_order_back_too(cli, tmp_path):
    shutil.move(tmp_path / "disk2", tmp_path / "away")
    cli.run("topics", "reassign", "t", "--replica-assignment", "1:0:2,0:2:1", code=1)
    assert where(cli) == ["1:0:2", "0:2:1"]
    cli.run("topics", "reassign", "t", "--cancel")
    assert where(cli) == ["0:1", "1:0"]


def test_the_throttle_is_kept(cli):
    (planned,) = cli.documents("topics", "reassign", "t", "--to-nodes", "2,3", "--dry-run")
    begin = time.monotonic()
    cli.run("topics", "reassign", "t", "--to-nodes", "2,3", "--throttle", 2 * planned["bytes"])
    assert time.monotonic() - begin > 0.5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to-nodes", "2,3", "--cancel"], "give only one of these"),
        (["--replica-assignment", "0:1,1:0", "--replication-factor", "2"], "give only one of these"),
        (["--to-nodes", "2,,3"], "is not a list of different nodes"),
        (["--to-nodes", "2,2"], "'2,2' is not a list of different nodes, such as 3,4,5"),
        (["--replica-assignment", "0:"], "such as 0:1,1:2"),
    ],
)
def test_what_is_typed_wrong_says_how_it_is_written(cli, words, said):
    result = cli.run("topics", "reassign", "t", *words, code=2)
    assert said in " ".join(result.stderr.replace("│", " ").split())


def test_an_unknown_node_is_an_error(cli):
    assert cli.error("topics", "reassign", "t", "--to-nodes", "2,9").startswith("node '9' does not exist")


# More partitions


def test_a_topic_gets_more_partitions(cli):
    assert cli.out("topics", "add-partitions", "t", "--partitions", 4) == "topic t now has 4 partitions (was 2)\n"
    assert [len(each["isr"]) for each in partitions(cli)] == [2] * 4
    (done,) = cli.documents("topics", "add-partitions", "t", "--partitions", 5, "--replica-assignment", "3:4")
    assert done == {"topic": "t", "partitions": 5, "added": [{"partition": 4, "replicas": ["3", "4"]}]}
    assert [each["partitions"] for each in cli.documents("topics", "list") if each["topic"] == "t"] == [5]
    cli.run("produce", "t", "--format", "json", stdin='{"value": "new", "partition": 4}\n')
    assert rows(cli) == 19
    assert "partitions are never removed" in cli.error("topics", "add-partitions", "t", "--partitions", 3)


# Leaders


def test_preferred_leaders_lead_again(cli):
    assert cli.out("topics", "elect-leaders") == "all partitions have their preferred leaders\n"
    cli.run("nodes", "fence", "0")
    cli.run("nodes", "unfence", "0")
    result = cli.run("topics", "elect-leaders", "t", code=1)
    assert result.stdout == (
        "topic t, partition 0: the leader is node 1; preferred leader 0 was not elected: it is not in sync\n"
    )
    assert result.stderr == "pyspark-log: 1 partition still without the preferred leader\n"
    cli.run("node", "run", "0", "--once")
    assert [each["leader"] for each in partitions(cli)] == ["1", "1"]
    assert cli.out("topics", "elect-leaders", "t") == "topic t, partition 0: node 0 is now the leader\n"
    assert cli.documents("topics", "elect-leaders", "t") == []


def test_a_preferred_leader_that_is_away_or_fenced_is_not_elected(cli, tmp_path):
    cli.run("nodes", "fence", "1")
    assert "not elected: it is fenced" in cli.run("topics", "elect-leaders", "t", code=1).stdout
    cli.run("nodes", "unfence", "1")
    lose_folder(tmp_path / "disk1")
    one = json.loads(cli.run("topics", "elect-leaders", "t", "--json", code=1).stdout)
    assert (one["preferred"], one["leader"], one["not_elected"]) == ("1", "0", "it is unreachable")


@pytest.fixture
def lost(cli, tmp_path) -> CommandLine:
    """Topic t moved to node 1 and 2; 2 misses the last batch, and 1 is lost."""
    cli.run("topics", "reassign", "t", "--replica-assignment", "1:2,1:2")
    append(cli, 1, on="1", first=3)
    lose_folder(tmp_path / "disk1")
    return cli


def unclean(cli, *words, **how):
    return cli.run("topics", "elect-leaders", "t", "--unclean", "--broker-session-timeout-ms", 200, *words, **how)


def test_an_unclean_election_says_what_is_lost_and_asks(lost):
    asked = unclean(lost, stdin="n\n", code=1)
    assert asked.stderr.splitlines() == [
        "topic t, partition 0: 3 rows (offsets 9 to 11) would be lost",
        "topic t, partition 1: 3 rows (offsets 9 to 11) would be lost",
        "elect out-of-sync leaders for topic t and lose 6 rows? [y/N] ",
        "pyspark-log: no leader was elected",
    ]
    assert [each["leader"] for each in partitions(lost)] == [None, None]
    done = unclean(lost, stdin="y\n")
    assert done.stdout.splitlines() == [
        "topic t, partition 0: node 2 is now the leader; 3 rows (offsets 9 to 11) lost",
        "topic t, partition 1: node 2 is now the leader; 3 rows (offsets 9 to 11) lost",
    ]
    assert rows(lost) == 18
    assert unclean(lost).stdout == "no partition is without a leader\n"


def test_an_unclean_election_for_machines_needs_no_question(lost):
    done = unclean(lost, "--yes", "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    keys = ("partition", "leader", "rows_lost", "first_lost_offset", "not_elected")
    assert [tuple(each[key] for key in keys) for each in found] == [(0, "2", 3, 9, None), (1, "2", 3, 9, None)]


def test_a_replica_whose_disk_was_set_back_leads_with_the_rows_that_it_has(cli, tmp_path):
    cli.run("topics", "reassign", "t", "--replica-assignment", "1:2,1:2")
    shutil.copytree(tmp_path / "disk2", tmp_path / "backup")
    append(cli, 1, on="12", first=3)
    append(cli, 1, on="1", first=4)
    lose_folder(tmp_path / "disk1")
    lose_folder(tmp_path / "disk2")
    shutil.move(tmp_path / "backup", tmp_path / "disk2")
    done = unclean(cli, "--yes")
    assert done.stderr.splitlines() == [
        "topic t, partition 0: 6 rows (offsets 9 to 14) would be lost",
        "topic t, partition 1: 6 rows (offsets 9 to 14) would be lost",
    ]
    assert (
        done.stdout.splitlines()[0] == "topic t, partition 0: node 2 is now the leader; 6 rows (offsets 9 to 14) lost"
    )
    assert rows(cli) == 18
    append(cli, 1, on="2", first=5)
    assert rows(cli) == 24


def test_where_no_replica_is_there_nobody_is_elected_and_it_says_why_and_what_to_do(lost, tmp_path):
    lose_folder(tmp_path / "disk2")
    done = unclean(lost, "--yes", code=1)
    assert done.stderr == "pyspark-log: 2 partitions still without a leader\n"
    assert done.stdout.splitlines()[0] == (
        "topic t, partition 0: no leader was elected: node 1 is missing; node 2 is missing. Bring one back, "
        "then try again"
    )
    lost.run("nodes", "fence", "2")
    assert unclean(lost, "--yes", code=1).stdout.splitlines()[0] == (
        "topic t, partition 0: no leader was elected: node 1 is missing; node 2 is fenced (nodes unfence 2). Bring one "
        "back, then try again"
    )


def test_an_unclean_election_puts_nobody_in_the_place_of_a_leader_that_is_there(cli):
    assert unclean(cli).stdout == "no partition is without a leader\n"
    assert [each["leader"] for each in partitions(cli)] == ["0", "1"]


# Draining


def test_a_node_is_drained_and_removed(cli):
    assert where(cli, "first") == ["0"]
    cli.run("topics", "create", "u", "--replica-assignment", "1:2")
    planned = cli.documents("nodes", "drain", "1", "--dry-run")
    assert [(each["topic"], len(each["partitions"])) for each in planned] == [("t", 2), ("u", 1)]
    lines = cli.out("nodes", "drain", "1").splitlines()
    assert lines == [
        f"moved 2 replicas of topic t: copied 6 files, {planned[0]['bytes']:,} bytes",
        "moved 1 replica of topic u: copied 0 files, 0 bytes",
        "node 1 has no replicas and is fenced; remove it with: pyspark-log nodes remove 1",
    ]
    assert not any("1" in each.split(":") for topic in "tu" for each in where(cli, topic))
    assert cli.out("nodes", "remove", "1", "--yes") == "removed node 1\n"
    assert rows(cli) == 18
    cli.run("topics", "elect-leaders")
    cli.run("produce", "t", stdin="one more\n")
    assert rows(cli) == 19


def test_topics_may_change_and_go_while_a_node_is_drained(cli, monkeypatch):
    cli.run("topics", "create", "u", "--replica-assignment", "1:2")
    cli.run("topics", "create", "v", "--replica-assignment", "1:2")
    carry_out = reassign.carry_out

    def meanwhile(*arguments):
        monkeypatch.undo()
        log = open_log(str(cli.path))
        log.delete_topic("u")
        reassigner.add_partitions(log.topic("v"), 2, (("1", "3"),))
        return carry_out(*arguments)

    monkeypatch.setattr(reassign, "carry_out", meanwhile)
    lines = cli.out("nodes", "drain", "1").splitlines()
    assert [each.split(":")[0] for each in lines[:-1]] == ["moved 2 replicas of topic t", "moved 2 replicas of topic v"]
    assert "1" not in "".join(where(cli, "v"))
    cli.run("nodes", "remove", "1", "--yes")


def test_a_node_whose_disk_is_lost_is_drained_from_the_others(cli, tmp_path):
    lose_folder(tmp_path / "disk1")
    (done,) = cli.documents("nodes", "drain", "1")
    assert (done["node"], done["fenced"], done["topics"][0]["objects"]) == ("1", True, 6)
    cli.run("nodes", "remove", "1", "--yes")
    assert rows(cli) == 18


def test_what_is_only_on_a_lost_disk_is_told(cli, tmp_path):
    cli.run("topics", "create", "solo", "--replica-assignment", "1")
    cli.run("produce", "solo", stdin="row\n")
    lose_folder(tmp_path / "disk1")
    result = cli.run("nodes", "drain", "1", code=1)
    assert "none of its holders (1) is reachable; bring one back" in result.stderr
    assert cli.documents("nodes", "list")[1]["state"] == "missing", "it was not fenced"


def test_a_node_is_not_drained_where_the_others_are_too_few(cli):
    cli.run("topics", "create", "wide", "--replication-factor", 5)
    assert cli.error("nodes", "drain", "1").startswith("topic 'wide', partition 0 cannot have 5 replicas")
    assert where(cli) == ["0:1", "1:0"]


def test_the_root_is_drained_and_stays(cli):
    told = cli.out("nodes", "drain", "0")
    assert told.endswith("node 0 has no replicas and is fenced; it holds journals and cannot be removed\n")
    assert rows(cli) == 18


@pytest.mark.parametrize(
    "command", [("topics", "reassign"), ("topics", "add-partitions"), ("topics", "elect-leaders"), ("nodes", "drain")]
)
def test_each_command_has_help_with_an_example(cli, command):
    assert f"  pyspark-log {' '.join(command)} " in cli.out(*command, "--help")
