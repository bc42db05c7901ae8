"""`pyspark-log groups export` and `import`: the committed offsets of groups go through a file."""

import pytest

from pyspark_log.cli.groups import group_offsets
from pyspark_log.opening import open_log
from pyspark_log_coordinator.group.joining import JoinGroup
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit
from pyspark_log_coordinator.group.state import MemberDetails, Protocol
from tests.support.command_line import CommandLine

COMMA = 'a, "b"'


@pytest.fixture
def cli(tmp_path):
    """Topic t with ten rows in each of two partitions; group g has committed 4 and 10, another one 1."""
    cli = CommandLine(tmp_path / "log")
    cli.run("topics", "create", "t", "--partitions", "2")
    rows = [f'{{"value": "{n}", "partition": {p}}}' for p in (0, 1) for n in range(10)]
    cli.run("produce", "t", "--format", "json", stdin="\n".join(rows))
    commit(cli, "g", {0: 4, 1: 10})
    commit(cli, COMMA, {0: 1})
    return cli


def log(cli):
    return open_log(str(cli.path))


def commit(cli, group, offsets):
    found = log(cli)
    new = {found.topic("t").topic_id: {number: Offset(offset) for number, offset in offsets.items()}}
    found.group(group, create=True).submit(OffsetCommit(new))


def committed(cli, group):
    [document] = cli.documents("groups", "describe", group)
    return {each["partition"]: each["committed"] for each in document["partitions"]}


def saved(tmp_path, text):
    file = tmp_path / "offsets.csv"
    file.write_text(text)
    return file


def test_one_group_is_exported_as_kafkas_tool_does_and_of_several_each_line_names_its_own(cli):
    assert cli.out("groups", "export", "g") == "t,0,4\nt,1,10\n"
    partitions = [{"topic": "t", "partition": p, "offset": offset} for p, offset in ((0, 4), (1, 10))]
    assert cli.documents("groups", "export", "g") == [{"group": "g", "partitions": partitions}]
    both = '"a, ""b""",t,0,1\ng,t,0,4\ng,t,1,10\n'
    assert cli.out("groups", "export", "--all-groups") == cli.out("groups", "export", COMMA, "g") == both
    cli.run("groups", "delete", "g", "--yes")
    assert cli.out("groups", "export", "--all-groups") == '"a, ""b""",t,0,1\n'
    for words in ((), ("g", "--all-groups")):
        assert "give the groups, or --all-groups" in cli.misuse("groups", "export", *words)
    assert "group 'x' does not exist" in cli.error("groups", "export", "x")


def test_all_groups_are_imported_only_with_execute(cli, tmp_path):
    commit(cli, " g ", {0: 2})  # blanks are part of a name
    file = saved(tmp_path, cli.out("groups", "export", "--all-groups"))
    commit(cli, "g", {0: 9})
    cli.run("groups", "delete", COMMA, "--yes")
    shown = {each["group"]: each for each in cli.documents("groups", "import", file)}
    assert {group: each["reset"] for group, each in shown.items()} == dict.fromkeys([" g ", COMMA, "g"], False)
    assert shown["g"]["partitions"][0] == {"topic": "t", "partition": 0, "committed": 9, "new": 4}
    assert committed(cli, "g") == {0: 9, 1: 10}
    cli.run("groups", "import", file, "--execute")
    found = [committed(cli, group) for group in ("g", COMMA, " g ")]
    assert found == [{0: 4, 1: 10}, {0: 1}, {0: 2}]
    marked = saved(tmp_path, "\ufeff" + file.read_text())  # as editors of Windows save it
    assert {each["group"] for each in cli.documents("groups", "import", marked)} == shown.keys()
    with_mark = cli.documents("groups", "import", "-", stdin=b"\xef\xbb\xbfg,t,0,3\n")
    assert [each["group"] for each in with_mark] == ["g"]


def test_an_import_may_be_of_some_groups_or_give_lines_without_one_theirs(cli, tmp_path):
    file = saved(tmp_path, "g,t,0,1\nh,t,0,2\ni,t,0,700\n")
    cli.run("groups", "import", file, "--group", "h", "--group", "i", "--execute")
    assert (committed(cli, "g")[0], committed(cli, "h"), committed(cli, "i")) == (4, {0: 2}, {0: 10})
    assert "has no offsets of group 'x'; it has those of g, h, i" in cli.error("groups", "import", file, "--group", "x")
    cli.run("groups", "import", "-", "--group", "j", "--execute", stdin="t,1,7\n")
    assert committed(cli, "j") == {1: 7}
    assert "name no group" in cli.run("groups", "import", "-", stdin="t,1,7\n", code=2).stderr
    cli.run("groups", "reset-offsets", "k", "--from-file", saved(tmp_path, "g,t,0,1\nk,t,0,2\n"), "--execute")
    assert committed(cli, "k") == {0: 2}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("t,0\n", "line 1: 't,0' is not topic,partition,offset or group,topic,partition,offset"),
        ("h,t,0,1\ng,t,0,x\n", "line 2: 'g,t,0,x' is not group,topic,partition,offset"),
        ("h,t,0,1\ng,t,-1,0\n", "line 2: 'g,t,-1,0' is not"),
        ("h,t,0,1\n\nt,0,1\n", "line 3: 't,0,1' is not group,topic,partition,offset"),
        ("h,t,0,1\nh,t,0,2\n", "line 2: topic 't', partition 0 has an offset in an earlier line too"),
        ('"h,t,0,1\n', "line 1: "),
        ("", "has no offsets"),
        ("h,t,0,1\nh,x,0,1\n", "topic 'x' does not exist"),
        ("h,t,0,1\nh,t,2,1\n", "has no partition 2"),
        (f"h,t,0,1\n{'g' * 300},t,0,1\n", "255"),
    ],
)
def test_a_file_that_is_wrong_is_refused_and_changes_nothing(cli, tmp_path, lines, words):
    assert words in cli.error("groups", "import", saved(tmp_path, lines), "--execute")
    assert [each["group"] for each in cli.documents("groups", "list")] == [COMMA, "g"]


def test_an_import_that_fails_between_two_groups_names_those_that_were_reset(cli, tmp_path, monkeypatch):
    def join(log, group, _):
        handle = log.group(group, create=True)
        if group == "h" and not handle.state.members:
            handle.submit(JoinGroup(MemberDetails("m", (Protocol("range"),)), "consumer"))

    check = group_offsets.check_reset
    monkeypatch.setattr(group_offsets, "check_reset", lambda *given: (check(*given), join(*given)))
    file = saved(tmp_path, "g,t,0,1\nh,t,0,1\ni,t,0,1\n")
    shown = cli.run("groups", "import", file, "--execute", code=1).stderr
    assert "g had been reset; h, i not: import these again with --group" in shown
    assert "group 'h' has 1 members" in shown
    assert committed(cli, "g") == {0: 1, 1: 10}
