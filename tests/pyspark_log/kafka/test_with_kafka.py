"""Topics move between a real Kafka broker and the log: each row once, with its offset, key, headers and time.

All tests that need the broker are in this file, so that one is started for the whole run.
"""

import itertools
import json
import time

import pytest

from pyspark_log.kafka import row_export, row_import
from pyspark_log.kafka.row_export import RowExport
from pyspark_log.opening import own_log
from pyspark_log_storage.errors import LogError
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

pytestmark = pytest.mark.slow


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


def test_a_second_import_adds_what_was_written_since(kafka, transfer):
    topic = kafka.create()
    kafka.write(topic, values(3))
    transfer.import_(topic)
    assert transfer.import_(topic)["partitions"] == [{"partition": 0, "rows": 0, "next": 3, "offset": 3}]
    kafka.write(topic, values(2, 3))
    assert transfer.import_(topic)["partitions"] == [{"partition": 0, "rows": 2, "next": 5, "offset": 3}]
    assert transfer.places(topic) == [(0, n, str(n)) for n in range(5)]


def test_an_import_creates_no_log(kafka, transfer, tmp_path):
    topic = kafka.create()
    kafka.write(topic, [b"v"])
    transfer.cli.path = tmp_path / "nowhere"
    for options in ((), ("--execute",)):
        assert "whether its disk is mounted" in transfer.cli.error(*transfer.words("import", topic, *options))
    assert not transfer.cli.path.exists()


def test_without_execute_an_import_only_says_what_it_would_do(kafka, transfer):
    topic = kafka.create()
    kafka.write(topic, values(3))
    kafka.commit("g", topic, {0: 2})
    [plan] = transfer.cli.documents(*transfer.words("import", topic, "--group", "g"))
    partition = {"partition": 0, "next": 0, "end": 3, "offset": 0, "is_resumed": False, "rows_max": 3}
    assert (plan["partitions"], plan["groups"]) == ([partition], [{"group": "g", "partition": 0, "kafka": 2}])
    assert "nothing was changed" in transfer.cli.out(*transfer.words("import", topic, "--all-groups"))
    assert not transfer.cli.documents("topics", "list")


def test_an_import_begins_at_the_first_row_of_a_time(kafka, transfer):
    topic = kafka.create()
    for second in range(4):
        kafka.write(topic, values(1, second), timestamp=NOON_MS + 1000 * second)
    transfer.import_(topic, "--from", f"@{NOON_MS + 1500}")
    assert transfer.places(topic) == [(0, 2, "2"), (0, 3, "3")]


def test_a_new_topic_gets_the_retention_of_the_one_in_kafka(kafka, transfer):
    topic = kafka.create(retention_ms="12345678900", max_message_bytes="2000000")
    transfer.import_(topic, "--config", "max.message.bytes=3000000")
    [described] = transfer.cli.documents("topics", "describe", topic)
    assert described["config"]["retention.ms"] == 12345678900
    assert described["config"]["max.message.bytes"] == 3000000


def test_an_import_is_run_again_with_the_settings_that_its_topic_has(kafka, transfer):
    topic = kafka.create(cleanup_policy="compact,delete")
    settings = ("--config", "retention.ms=0600000", "--config", "cleanup.policy=delete, compact")
    for _ in range(2):
        transfer.import_(topic, *settings)
    other = transfer.words("import", topic, "--execute", *settings, "--config", "retention.bytes=5")
    assert "exists; change its settings with" in transfer.cli.error(*other)


def test_an_import_from_the_latest_offset_on_has_what_is_written_between_its_runs(kafka, transfer):
    topic = kafka.create(partitions=2)
    kafka.write(topic, values(3))
    transfer.import_(topic, "--from", "latest")
    kafka.write(topic, values(2, 3))
    kafka.write(topic, values(2), partition=1)
    transfer.import_(topic, "--from", "latest")
    assert transfer.places(topic) == [(0, 3, "3"), (0, 4, "4"), (1, 0, "0"), (1, 1, "1")]


def test_a_compacted_topic_is_compacted_on_the_other_side_too(kafka, transfer):
    topic, back = kafka.create(cleanup_policy="compact", delete_retention_ms="12345"), kafka.unused()
    kafka.write(topic, values(3), key=b"k")
    transfer.import_(topic)
    [described] = transfer.cli.documents("topics", "describe", topic)
    assert described["config"]["cleanup.policy"] == "compact"
    assert described["config"]["delete.retention.ms"] == 12345
    transfer.cli.run("maintain", topic)
    assert transfer.places(topic) == [(0, 2, "2")]
    transfer.export(topic, "--to-topic", back)
    assert kafka.setting(back, "cleanup.policy") == "compact"
    assert [each.headers() for each in kafka.rows(back)[0]] == [[("pyspark-log.offset", b"2")]]


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


def test_a_header_of_our_name_in_kafka_does_not_move_groups(kafka, transfer):
    topic = kafka.create()
    for number in range(10):
        kafka.write(topic, values(1, number), headers=[("kafka.offset", b"%d" % (100 - number))])
    kafka.commit("headers", topic, {0: 4})
    printed = transfer.import_(topic, "--group", "headers")
    assert [(each["kafka"], each["offset"]) for each in printed["groups"]] == [(4, 4)]


def test_the_committed_offset_of_a_group_is_mapped_to_the_same_row(kafka, transfer):
    topic = kafka.create()
    for number in range(4):  # offsets 0, 2, 4, 6: a marker follows each row
        kafka.write_transaction(topic, values(1, number))
    for offset in range(9):
        kafka.commit(f"at {offset}", topic, {0: offset})
    printed = transfer.import_(topic, "--offsets", "map", *(f"--group=at {offset}" for offset in range(9)))
    assert [each["offset"] for each in printed["groups"]] == [0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_a_group_that_has_committed_nothing_of_the_topic_is_refused(kafka, transfer):
    topic = kafka.create()
    said = transfer.cli.error(*transfer.words("import", topic, "--group", "nobody"))
    assert said == f"group 'nobody' has committed no offsets of topic '{topic}' in Kafka"


def test_an_import_does_not_add_to_rows_of_other_writers(kafka, transfer):
    topic = kafka.create()
    kafka.write(topic, values(1))
    transfer.cli.run("produce", topic, "--create", stdin="own\n")
    said = transfer.cli.error(*transfer.words("import", topic, "--execute"))
    assert "has rows that are not from topic" in said
    transfer.import_(topic, "--to-topic", "copy")
    transfer.cli.run("produce", "copy", stdin="own\n")
    said = transfer.cli.error(*transfer.words("import", topic, "--to-topic", "copy", "--execute"))
    assert "topic 'copy', partition 0 ends at offset 2, and the next row has offset 1 in Kafka" in said


def test_a_typed_topic_takes_no_rows_and_stays_as_it_was(kafka, transfer):
    topic = kafka.create()
    kafka.write(topic, values(5))
    kafka.expire(topic, 3)
    transfer.cli.run("topics", "create", topic, "--schema", "id BIGINT")
    for more in ([], ["--execute"]):
        said = transfer.cli.error(*transfer.words("import", topic, *more))
        assert said.startswith(f"topic '{topic}' is typed, and Kafka has records of key and value; ")
    [partition] = transfer.cli.documents("offsets", topic)
    assert (partition["earliest"], partition["latest"]) == (0, 0)


def test_a_group_whose_name_cannot_be_used_here_is_refused_before_rows_are_imported(kafka, transfer):
    topic = kafka.create()
    kafka.write(topic, values(5))
    kafka.commit("a\nb", topic, {0: 2})
    said = transfer.cli.error(*transfer.words("import", topic, "--group", "a\nb", "--execute"))
    assert "invalid group name 'a\\nb'" in said
    assert imported(transfer, topic) == 0


def test_an_import_that_fails_at_any_commit_goes_on_without_loss_or_repetition(kafka, transfer, monkeypatch):
    topic = kafka.create(partitions=2)
    for partition in (0, 1):
        kafka.write(topic, values(25), partition=partition)
    for name in ("BATCH_ROWS", "AT_ONCE_FIRST", "AT_ONCE_MAX"):
        monkeypatch.setattr(row_import, name, 10)
    monkeypatch.setattr(row_import, "PARTITIONS_AT_ONCE", 1)
    commit, runs = row_import.commit, 0
    for after in itertools.cycle((False, True)):
        failing = FailingCommit(commit, after=after)
        monkeypatch.setattr(row_import, "commit", failing)
        result = transfer.cli.run(*transfer.words("import", topic, "--execute"), code=None)
        if not failing.failed:
            break
        monkeypatch.setattr(row_import, "commit", commit)
        runs += 1
    assert result.exit_code == 0
    assert runs >= 8  # at least two batches of each partition
    assert transfer.places(topic) == [(p, n, str(n)) for p in (0, 1) for n in range(25)]


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


@pytest.mark.parametrize("ahead", [5, 10])  # part of the batch; the same batch
def test_two_imports_at_once_write_no_row_twice(kafka, transfer, monkeypatch, ahead):
    topic = kafka.create()
    kafka.write(topic, values(10))
    commit = row_import.commit

    def late(*given):
        """Commit after another import has written some of the rows."""
        for name in ("BATCH_ROWS", "AT_ONCE_FIRST", "AT_ONCE_MAX"):
            monkeypatch.setattr(row_import, name, ahead)
        monkeypatch.setattr(row_import, "commit", FailingCommit(commit, after=True))
        transfer.cli.error(*transfer.words("import", topic, "--execute"))
        return commit(*given)

    monkeypatch.setattr(row_import, "commit", late)
    result = transfer.cli.run(*transfer.words("import", topic, "--execute"), code=int(ahead < 10))
    assert ahead == 10 or f"another import of topic '{topic}' has written rows up to offset 5" in result.stderr
    monkeypatch.setattr(row_import, "commit", commit)
    transfer.import_(topic)
    assert transfer.places(topic) == [(0, n, str(n)) for n in range(10)]


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


def test_an_exported_row_keeps_key_value_headers_time_and_partition(kafka, filled):
    name = kafka.unused()
    filled.export("t", "--to-topic", name)
    rows = kafka.rows(name, 2)
    assert [(each.key(), each.value(), each.timestamp()[1]) for each in rows[1]] == [
        (b"k", b"0", NOON_MS),
        (b"k", b"1", NOON_MS + 1),
    ]
    assert rows[0][0].value() is None
    assert rows[0][0].headers() == [("a", b"1"), ("a", None), ("pyspark-log.offset", b"2")]
    assert exported(kafka, name) == {0: [(2, None), (3, b"3"), (4, b"4")], 1: [(0, b"0"), (1, b"1")]}


def test_a_second_export_adds_what_was_written_since(kafka, filled):
    name = kafka.unused()
    filled.export("t", "--to-topic", name)
    filled.cli.run("produce", "t", "--format", "json", stdin=json.dumps({"value": "5", "partition": 0}))
    printed = filled.export("t", "--to-topic", name)
    assert [each["rows"] for each in printed["partitions"]] == [1, 0]
    assert exported(kafka, name)[0] == [(2, None), (3, b"3"), (4, b"4"), (5, b"5")]


def test_without_execute_an_export_only_says_what_it_would_do(kafka, filled):
    name = kafka.unused()
    [plan] = filled.cli.documents(*filled.words("export", "t", "--to-topic", name))
    assert [(each["next"], each["end"], each["rows"]) for each in plan["partitions"]] == [(2, 5, 3), (0, 2, 2)]
    assert f"topic {name} would be created in Kafka" in filled.cli.out(*filled.words("export", "t", "--to-topic", name))
    assert name not in kafka.admin.list_topics().topics


def test_an_export_does_not_add_to_rows_of_other_writers(kafka, filled):
    topic = kafka.create(partitions=2)
    kafka.write(topic, values(1))
    said = filled.cli.error(*filled.words("export", "t", "--to-topic", topic, "--execute"))
    assert said == (
        f"topic '{topic}' in Kafka, partition 0: the row at offset 0 was not exported; export to another topic with "
        "--to-topic"
    )


def test_a_topic_that_was_created_again_does_not_go_on_where_the_earlier_one_ended(kafka, transfer):
    name = kafka.unused()
    cli = transfer.cli
    cli.run("produce", "t", "--create", stdin="0\n1\n2")
    transfer.export("t", "--to-topic", name)
    cli.run("produce", "t", stdin="3")
    transfer.export("t", "--to-topic", name)
    cli.run("topics", "delete", "t", "--yes")
    cli.run("produce", "t", "--create", stdin="\n".join("abcdefgh"))
    for more in ([], ["--execute"]):
        said = cli.error(*transfer.words("export", "t", "--to-topic", name, *more))
        assert said == (
            "topic 't', partition 0: the row at offset 3 is not the one that was exported: the topic was deleted and "
            "created again, or an election has cut rows; export to another topic with --to-topic"
        )


def test_a_time_that_kafka_does_not_take_says_which_setting_refuses_it(kafka, transfer):
    name = kafka.create()
    later = json.dumps({"value": "x", "timestamp": 10**14})
    transfer.cli.run("produce", "t", "--create", "--format", "json", stdin=later)
    said = transfer.cli.error(*transfer.words("export", "t", "--to-topic", name, "--execute"))
    assert "further in the future than Kafka allows: set message.timestamp.after.max.ms of the topic there" in said
    free = kafka.create(message_timestamp_after_max_ms=str(2**63 - 1))
    transfer.export("t", "--to-topic", free)
    assert [each.timestamp()[1] for each in kafka.rows(free)[0]] == [10**14]


def test_an_export_goes_on_where_kafka_sets_the_times_itself(kafka, filled):
    name = kafka.create(partitions=2, message_timestamp_type="LogAppendTime")
    filled.export("t", "--to-topic", name)
    filled.cli.run("produce", "t", "--format", "json", stdin=json.dumps({"value": "5", "partition": 0}))
    assert [each["rows"] for each in filled.export("t", "--to-topic", name)["partitions"]] == [1, 0]


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


def test_an_export_that_fails_leaves_no_transaction_open(kafka, transfer, monkeypatch):
    topic = kafka.create()
    transfer.cli.run("produce", "t", "--create", stdin="0\n")

    def fail(export, *_):
        assert export._producer.flush(30) == 0
        assert kafka.has_open_transaction(topic)
        raise LogError("the program ends")

    monkeypatch.setattr(RowExport, "_commit", fail)
    transfer.cli.error(*transfer.words("export", "t", "--to-topic", topic, "--execute"))
    deadline = time.monotonic() + 20  # Kafka itself would abort it after --timeout-ms, a minute
    while kafka.has_open_transaction(topic):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_export_that_still_runs_is_fenced_by_a_new_one(kafka, transfer, monkeypatch):
    name = kafka.unused()
    transfer.cli.run("produce", "t", "--create", stdin="0\n1\n2\n")
    commit = RowExport._commit

    def late(*given):
        monkeypatch.setattr(RowExport, "_commit", commit)
        transfer.export("t", "--to-topic", name)
        return commit(*given)

    monkeypatch.setattr(RowExport, "_commit", late)
    said = transfer.cli.error(*transfer.words("export", "t", "--to-topic", name, "--execute"))
    assert "fenced" in said
    assert exported(kafka, name, 1) == {0: [(0, b"0"), (1, b"1"), (2, b"2")]}


def test_a_topic_that_comes_back_from_kafka_has_the_same_rows(kafka, filled):
    name = kafka.unused()
    filled.export("t", "--to-topic", name)
    filled.import_(name, "--offsets", "map")
    before, after = filled.rows("t"), filled.rows(name)
    for row in before + after:
        del row["topic"], row["offset"]
    assert before == after


# Connections


def test_an_unknown_topic_is_named(kafka, transfer):
    said = transfer.cli.error(*transfer.words("import", "nothing"))
    assert said == f"Kafka at {kafka.broker.address} has no topic 'nothing'; check the name"


def test_a_broker_that_does_not_answer_ends_the_command_in_time(transfer):
    [port] = server.free_ports(1)
    words = ("import", "kafka", "--bootstrap-server", f"127.0.0.1:{port}", "--topic", "t", "--timeout-ms", "1000")
    said = transfer.cli.error(*words)
    assert said.startswith(f"Kafka at 127.0.0.1:{port}")
    assert "Connection refused" in said


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
