"""`pyspark-log groups`: what it shows of groups, and where it lets them go on."""

import json

import pytest

from pyspark_log import Consumer
from pyspark_log.opening import open_log
from pyspark_log.reading.groups import lags, oldest_unread_ms
from pyspark_log_coordinator.assignors.subscription import Assignment, encode_assignment
from pyspark_log_coordinator.group.joining import JoinGroup
from pyspark_log_coordinator.group.machine import AlterGroupConfig
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit
from pyspark_log_coordinator.group.rebalance import EndWait, SyncGroup
from pyspark_log_coordinator.group.state import MemberDetails, Protocol
from pyspark_log_coordinator.membership import last_members
from tests.support.command_line import CommandLine

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


def test_groups_are_listed_and_without_any_it_is_said_how_one_begins(cli):
    names = ["[red]x[/red]", "a:x:b", "g"]
    for name in names:
        commit(cli, {0: 4, 1: 10}, name)
    documents = cli.documents("groups", "list")
    assert [(each["group"], each["state"], each["members"]) for each in documents] == [(n, "Empty", 0) for n in names]
    for name in names:
        cli.run("groups", "delete", name, "--yes")
    assert "group.id" in cli.out("groups", "list"), "how a group begins"


def test_lag_is_in_rows_and_in_time_and_counts_no_rows_that_have_expired(cli):
    first, second = cli.documents("groups", "describe", "g")[0]["partitions"]
    assert (first["committed"], first["latest"], first["lag"]) == (4, 10, 6)
    now = log(cli).environment.now_ms()
    assert 0 <= now - (NOON_MS + 4000) - first["behind_ms"] < 60_000
    assert (second["lag"], second["behind_ms"]) == (0, None)
    cli.run("delete-records", "t", "--partition", "0", "--before", "9", "--yes")
    assert cli.documents("groups", "describe", "g")[0]["partitions"][0]["lag"] == 1


@pytest.mark.parametrize(
    ("command", "static"),
    [
        (("reset-offsets", "g", "--topic", "t", "--to-earliest", "--execute"), {}),
        (("delete-offsets", "g", "--topic", "t"), {"group.instance.id": "a"}),
        (("delete", "g", "--yes"), {"group.instance.id": "a"}),
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


def test_a_committed_offset_above_the_end_is_shown_as_what_it_is(cli):
    commit(cli, {1: 25})
    assert [each["beyond"] for each in cli.documents("groups", "describe", "g")[0]["partitions"]] == [0, 15]


def test_members_are_shown_with_their_partitions_and_lag(cli, monkeypatch):
    handle = log(cli).group("other", create=True)
    member = MemberDetails("m-1", (Protocol("range"),), client_id="c", host="h")
    state = handle.submit(JoinGroup(member, "consumer")).state
    state = handle.submit(EndWait(state.barrier.number)).state
    assigned = encode_assignment(Assignment({"t": (0, 1)}))
    handle.submit(SyncGroup("m-1", state.generation, {"m-1": assigned}))
    topic = log(cli).topic("t").topic_id
    handle.submit(OffsetCommit({topic: {0: Offset(3), 1: Offset(8)}}, "m-1", state.generation))
    [document] = cli.documents("groups", "describe", "other")
    shown = {"member": "m-1", "instance": "", "client": "c", "host": "h", "assigned": {"t": [0, 1]}, "lag": 7 + 2}
    assert document["members"] == [shown]
    assert [each["member"] for each in document["partitions"]] == ["m-1", "m-1"]
    [only] = cli.documents("groups", "describe", "other", "--members")
    assert (only["members"], "partitions" in only) == (document["members"], False)
    [only] = cli.documents("groups", "describe", "other", "--state")
    assert (only["member_count"], only["leader"]) == (1, "m-1")
    assert only["journal"].startswith(f"{cli.path}/groups/")
    assert only.keys().isdisjoint({"members", "partitions"})
    monkeypatch.setattr(last_members, "expire_last", lambda *_: None)
    assert "has 1 members" in cli.error("groups", "delete", "other", "--yes")


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (["--to-earliest"], {0: 0, 1: 0}),
        (["--to-latest"], {0: 10, 1: 10}),
        (["--to-current"], {0: 4, 1: 10}),
        (["--to-offset", 700], {0: 10, 1: 10}),
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


def test_a_reset_may_be_of_some_partitions_and_of_a_group_that_has_committed_nothing(cli, tmp_path):
    cli.run("groups", "reset-offsets", "new", "--topic", "t:1", "--to-offset", 3, "--execute")
    assert committed(cli, "new") == {1: 3}
    exported = cli.out("groups", "reset-offsets", "g", "--all-topics", "--to-current", "--export")
    assert exported == "t,0,4\nt,1,10\n"


def test_the_oldest_unread_row_is_the_first_one_left_if_rows_expire_while_it_is_looked_for(cli):
    found = log(cli)
    behind = lags(found, found.group("g").state)[0]
    assert (behind.unread, oldest_unread_ms(found, behind)) == (4, NOON_MS + 4000)
    found.topic("t").delete_records(0, 7)
    assert oldest_unread_ms(found, behind) == NOON_MS + 7000
    found.topic("t").delete_records(0, 10)
    assert oldest_unread_ms(found, behind) is None


def test_a_reset_that_cannot_be_is_refused(cli):
    words = ("groups", "reset-offsets", "g")
    for arguments, said in (
        (["--all-topics"], "exactly one of --to-earliest"),
        (["--all-topics", "--to-earliest", "--to-latest"], "exactly one of --to-earliest"),
        (["--to-earliest"], "exactly one of --topic, --all-topics"),
        (["--all-topics", "--to-datetime", "yesterday"], "'yesterday' is not a time"),
        (["--all-topics", "--by-duration", "1h"], "'1h' is not a duration"),
        (["--topic", "t:x", "--to-latest"], "is not TOPIC:P,P"),
        (["--all-topics", "--to-current", "--export", "--execute"], "cannot be combined with --execute"),
    ):
        assert said in cli.misuse(*words, *arguments)
    assert "topic 'x' does not exist" in cli.error(*words, "--topic", "x", "--to-latest")
    assert "has no partition 7" in cli.error(*words, "--topic", "t:7", "--to-latest")
    assert "no committed offset of t:0" in cli.error("groups", "reset-offsets", "n", "--topic", "t", "--to-current")
    assert "group 'x' does not exist" in cli.error("groups", "describe", "x")


def test_maintenance_forgets_the_offsets_of_deleted_topics(cli):
    cli.run("topics", "delete", "t", "--yes")
    cli.run("maintain")
    assert log(cli).group("g").journal.state.offsets == {}
