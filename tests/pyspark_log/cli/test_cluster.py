"""`pyspark-log cluster`: on one store or on journal nodes, created, described, checked and migrated."""

import json
import shutil
import time
from pathlib import Path

import pytest

from pyspark_log import Consumer, Producer
from pyspark_log.clients.records import TopicPartition
from pyspark_log.opening import canonical, forget_logs, open_log
from pyspark_log_storage.errors import LogMoved, StoreUnfit
from pyspark_log_storage.stores import self_test
from pyspark_log_storage.stores.local import LocalStore
from tests.support.command_line import CommandLine
from tests.support.lost_folders import lose_folder


@pytest.fixture
def disks(tmp_path):
    return [tmp_path / name for name in "abc"]


def create(disks):
    """Create a cluster with its journals on these folders, and return the document about it."""
    [told] = CommandLine(disks[0]).documents("cluster", "create", "--journal-nodes", ",".join(map(str, disks)))
    return told


def test_a_cluster_is_created_once_and_used_by_any_of_its_addresses(disks, monkeypatch):
    first, again = create(disks), create(disks)
    assert (first.pop("created"), again.pop("created")) == (True, False)
    assert first == again
    assert first["journal_nodes"] == [str(disk) for disk in disks]
    CommandLine(disks[1]).run("topics", "create", "t")
    assert [each["topic"] for each in CommandLine(disks[2]).documents("topics", "list")] == ["t"]
    monkeypatch.chdir(disks[0].parent)
    assert canonical("./a, ./b") == f"{disks[0]},{disks[1]}"
    assert open_log("./a,./b") is open_log(f"{disks[0]},{disks[1]}")


def test_a_cluster_on_one_store_is_created_once_and_described(tmp_path):
    cli = CommandLine(tmp_path / "log")
    first, again = (cli.documents("cluster", "create")[0] for _ in range(2))
    assert (first.pop("created"), again.pop("created")) == (True, False)
    assert first == again
    [only] = cli.documents("cluster", "describe")[0]["journal_nodes"]
    assert (only["node"], only["url"], only["missing"]) == ("0", str(cli.path), None)
    cli.run("topics", "create", "t")
    for name in "abc":
        cli.run("nodes", "add", tmp_path / name)
    assert "they are at the cluster root" in cli.error("cluster", "migrate-journals", "--to", "1,2,3")


def test_too_few_journal_nodes_and_several_addresses_without_saying_what_they_are_create_nothing(disks):
    two, several = f"{disks[0]},{disks[1]}", ",".join(map(str, disks))
    said = CommandLine(disks[0]).error("cluster", "create", "--journal-nodes", two)
    assert "need at least 3 (3 tolerate the failure of one, 5 of two); got 2" in said
    assert "give the address of one store, or --journal-nodes" in CommandLine(several).misuse("cluster", "create")
    assert not disks[0].exists()


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


def test_a_journal_node_that_is_away_is_described_and_found_by_an_audit(disks):
    create(disks)
    cli = CommandLine(f"{disks[0]},{disks[1]}")
    [told] = cli.documents("cluster", "describe")
    assert [each["missing"] for each in told["journal_nodes"]] == [None, None, None]
    assert (told["nodes"], told["topics"]) == (3, 0)
    cli.run("verify")
    lose_folder(disks[0])
    [told] = cli.documents("cluster", "describe")
    assert [each["missing"] is None for each in told["journal_nodes"]] == [False, True, True]
    assert "is its disk mounted, or was it wiped" in told["journal_nodes"][0]["missing"]
    assert not disks[0].exists()
    assert "journal node '0'" in cli.run("verify", code=1).stdout


@pytest.mark.parametrize("damage", [lambda file: file.write_bytes(b""), Path.unlink], ids=["damaged", "missing"])
def test_a_list_of_journal_nodes_is_repaired_from_the_others(disks, damage):
    create(disks)
    cli = CommandLine(",".join(map(str, disks)))
    cli.run("topics", "create", "t")
    file = disks[0] / "cluster" / "journal-nodes"
    whole = file.read_bytes()
    damage(file)
    found = cli.run("verify", code=1)
    assert f"{file} is damaged: " in found.stdout
    assert found.stderr == "pyspark-log: 1 problem, of which verify --repair can repair 1\n"
    [told, _] = cli.documents("verify", "--repair")
    assert (told["repaired"], told["sound"]) == ([str(file)], True)
    assert file.read_bytes() == whole
    assert cli.documents("verify", "--repair")[0]["repaired"] == []


def test_a_list_of_journal_nodes_that_all_have_lost_is_written_again_by_the_command_that_made_it(disks):
    first = create(disks)
    cli = CommandLine(",".join(map(str, disks)))
    cli.run("topics", "create", "t")
    for disk in disks:
        (disk / "cluster" / "journal-nodes").unlink()
    forget_logs()
    assert "is a journal node" in cli.error("topics", "list")
    assert create(disks) == first | {"created": False}
    assert [each["topic"] for each in cli.documents("topics", "list")] == ["t"]


def test_all_who_look_at_a_renewed_journal_node_learn_that_the_journals_must_be_migrated(disks):
    create(disks)
    cli = CommandLine(disks[0])
    cli.run("topics", "create", "t")
    said = "node 1 does not vote in the journals, because the disk was replaced; migrate the journals with: "
    shutil.rmtree(disks[1])
    for words in ("nodes renew 1 --yes", "node run 1 --once", "cluster describe", "nodes list"):
        assert f"{said}pyspark-log cluster migrate-journals --to 0,1,2\n" in cli.run(*words.split()).stderr
    assert [each["journals"] for each in cli.documents("nodes", "list")] == ["votes", "does not vote", "votes"]
    cli.run("cluster", "migrate-journals", "--to", "0,1,2")
    assert [each["journals"] for each in cli.documents("nodes", "list")] == ["votes"] * 3
    assert [each["entries"] for each in cli.documents("verify")] == [0, 0], "each journal begins with a snapshot"


def test_a_producer_says_which_rows_were_not_sent_when_the_journals_move_and_goes_on(disks):
    create(disks)
    cli = CommandLine(disks[0])
    cli.run("topics", "create", "t")
    cli.run("nodes", "add", disks[0].parent / "d")
    with Producer(str(disks[0])) as producer, Consumer(str(disks[0]), auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        producer.send("t", b"one").result()
        assert [each.value for each in consumer.poll(5)] == [b"one"]
        cli.run("cluster", "migrate-journals", "--to", "0,1,3")
        with pytest.raises(LogMoved, match="a Producer goes on"):
            producer.send("t", b"lost").result()
        assert producer.send("t", b"two").result().offset == 1
        with pytest.raises(LogMoved):
            consumer.poll(0.1)
    assert cli.out("consume", "t").split() == ["one", "two"]


def test_a_register_and_the_list_of_journal_nodes_are_dumped(disks):
    create(disks)
    cli = CommandLine(disks[0])
    cli.run("topics", "create", "t")
    entries = disks[0] / "cluster" / "entries"

    def dumped(path):
        return [json.loads(line) for line in cli.out("dump", path).splitlines()]

    [listed] = dumped(disks[0] / "cluster" / "journal-nodes")
    assert (listed["is"], [each["node"] for each in listed["nodes"]]) == ("journal nodes", ["0", "1", "2"])
    # Who begins the journal leads at nothing yet: it claims a ballot, and closes the votes below.
    [claim] = dumped(entries / "00000000000000000001.1.claim")
    assert (claim["register"], claim["entry"], claim["ballot"], len(claim["nonce"])) == ("claim", 1, 1, 32)
    [closed] = dumped(entries / "00000000000000000001.0")
    assert closed["value"] is None
    vote, entry, *events = dumped(entries / "00000000000000000001.1")
    assert (vote["register"], entry["is"]) == ("vote", "journal entry")
    assert [each["event"] for each in events] == ["ClusterStarted", "NodeChanged", "NodeChanged", "NodeChanged"]


# Whether a folder can hold a log, alone or with another machine


def test_a_store_that_is_not_there_or_fails_the_test_is_an_error(tmp_path, monkeypatch):
    def unfit(store, *_):
        raise StoreUnfit(store.url, "", "it overwrites an existing object")

    cli = CommandLine(tmp_path / "log")
    assert "is it mounted?" in cli.error("cluster", "check-store", tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    assert "not a word" in cli.misuse("cluster", "check-store", tmp_path, "--meet", "a/b")
    monkeypatch.setattr(self_test, "self_test", unfit)
    assert cli.error("cluster", "check-store", tmp_path) == "it overwrites an existing object"
