"""Topics move between a real Kafka broker and the log: each row once, with its offset, key, headers and time.

All tests that need the broker are in this file, so that one is started for the whole run.
"""

import itertools
import json
import time

import pytest

from pyspark_log.kafka import row_export
from pyspark_log.kafka.row_export import RowExport
from pyspark_log.opening import own_log
from tests.servers import kafka as server
from tests.servers.kafka import Unavailable
from tests.support.command_line import CommandLine
from tests.support.plain_log import PlainLog

pytest.importorskip("confluent_kafka")
from tests.support.pyspark_log.kafka.cluster import (
    NOON_MS,
    FailingCommit,
    KafkaCluster,
    Transfer,
    exported,
    imported,
    values,
)

pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    try:
        with server.running(tmp_path_factory.mktemp("kafka")) as broker:
            yield KafkaCluster(broker)
    except Unavailable as why:
        pytest.skip(f"there is no Kafka broker: {why}")


@pytest.fixture
def transfer(tmp_path, kafka):
    PlainLog(tmp_path / "log")
    return Transfer(CommandLine(tmp_path / "log"), kafka)


# Import


def test_an_imported_row_keeps_key_value_headers_time_partition_and_offset(kafka, transfer):
    topic = kafka.create(partitions=2)
    kafka.write(topic, [b"v"], key=b"k", headers=[("a", b"1"), ("a", None), ("b", b"\xff")], timestamp=NOON_MS + 1)
    kafka.write(topic, [None], key=b"k")
    kafka.write(topic, [b"\xff"], partition=1)
    transfer.import_(topic)
    headers = [{"key": "a", "value": "1"}, {"key": "a", "value": None}, {"key": "b", "value": {"base64": "/w=="}}]
    place = {"topic": topic, "partition": 0}
    assert transfer.rows(topic) == [
        {**place, "offset": 0, "timestamp": NOON_MS + 1, "key": "k", "value": "v", "headers": headers},
        {**place, "offset": 1, "timestamp": NOON_MS, "key": "k", "value": None},
        {**place, "partition": 1, "offset": 0, "timestamp": NOON_MS, "key": None, "value": {"base64": "/w=="}},
    ]


def test_a_partition_begins_here_at_the_offset_at_which_it_begins_in_kafka(kafka, transfer):
    topic = kafka.create(partitions=2)
    kafka.write(topic, values(5))
    kafka.expire(topic, 3)
    transfer.import_(topic)
    assert transfer.places(topic) == [(0, 3, "3"), (0, 4, "4")]
    partitions = own_log(str(transfer.cli.path)).topic(topic).journal.state.partitions
    assert [(each.log_start, each.log_end) for each in partitions] == [(3, 5), (0, 0)]
    transfer.cli.run("maintain")
    transfer.cli.run("verify")


def test_a_gap_ends_an_import_that_keeps_offsets_and_one_that_maps_them_goes_on(kafka, transfer):
    topic = kafka.create()
    kafka.write(topic, values(2))
    kafka.write_transaction(topic, [b"aborted"], commits=False)
    kafka.write_transaction(topic, [b"4", b"5"])
    kafka.write(topic, [b"7"], headers=[("own", b"1")])
    said = transfer.cli.error(*transfer.words("import", topic, "--execute"))
    assert f"topic '{topic}', partition 0: Kafka has no row with offset 2, the next is 4" in said
    assert "--offsets map" in said
    assert transfer.places(topic) == [(0, 0, "0"), (0, 1, "1")]
    transfer.import_(topic, "--offsets", "map")
    assert transfer.places(topic) == [(0, 0, "0"), (0, 1, "1"), (0, 2, "4"), (0, 3, "5"), (0, 4, "7")]
    found = [[(each["key"], each["value"]) for each in row.get("headers") or ()] for row in transfer.rows(topic)]
    assert found == [
        [],
        [],
        [("kafka.offset", "4")],
        [("kafka.offset", "5")],
        [("own", "1"), ("kafka.offset", "7")],
    ]
    assert "an earlier import mapped offsets" in transfer.cli.error(*transfer.words("import", topic, "--execute"))


def test_groups_go_on_where_they_stopped_in_kafka(kafka, transfer):
    topic = kafka.create(partitions=2)
    kafka.write(topic, values(5))
    kafka.write(topic, values(3), partition=1)
    kafka.commit("left", topic, {0: 2, 1: 3})
    kafka.commit("right", topic, {0: 5})
    printed = transfer.import_(topic, "--group", "left", "--group", "right")
    assert [(each["group"], each["partition"], each["kafka"], each["offset"]) for each in printed["groups"]] == [
        ("left", 0, 2, 2),
        ("left", 1, 3, 3),
        ("right", 0, 5, 5),
    ]
    assert (printed["topic"], printed["to_topic"]) == (topic, topic)
    [described] = transfer.cli.documents("groups", "describe", "left")
    assert [each["committed"] for each in described["partitions"]] == [2, 3]
    kafka.commit("left", topic, {0: 4})
    transfer.import_(topic, "--group", "left")
    [described] = transfer.cli.documents("groups", "describe", "left")
    assert [each["committed"] for each in described["partitions"]] == [4, 3]


def test_an_import_that_is_killed_goes_on_without_loss_or_repetition(kafka, transfer):
    topic = kafka.create(partitions=2)
    for partition in (0, 1):
        kafka.write(topic, values(30_000), partition=partition)
    for rows in (0, 20_000):
        program = transfer.start("import", topic)
        while imported(transfer, topic) <= rows:
            assert program.poll() is None
            time.sleep(0.01)
        program.kill()
        program.wait()
    assert rows < imported(transfer, topic) < 60_000
    transfer.import_(topic)
    assert transfer.places(topic) == [(p, n, str(n)) for p in (0, 1) for n in range(30_000)]


# Export


@pytest.fixture
def filled(transfer):
    """Topic t here: partition 0 begins at offset 2 and has three rows, partition 1 has two."""
    cli = transfer.cli
    cli.run("topics", "create", "t", "--partitions", "2", "--config", "retention.ms=-1")
    rows = [{"value": str(n), "key": "k", "partition": p, "timestamp": NOON_MS + n} for p in (0, 1) for n in range(2)]
    headers = [{"key": "a", "value": "1"}, {"key": "a", "value": None}]
    rows.append({"value": None, "partition": 0, "timestamp": NOON_MS, "headers": headers})
    rows += [{"value": str(n), "partition": 0} for n in (3, 4)]
    cli.run("produce", "t", "--format", "json", stdin="\n".join(map(json.dumps, rows)))
    cli.run("delete-records", "t", "--partition", "0", "--before", "2", "--yes")
    return transfer


def test_groups_go_on_in_kafka_at_the_row_where_they_stopped_here(kafka, filled):
    name = kafka.unused()
    filled.cli.run("groups", "reset-offsets", "g", "--topic", "t:0", "--to-offset", "4", "--execute")
    filled.cli.run("groups", "reset-offsets", "g", "--topic", "t:1", "--to-latest", "--execute")
    filled.export("t", "--to-topic", name, "--group", "g")
    found = kafka.committed("g", name)
    left = {
        number: [each for each in rows if each.offset() >= found[number]]
        for number, rows in kafka.rows(name, 2).items()
    }
    assert {number: [each.value() for each in rows] for number, rows in left.items()} == {0: [b"4"], 1: []}


def test_an_export_that_fails_at_any_commit_goes_on_without_loss_or_repetition(kafka, transfer, monkeypatch):
    name = kafka.unused()
    transfer.cli.run("produce", "t", "--create", stdin="\n".join(map(str, range(15))))
    monkeypatch.setattr(row_export, "TRANSACTION_ROWS", 10)
    monkeypatch.setattr(RowExport, "_abort", lambda _: None)  # as if it was killed
    commit, runs = RowExport._commit, 0
    for after in itertools.cycle((False, True)):
        failing = FailingCommit(commit, after=after)
        monkeypatch.setattr(RowExport, "_commit", lambda *given, failing=failing: failing(*given))
        transfer.cli.run(*transfer.words("export", "t", "--to-topic", name, "--execute"), code=None)
        if not failing.failed:
            break
        runs += 1
    assert runs == 4  # two transactions
    assert exported(kafka, name, 1) == {0: [(n, b"%d" % n) for n in range(15)]}


def test_a_topic_that_comes_back_from_kafka_has_the_same_rows(kafka, filled):
    name = kafka.unused()
    filled.export("t", "--to-topic", name)
    filled.import_(name, "--offsets", "map")
    before, after = filled.rows("t"), filled.rows(name)
    for row in before + after:
        del row["topic"], row["offset"]
    assert before == after


# Connections


@pytest.mark.parametrize("password", [server.PASSWORD, "a wrong secret"])
def test_a_password_comes_from_a_file_and_is_never_shown(kafka, transfer, tmp_path, password):
    topic = kafka.create()
    file = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="{server.USER}" password="{password}";\n'
    )
    words = ["--bootstrap-server", kafka.broker.sasl_address, "--command-config", file, "--timeout-ms", 2000]
    if password == server.PASSWORD:
        assert "nothing was changed" in transfer.cli.out("import", "kafka", *words, "--topic", topic)
    else:
        said = transfer.cli.error("import", "kafka", *words, "--topic", topic)
        assert "authentication" in said.lower()
        assert password not in said
