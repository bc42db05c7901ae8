"""`pyspark-log groups`: what it shows of groups, and where it lets them go on."""

import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from pyspark_log import Consumer
from pyspark_log.cli.groups import groups
from pyspark_log.cli.main import app
from pyspark_log.opening import forget_logs, open_log
from pyspark_log.reading.groups import lags, oldest_unread_ms, reset, within_log
from pyspark_log_coordinator.assignors.subscription import Assignment, encode_assignment
from pyspark_log_coordinator.group.joining import JoinGroup
from pyspark_log_coordinator.group.lifecycle import AlterGroupConfig
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit
from pyspark_log_coordinator.group.rebalance import CompleteJoin
from pyspark_log_coordinator.group.state import MemberDetails, Protocol
from pyspark_log_coordinator.group.sync import SyncGroup
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.log.log import Log, TopicHandle
from pyspark_log_coordinator.membership import last_members
from pyspark_log_coordinator.topic.machine import DeleteTopic
from tests.support.command_line import CommandLine
from tests.support.plain_log import PlainLog

NOON_MS = 1_700_000_000_000


@pytest.fixture
def cli(tmp_path):
    """Topic t with ten rows, a second apart, in each of two partitions; group g has committed 4 and 10."""
    cli = CommandLine(tmp_path)
    cli.run("topics", "create", "t", "--partitions", "2", "--config", "retention.ms=-1")
    rows = [{"value": str(n), "partition": p, "timestamp": NOON_MS + 1000 * n} for p in (0, 1) for n in range(10)]
    cli.run("produce", "t", "--format", "json", stdin="\n".join(map(json.dumps, rows)))
    commit(cli, {0: 4, 1: 10})
    return cli


def log(cli):
    return open_log(str(cli.path))


def commit(cli, offsets, group="g"):
    found = log(cli)
    new = {found.topic("t").topic_id: {number: Offset(offset) for number, offset in offsets.items()}}
    found.group(group, create=True).submit(OffsetCommit(new))


def committed(cli, group="g"):
    [document] = cli.documents("groups", "describe", group)
    return {each["partition"]: each["committed"] for each in document["partitions"]}


def test_groups_are_listed(cli):
    commit(cli, {0: 1}, "another: one")
    documents = cli.documents("groups", "list")
    assert [(each["group"], each["state"], each["members"]) for each in documents] == [
        ("another: one", "Empty", 0),
        ("g", "Empty", 0),
    ]
    assert [line.split()[:2] for line in cli.out("groups", "list").splitlines()[2:]][1] == ["g", "Empty"]


@pytest.mark.parametrize("name", ["orders[eu]", "[red]x[/red]", "x[/y]", "a:x:b"])
def test_a_name_that_looks_like_markup_is_printed_as_it_is(cli, name):
    commit(cli, {0: 1}, name)
    assert name in cli.out("groups", "list")


def test_what_a_terminal_would_obey_is_printed_as_text(cli):
    with Consumer(str(cli.path), group_id="h", client_id="a\x1b[2J\nb") as consumer:
        consumer.subscribe(["t"])
        consumer.poll(0)
        printed = cli.out("groups", "describe", "h")
    assert "\x1b" not in printed
    assert r"a\x1b[2J\nb" in printed


def test_before_the_first_group_it_is_said_how_one_begins(tmp_path):
    cli = CommandLine(tmp_path)
    cli.run("topics", "create", "t")
    assert "group.id" in cli.out("groups", "list")


def test_lag_is_in_rows_and_in_time(cli):
    [document] = cli.documents("groups", "describe", "g")
    first, second = document["partitions"]
    assert (first["committed"], first["latest"], first["lag"]) == (4, 10, 6)
    now = log(cli).environment.now_ms()
    assert 0 <= now - (NOON_MS + 4000) - first["behind_ms"] < 60_000
    assert (second["lag"], second["behind_ms"]) == (0, None)
    assert "group g: Empty, generation 0, 0 members" in cli.out("groups", "describe", "g")


def test_rows_that_have_expired_are_no_lag(cli):
    cli.run("delete-records", "t", "--partition", "0", "--before", "9", "--yes")
    assert cli.documents("groups", "describe", "g")[0]["partitions"][0]["lag"] == 1


@pytest.mark.parametrize("static", [{}, {"group.instance.id": "a"}])
@pytest.mark.parametrize(
    "command",
    [
        ("reset-offsets", "g", "--topic", "t", "--to-earliest", "--execute"),
        ("delete-offsets", "g", "--topic", "t"),
        ("delete", "g", "--yes"),
    ],
)
def test_members_that_are_dead_do_not_stop_a_command_that_needs_a_group_without_members(cli, command, static):
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1"}
    log(cli).group("g").submit(AlterGroupConfig(settings))
    options = {"group.id": "g", "session.timeout.ms": 1000, "heartbeat.interval.ms": 100, **static}
    consumer = Consumer(str(cli.path), options)
    consumer.subscribe(["t"])
    while not consumer.assignment():
        consumer.poll(10)
    assert "stop them" in cli.error("groups", *command)
    consumer._group.stop()  # as if its process was killed
    consumer._group = None
    cli.run("groups", *command)


def test_members_are_shown_with_their_partitions(cli, monkeypatch):
    handle = log(cli).group("other", create=True)
    member = MemberDetails("m-1", (Protocol("range"),), client_id="c", host="h")
    state = handle.submit(JoinGroup(member, "consumer")).state
    state = handle.submit(CompleteJoin(state.barrier.number)).state
    assigned = encode_assignment(Assignment({"t": (0, 1)}))
    handle.submit(SyncGroup("m-1", state.generation, {"m-1": assigned}))
    [document] = cli.documents("groups", "describe", "other")
    assert document["members"] == [
        {"member": "m-1", "instance": "", "client": "c", "host": "h", "assigned": {"t": [0, 1]}, "lag": 0}
    ]
    topic = log(cli).topic("t").topic_id
    handle.submit(OffsetCommit({topic: {0: Offset(3), 1: Offset(8)}}, "m-1", state.generation))
    [document] = cli.documents("groups", "describe", "other")
    assert document["members"][0]["lag"] == 7 + 2
    assert [each["member"] for each in document["partitions"]] == ["m-1", "m-1"]
    assert cli.out("groups", "describe", "other").count("m-1") == 3
    [only] = cli.documents("groups", "describe", "other", "--members")
    assert only["members"] == document["members"]
    assert "partitions" not in only
    assert "earliest" not in cli.out("groups", "describe", "other", "--members")
    [only] = cli.documents("groups", "describe", "other", "--state")
    assert only["member_count"] == 1
    assert only["leader"] == "m-1"
    assert only["journal"].startswith(f"{cli.path}/groups/")
    assert only.keys().isdisjoint({"members", "partitions"})
    assert f"protocol range, leader m-1\njournal {only['journal']}" in cli.out("groups", "describe", "other", "--state")
    monkeypatch.setattr(last_members, "expire_last", lambda *_: None)
    assert "has 1 members" in cli.error("groups", "delete", "other", "--yes")
    assert "stop them" in cli.error("groups", "reset-offsets", "other", "--topic", "t", "--to-earliest", "--execute")


def test_a_watched_group_is_shown_every_second_as_it_is_then(cli, monkeypatch):
    rounds = []

    def sleep(seconds):
        assert seconds <= 1
        if rounds:
            raise KeyboardInterrupt
        rounds.append(seconds)
        commit(cli, {0: 9, 1: 10})

    monkeypatch.setattr(groups, "time", SimpleNamespace(sleep=sleep))  # other threads sleep as they like
    result = CliRunner().invoke(app, ["groups", "describe", "g", "--watch", "--json", "--path", str(cli.path)])
    shown = [json.loads(line) for line in result.output.splitlines()]
    assert [each["partitions"][0]["lag"] for each in shown] == [6, 1]
    rounds.clear()
    result = CliRunner().invoke(app, ["groups", "describe", "g", "--watch", "--path", str(cli.path)])
    assert result.output.count("group g: Empty") == 2


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (["--to-earliest"], {0: 0, 1: 0}),
        (["--to-latest"], {0: 10, 1: 10}),
        (["--to-current"], {0: 4, 1: 10}),
        (["--to-offset", 7], {0: 7, 1: 7}),
        (["--to-offset", 700], {0: 10, 1: 10}),
        (["--shift-by", -3], {0: 1, 1: 7}),
        (["--shift-by", -5], {0: 0, 1: 5}),
        (["--shift-by", 3], {0: 7, 1: 10}),
        (["--to-datetime", "2023-11-14T22:13:25"], {0: 5, 1: 5}),
        (["--to-datetime", "2023-11-14T23:13:25.500+01:00"], {0: 6, 1: 6}),
        (["--to-datetime", "2030-01-01T00:00:00Z"], {0: 10, 1: 10}),
        (["--by-duration", "P90000D"], {0: 0, 1: 0}),
        (["--by-duration", "PT1H30M"], {0: 10, 1: 10}),
    ],
)
def test_a_reset_goes_where_kafkas_tool_would(cli, position, expected):
    before = committed(cli)
    shown = cli.documents("groups", "reset-offsets", "g", "--all-topics", *position)
    assert {each["partition"]: each["new"] for each in shown[0]["partitions"]} == expected
    assert committed(cli) == before, "only --execute changes anything"
    cli.run("groups", "reset-offsets", "g", "--topic", "t", *position, "--execute")
    assert committed(cli) == expected


def test_the_oldest_unread_row_is_the_first_one_left_if_rows_expire_while_it_is_looked_for(cli):
    found = log(cli)
    behind = lags(found, found.group("g").state)[0]
    assert (behind.unread, oldest_unread_ms(found, behind)) == (4, NOON_MS + 4000)
    found.topic("t").delete_records(0, 7)
    assert oldest_unread_ms(found, behind) == NOON_MS + 7000
    found.topic("t").delete_records(0, 10)
    assert oldest_unread_ms(found, behind) is None


def test_where_a_look_is_a_request_the_oldest_unread_rows_of_a_topic_need_none_each(cli, monkeypatch):
    commit(cli, {1: 5})
    looks, seen, found = [], TopicHandle.seen, log(cli)
    monkeypatch.setattr(TopicHandle, "seen", lambda *given, **how: looks.append(given) or seen(*given, **how))
    monkeypatch.setattr(Log, "_is_fresh", True)
    monkeypatch.setattr(Journal, "is_fresh", True)
    behind = lags(found, found.group("g").state)
    assert [oldest_unread_ms(found, each) for each in behind] == [NOON_MS + 4000, NOON_MS + 5000]
    assert len(looks) == 1


def test_a_reset_looks_at_a_topic_once_however_many_partitions_it_has(cli, monkeypatch):
    looks, topic = [], Log.topic
    monkeypatch.setattr(Log, "topic", lambda *given, **how: looks.append(given[1:]) or topic(*given, **how))
    found = within_log(log(cli), {("t", 0): 3, ("t", 1): 30})
    assert found == {("t", 0): 3, ("t", 1): 10}
    reset(log(cli), "g", found)
    assert looks == [("t",)] * 2
    assert committed(cli) == {0: 3, 1: 10}


def test_a_reset_may_be_of_some_partitions_and_of_a_group_that_has_committed_nothing(cli):
    cli.run("groups", "reset-offsets", "new", "--topic", "t:1", "--to-offset", 3, "--execute")
    assert committed(cli, "new") == {1: 3}


def test_offsets_go_through_a_file(cli, tmp_path):
    file = tmp_path / "offsets.csv"
    file.write_text(cli.out("groups", "reset-offsets", "g", "--all-topics", "--to-current", "--export"))
    assert file.read_text() == "t,0,4\nt,1,10\n"
    cli.run("groups", "reset-offsets", "h", "--from-file", file, "--execute")
    assert committed(cli, "h") == {0: 4, 1: 10}
    file.write_text("t,0\n")
    assert "line 1: 't,0' is not topic,partition,offset" in cli.error(
        "groups", "reset-offsets", "h", "--from-file", file
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--all-topics"], "exactly one of --to-earliest"),
        (["--all-topics", "--to-earliest", "--to-latest"], "exactly one of --to-earliest"),
        (["--to-earliest"], "exactly one of --topic, --all-topics"),
        (["--all-topics", "--to-datetime", "yesterday"], "'yesterday' is not a time"),
        (["--all-topics", "--by-duration", "1h"], "'1h' is not a duration"),
        (["--topic", "t:x", "--to-latest"], "is not TOPIC:P,P"),
        (["--all-topics", "--to-current", "--export", "--execute"], "cannot be combined with --execute"),
    ],
)
def test_a_reset_that_was_typed_wrong_says_what_is_expected(cli, arguments, words):
    assert words in cli.misuse("groups", "reset-offsets", "g", *arguments)


def test_what_does_not_exist_is_named(cli):
    assert "group 'x' does not exist" in cli.error("groups", "describe", "x")
    assert "topic 'x' does not exist" in cli.error("groups", "reset-offsets", "g", "--topic", "x", "--to-latest")
    assert "has no partition 7" in cli.error("groups", "reset-offsets", "g", "--topic", "t:7", "--to-latest")
    assert "no committed offset of t:0" in cli.error("groups", "reset-offsets", "n", "--topic", "t", "--to-current")


def test_offsets_and_groups_are_deleted(cli):
    assert "deleted 2 committed offsets" in cli.out("groups", "delete-offsets", "g", "--topic", "t")
    assert committed(cli) == {}
    assert "no committed offsets" in cli.out("groups", "describe", "g")
    cli.run("groups", "delete", "g", "--yes")
    assert "was deleted" in cli.error("groups", "describe", "g")
    assert cli.documents("groups", "list") == []


def journal_of(cli, group="g"):
    return cli.path / log(cli).group(group).journal.folder


def test_a_damaged_entry_of_a_group_is_found_and_its_spare_mends_it(cli):
    entry = journal_of(cli) / "entries" / "00000000000000000002"
    whole = entry.read_bytes()
    entry.write_bytes(whole[:-1])
    assert "group 'g', journal object" in cli.run("verify", code=1).stdout
    assert committed(cli) == {0: 4, 1: 10}, "its spare is read"
    cli.run("verify", "--repair")
    assert entry.read_bytes() == whole


def test_a_group_whose_entry_is_lost_with_its_spare_is_named_and_harms_no_other(cli):
    commit(cli, {0: 5})
    commit(cli, {0: 1}, "h")
    for folder in (journal_of(cli), journal_of(cli) / "spares"):
        (folder / "entries" / "00000000000000000002").unlink()
    fresh = CommandLine(cli.path)
    forget_logs()
    assert "group 'g'" in fresh.run("verify", code=1).stdout
    assert committed(fresh, "h") == {0: 1}
    assert "entries/00000000000000000002" in fresh.error("groups", "describe", "g")


def test_maintenance_trims_the_journals_of_groups(cli):
    topic, group = log(cli).topic("t"), log(cli).group("g")
    for offset in range(1100):  # past the handle, which would clean up after some of the commits
        group.journal.submit(OffsetCommit({topic.topic_id: {0: Offset(offset % 10)}}))
    before = len(list((journal_of(cli) / "entries").iterdir()))
    cli.run("maintain")
    assert len(list((journal_of(cli) / "entries").iterdir())) < before


def test_maintenance_forgets_the_offsets_of_deleted_topics(cli):
    cli.run("topics", "delete", "t", "--yes")
    cli.run("topics", "create", "t")
    assert committed(cli) == {}
    cli.run("maintain")
    assert log(cli).group("g").journal.state.offsets == {}


def test_the_events_of_a_group_are_dumped_by_name(cli):
    _, event = map(json.loads, cli.out("dump", journal_of(cli) / "entries" / "00000000000000000002").splitlines())
    assert event["event"] == "OffsetsCommitted"
    assert [list(each.values()) for each in event["offsets"].values()] == [[[4, -1, ""], [10, -1, ""]]]


def test_a_topic_whose_deletion_was_interrupted_is_left_out_of_a_groups_offsets(tmp_path):
    cli = CommandLine(tmp_path / "log")
    log = PlainLog(cli.path)
    for topic in ("t", "u"):
        log.create(topic)
        cli.run("groups", "reset-offsets", "g", "--topic", topic, "--to-earliest", "--execute")
    log.log.topic("t").submit(DeleteTopic())  # and its name stays
    [found] = cli.documents("groups", "describe", "g")
    assert [each["topic"] for each in found["partitions"]] == ["u"]
    assert cli.out("groups", "export", "g") == "u,0,0\n"
    assert 'pyspark_log_consumer_group_lag{group="g",topic="u",partition="0"} 0' in cli.out("metrics")


def test_a_reset_to_a_time_is_exact_to_the_millisecond(tmp_path):
    cli = CommandLine(tmp_path / "log")
    log = PlainLog(cli.path)
    log.create("t")
    ms = 1_089_883_720_077  # as seconds in a float, times 1000, it is a little less
    log.append("t", {0: [b"a", b"b"]}, [ms - 1, ms])
    [shown] = cli.documents("groups", "reset-offsets", "g", "--topic", "t", "--to-datetime", "2004-07-15T09:28:40.077Z")
    assert [each["new"] for each in shown["partitions"]] == [1]
