"""`pyspark-log dump`: every kind of stored file, in words."""

import json
from pathlib import Path

import pytest

from pyspark_log_coordinator.journal import journal, journal_entry
from pyspark_log_coordinator.topic.machine import AlterConfig
from tests.support.command_line import CommandLine
from tests.support.lost_folders import lose_folder
from tests.support.plain_log import PlainLog, flip_bit
from tests.support.pyspark_log.cli_rows import produced


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """Topic t with a segment, unrolled chunks, a snapshot and a manifest."""
    monkeypatch.setattr(journal, "SNAPSHOT_EVERY", 4)
    cli = CommandLine(tmp_path / "log")
    log = PlainLog(cli.path)
    log.create("t")
    for batch in range(5):
        log.append("t", {0: [b"value %d" % batch, None]}, [1_700_000_000_000, 1_700_000_000_001])
    log.log.topic("t").submit(AlterConfig({"flush.messages": "1"}))
    cli.run("maintain")
    with monkeypatch.context() as small:
        small.setattr(journal_entry, "INLINE_BYTES_MAX", 1)
        log.append("t", {0: [b"\xff\x00 binary"]})
    return cli


def dumped(cli, pattern, *options):
    """Return the documents of the one file, or the last of those, that the pattern names."""
    file = max(cli.path.glob(pattern))
    head, *rest = [json.loads(line) for line in cli.out("dump", file, *options).splitlines()]
    assert head["file"] == str(file)
    return head, rest


def test_a_marker(cli):
    head, rest = dumped(cli, "node")
    assert (head["is"], head["node"], rest) == ("node marker", "0", [])
    assert len(head["cluster"]) == len(head["incarnation"]) == 32


def test_an_entry_with_its_events_by_the_names_of_their_fields(cli):
    head, [event] = dumped(cli, "topics/t/*/journal/entries/00000000000000000002")
    assert (head["is"], head["manifest"]) == ("journal entry", None)
    assert (event["event"], event["rows"], event["acks"]) == ("BatchSequenced", 2, "all")


def test_a_renewed_node_is_an_event_of_the_cluster_and_of_each_of_its_topics(tmp_path):
    urls = [str(tmp_path / name) for name in "abc"]
    cli = CommandLine(tmp_path / "a")
    cli.run("cluster", "create", "--journal-nodes", ",".join(urls))
    cli.run("topics", "create", "t", "--replication-factor", "3")
    lose_folder(urls[2])
    cli.run("nodes", "renew", "2", "--yes")
    found = []
    for path in (*cli.path.glob("cluster/entries/*.0"), *cli.path.glob("topics/t/*/journal/entries/*.0")):
        found += [json.loads(line) for line in cli.out("dump", path).splitlines()]
    (of_topic,) = (each for each in found if each.get("event") == "ReplicasRenewed")
    (of_cluster,) = (each for each in found if each.get("event") == "NodeRenewed")
    assert set(of_topic) == {"event", "node", "incarnation"}
    assert set(of_cluster) == {"event", "node_id", "url", "incarnation"}
    assert of_cluster["incarnation"] == of_topic["incarnation"]


def test_an_entry_names_the_hash_of_the_one_before_it(cli):
    first, _ = dumped(cli, "topics/t/*/journal/entries/00000000000000000001")
    second, _ = dumped(cli, "topics/t/*/journal/entries/00000000000000000002")
    assert first["previous"] == "0" * 32
    assert second["previous"] == first["hash"]


def test_an_entry_of_the_cluster(cli):
    _, [event] = dumped(cli, "cluster/entries/00000000000000000002")
    assert event["event"] == "TopicCreated"
    assert event["topic"][0] == "t"


def test_a_manifest_and_the_entry_that_names_it(cli):
    head, [event] = dumped(cli, "topics/t/*/journal/manifests/*")
    assert (head["is"], event["event"], event["rows"]) == ("manifest", "BatchSequenced", 1)
    entry, events = dumped(cli, "topics/t/*/journal/entries/*")
    assert (entry["manifest"], events) == (Path(head["file"]).name, [])


def test_a_snapshot(cli):
    head, [state] = dumped(cli, "topics/t/*/journal/snapshots/*")
    assert (head["is"], head["entry"], head["hashes"]) == ("snapshot", 4, 4)
    assert (state["state"]["name"], len(state["state"]["partitions"])) == ("t", 1)


def test_an_append_file_with_its_chunks_and_on_request_its_rows(cli):
    head, [chunk] = dumped(cli, "topics/t/*/append/*")
    assert (head["is"], chunk["position"], chunk["rows"], len(chunk["crc"])) == ("append file", 0, 1, 8)
    _, [again, row] = dumped(cli, "topics/t/*/append/*", "--rows")
    assert again == chunk
    assert row["value"] == "\\xff\x00 binary"
    assert row["key"] is None


def test_a_segment_with_offsets_and_on_request_its_rows(cli):
    head, [chunk] = dumped(cli, "topics/t/*/0/*.log")
    assert (head["is"], chunk["base_offset"], chunk["leader_epoch"], chunk["rows"]) == ("segment", 0, 0, 10)
    _, [_, *rows] = dumped(cli, "topics/t/*/0/*.log", "--rows")
    assert [row["value"] for row in rows[:3]] == ["value 0", None, "value 1"]
    assert rows[0]["timestamp"].startswith("2023-11-14 22:13:20")


def test_a_keyed_segment_with_what_it_supersedes_and_on_request_its_rows(tmp_path):
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t", "--config", "cleanup.policy=compact", "--config", "min.cleanable.dirty.ratio=0")
    for rows in ([("a", "1"), ("b", "1"), ("c", "1"), ("a", "2")], [("b", "2"), ("d", None)]):
        produced(cli, *({"key": key, "value": value} for key, value in rows))
        cli.run("maintain", "t")
    head, [superseded, group] = dumped(cli, "topics/t/*/0/*.parquet")
    names = ("is", "base_offset", "end_offset", "rows", "tombstones", "keys", "superseded_rows")
    assert [head[name] for name in names] == ["keyed segment", 4, 6, 2, 1, 2, 1]
    assert superseded == {"superseded": [1]}
    assert (group["base_offset"], group["span"], group["rows"]) == (4, 2, 2)
    head, [group, *rows] = dumped(cli, f"topics/t/*/0/{0:020d}-*.parquet", "--rows")
    assert (head["superseded_rows"], group["span"], group["rows"]) == (0, 4, 3)
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [(1, "b", "1"), (2, "c", "1"), (3, "a", "2")]


def test_a_keyed_segment_with_a_damaged_list_is_refused(tmp_path):
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t", "--config", "cleanup.policy=compact")
    produced(cli, {"key": "a", "value": "1"})
    cli.run("maintain", "t")
    (file,) = cli.path.glob("topics/t/*/0/*.parquet")
    _, [group] = dumped(cli, "topics/t/*/0/*.parquet")
    flip_bit(file, 8 * (group["position"] + group["length"]))
    assert "its checksum does not match its bytes" in cli.error("dump", file)


def test_an_index(cli):
    head, [entry] = dumped(cli, "topics/t/*/0/*.index")
    assert (head["is"], head["base_offset"], head["end_offset"], head["entries"]) == ("index", 0, 10, 1)
    assert (entry["base_offset"], entry["rows"], entry["max_timestamp"]) == (0, 10, 1_700_000_000_001_000)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("topics/t/*/recovery-point-offset-checkpoint", {"topic": "t", "partition": 0, "offset": 10}),
        ("topics/t/*/replication-offset-checkpoint", {"topic": "t", "partition": 0, "offset": 10}),
        ("topics/t/*/0/leader-epoch-checkpoint", {"leader_epoch": 0, "start_offset": 0}),
    ],
)
def test_a_checkpoint(cli, pattern, expected):
    head, rest = dumped(cli, pattern)
    assert (head["is"], rest) == ("checkpoint", [expected])


def test_several_files_come_one_behind_the_other(cli):
    entries = sorted(cli.path.glob("cluster/entries/*"))
    heads = [json.loads(line) for line in cli.out("dump", *entries).splitlines()]
    assert [each["file"] for each in heads if "file" in each] == [str(entry) for entry in entries]


def test_every_file_of_a_log_can_be_dumped(cli):
    files = [path for path in cli.path.rglob("*") if path.is_file() and path.parent.name != ".tmp"]
    kinds = {json.loads(cli.out("dump", file).splitlines()[0])["is"] for file in files}
    assert len(kinds) == 9


@pytest.mark.parametrize("data", [b"", b"x", b"hello world"])
def test_a_file_of_something_else_is_an_error_that_names_it(cli, tmp_path, data):
    (tmp_path / "other").write_bytes(data)
    assert "is not a file of a log, or its first bytes are damaged" in cli.error("dump", tmp_path / "other")


def test_a_damaged_file_is_an_error_that_names_it(cli):
    file = max(cli.path.glob("topics/t/*/journal/entries/*"))
    flip_bit(file, 8 * 30)
    assert file.name in cli.error("dump", file)


def test_of_a_damaged_segment_what_lies_before_the_damage_is_shown(cli):
    file = max(cli.path.glob("topics/t/*/0/*.log"))
    file.write_bytes(file.read_bytes() + b"PLCK" + bytes(60))
    result = cli.run("dump", file, code=1)
    assert [json.loads(line).get("rows") for line in result.stdout.splitlines()] == [None, 10]
    assert file.name in result.stderr


@pytest.mark.parametrize("name", ["missing", "."])
def test_a_file_that_is_none_is_a_mistake(cli, tmp_path, name):
    assert "FILE" in cli.misuse("dump", tmp_path / name)


def test_a_description(cli):
    head, [document] = dumped(cli, "topics/t/*/description")
    assert (head["is"], head["nodes"][0]["node_id"]) == ("topic description", "0")
    assert (document["state"]["name"], document["state"]["partitions"][0]["segments"]) == ("t", [])


def test_a_row_behind_the_year_9999(tmp_path):
    cli = CommandLine(tmp_path / "log")
    log = PlainLog(cli.path)
    log.create("t")
    log.append("t", {0: [b"x"]}, [2**50])
    _, [_, row] = dumped(cli, "topics/t/*/append/*", "--rows")
    assert row["timestamp"] == f"{2**50 * 1000} microseconds since 1970"
