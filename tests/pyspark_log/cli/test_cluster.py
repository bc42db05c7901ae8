"""`pyspark-log cluster`: a cluster on several journal nodes, created and described, with one of them away."""

import json
import shutil
import time

import pytest

from pyspark_log.opening import canonical, open_log
from pyspark_log_coordinator.cluster.machine import StartJournalMigration
from pyspark_log_storage.stores.local import LocalStore
from tests.support.command_line import CommandLine
from tests.support.lost_folders import lose_folder


@pytest.fixture
def disks(tmp_path):
    return [tmp_path / name for name in "abc"]


def create(disks, *options):
    return CommandLine(disks[0]).out("cluster", "create", "--journal-nodes", ",".join(map(str, disks)), *options)


def test_a_created_cluster_is_used_by_any_of_its_addresses(disks):
    printed = create(disks)
    assert "on 3 journal nodes" in printed
    assert ",".join(map(str, disks)) in printed
    CommandLine(disks[1]).run("topics", "create", "t")
    assert [each["topic"] for each in CommandLine(disks[2]).documents("topics", "list")] == ["t"]


def test_creating_it_again_is_no_error_and_the_same_cluster(disks):
    [first, again] = [json.loads(create(disks, "--json")) for _ in range(2)]
    assert (first.pop("created"), again.pop("created")) == (True, False)
    assert first == again
    assert first["journal_nodes"] == [str(disk) for disk in disks]
    said = f"cluster {first['cluster']} already exists on 3 journal nodes; nothing was changed"
    assert create(disks).splitlines()[0] == said


def test_a_command_ends_when_the_slow_stores_have_ended_too(disks, monkeypatch):
    """Not as soon as a majority has answered: the end of the process would interrupt a write."""
    create_object = LocalStore.create

    def create_slowly(store, key, data):
        if store.url == str(disks[2]):
            time.sleep(0.02)
        return create_object(store, key, data)

    monkeypatch.setattr(LocalStore, "create", create_slowly)
    create(disks)
    quick, _, slow = [[each.name for each in disk.glob("cluster/*/*")] for disk in disks]
    assert sorted(slow) == sorted(quick)


def test_a_description_says_which_journal_node_is_away(disks):
    create(disks)
    cli = CommandLine(f"{disks[0]},{disks[1]}")
    [told] = cli.documents("cluster", "describe")
    assert [each["missing"] for each in told["journal_nodes"]] == [None, None, None]
    assert (told["nodes"], told["topics"]) == (3, 0)
    assert cli.out("cluster", "describe").count("live") == 3
    lose_folder(disks[0])
    [told] = cli.documents("cluster", "describe")
    assert [each["missing"] is None for each in told["journal_nodes"]] == [False, True, True]
    assert "is its disk mounted, or was it wiped" in told["journal_nodes"][0]["missing"]
    assert not disks[0].exists()


def test_all_who_look_at_a_renewed_journal_node_learn_that_the_journals_must_be_migrated(disks):
    create(disks)
    cli = CommandLine(disks[0])
    cli.run("topics", "create", "t")
    said = (
        "pyspark-log: node 1 does not vote in the journals, because the disk was replaced; migrate the journals with: "
        "pyspark-log cluster migrate-journals --to 0,1,2\n"
    )
    assert [each["journals"] for each in cli.documents("nodes", "list")] == ["votes"] * 3
    shutil.rmtree(disks[1])
    assert cli.run("nodes", "renew", "1", "--yes").stderr.endswith(said)
    assert cli.run("node", "run", "1", "--once").stderr == said
    listed = cli.run("nodes", "list")
    assert listed.stderr == said
    assert [line.split()[3:] for line in listed.stdout.splitlines()[2:]] == [
        ["live", "votes"],
        ["live", "does", "not", "vote"],
        ["live", "votes"],
    ]
    described = cli.run("cluster", "describe")
    assert described.stderr == said
    assert described.stdout.count("live") == 2
    cli.run("cluster", "migrate-journals", "--to", "0,1,2")
    assert cli.out("nodes", "list").count("votes") == 3
    assert cli.out("cluster", "describe").count("live") == 3


def test_a_cluster_on_one_store_is_described_too(tmp_path):
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t")
    [told] = cli.documents("cluster", "describe")
    [only] = told["journal_nodes"]
    assert (only["node"], only["url"], only["missing"]) == ("0", str(cli.path), None)


def test_journals_move_to_other_nodes_and_the_command_again_changes_nothing(disks, tmp_path):
    create(disks)
    cli = CommandLine(disks[0])
    cli.run("topics", "create", "t")
    cli.run("produce", "t", stdin="one\n")
    for name in "de":
        cli.run("nodes", "add", tmp_path / name)
    assert "node '9' does not exist" in cli.error("cluster", "migrate-journals", "--to", "0,3,9")
    printed = cli.out("cluster", "migrate-journals", "--to", "0,3,4")
    assert "migrated the journals of the cluster and of 1 topic to 3 journal nodes" in printed
    assert f"address: {disks[0]},{tmp_path / 'd'},{tmp_path / 'e'}" in printed
    assert "nothing was changed" in cli.out("cluster", "migrate-journals", "--to", "0,3,4")
    [told] = CommandLine(tmp_path / "d").documents("cluster", "describe")
    assert [each["node"] for each in told["journal_nodes"]] == ["0", "3", "4"]
    assert told["journals_migrate_from"] == []
    [again] = cli.documents("cluster", "migrate-journals", "--to", "3,0,4")
    assert (again["generation"], again["migrated"]) == (2, False)
    CommandLine(tmp_path / "e").run("produce", "t", stdin="two\n")
    lose_folder(disks[2])
    rows = CommandLine(disks[1]).documents("consume", "t")
    assert sorted(each["value"] for each in rows) == ["one", "two"]


def test_a_move_that_was_cut_short_is_seen_and_finished(disks, tmp_path):
    create(disks)
    cli = CommandLine(disks[0])
    cli.run("topics", "create", "t")
    cli.run("nodes", "add", tmp_path / "d")
    log = open_log(str(disks[0]))
    log.cluster.submit(StartJournalMigration(("0", "1", "3"), log.journals.nodes.nodes))
    assert "finish with: pyspark-log cluster migrate-journals --to 0,1,3" in cli.run("cluster", "describe").stdout
    [told] = cli.documents("cluster", "describe")
    assert told["journals_migrate_from"] == [str(disk) for disk in disks]
    assert "finish it first, with --to 0,1,3" in cli.error("cluster", "migrate-journals", "--to", "1,2,3")
    [done] = cli.documents("cluster", "migrate-journals", "--to", "0,1,3")
    assert (done["migrated"], done["topics"]) == (True, 1)
    cli.run("verify")


def test_journals_at_the_root_are_not_moved(tmp_path):
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t")
    for name in "abc":
        cli.run("nodes", "add", tmp_path / name)
    assert "they are at the cluster root" in cli.error("cluster", "migrate-journals", "--to", "1,2,3")


def test_too_few_journal_nodes_are_refused(disks):
    message = CommandLine(disks[0]).error("cluster", "create", "--journal-nodes", f"{disks[0]},{disks[1]}")
    assert "need at least 3 (3 tolerate the failure of one, 5 of two); got 2" in message
    assert not disks[0].exists()


def test_an_audit_of_a_whole_cluster_is_sound_and_one_without_a_node_is_not(disks):
    create(disks)
    cli = CommandLine(disks[0])
    cli.run("topics", "create", "t")
    cli.run("verify")
    lose_folder(disks[2])
    result = cli.run("verify", code=1)
    assert "journal node '2'" in result.stdout


def test_a_register_and_the_list_of_journal_nodes_are_shown(disks):
    create(disks)
    CommandLine(disks[0]).run("topics", "create", "t")
    entries = disks[0] / "cluster" / "entries"

    def dumped(path):
        return [json.loads(line) for line in CommandLine(disks[0]).out("dump", path).splitlines()]

    [listed] = dumped(disks[0] / "cluster" / "journal-nodes")
    assert (listed["is"], [each["node"] for each in listed["nodes"]]) == ("journal nodes", ["0", "1", "2"])
    # Who begins the journal leads at nothing yet: it claims a ballot, and closes the votes below.
    [claim] = dumped(entries / "00000000000000000001.1.claim")
    assert (claim["register"], claim["entry"], claim["ballot"], len(claim["nonce"])) == ("claim", 1, 1, 32)
    [closed] = dumped(entries / "00000000000000000001.0")
    assert closed["value"] is None
    vote, entry, *events = dumped(entries / "00000000000000000001.1")
    assert (vote["register"], entry["is"]) == ("vote", "journal entry")
    assert [each["event"] for each in events] == ["ClusterStarted", "NodeAdded", "NodeAdded", "NodeAdded"]


def test_an_address_has_one_form_and_gives_one_log(disks, monkeypatch):
    create(disks)
    monkeypatch.chdir(disks[0].parent)
    assert canonical("a, b") == f"{disks[0]},{disks[1]}"
    assert open_log("a,b") is open_log(f"{disks[0]},{disks[1]}")


def test_a_cluster_on_one_store_is_created_and_stays_when_it_is_created_again(tmp_path):
    cli = CommandLine(tmp_path / "log")
    first, again = (cli.documents("cluster", "create")[0] for _ in range(2))
    assert (first.pop("created"), again.pop("created")) == (True, False)
    assert first == again
    assert f"cluster {first['cluster']} already exists" in cli.out("cluster", "create", "--path", cli.path)
    cli.run("produce", "t", "--create", stdin="v\n")
    assert cli.out("consume", "t") == "v\n"


def test_a_cluster_needs_one_address_or_those_of_its_journal_nodes(disks, monkeypatch):
    several = ",".join(map(str, disks))
    assert "give the address of one store, or --journal-nodes" in CommandLine(several).misuse("cluster", "create")
    assert not disks[0].exists()
