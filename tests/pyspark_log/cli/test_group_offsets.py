"""`pyspark-log groups export` and `import`: the committed offsets of groups go through a file."""

import pytest

from pyspark_log.opening import open_log
from pyspark_log_coordinator.group.joining import JoinGroup
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit
from pyspark_log_coordinator.group.state import MemberDetails, Protocol
from pyspark_log_coordinator.membership import last_members
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


def test_one_group_is_exported_as_kafkas_tool_does(cli):
    assert cli.out("groups", "export", "g") == "t,0,4\nt,1,10\n"
    assert cli.documents("groups", "export", "g") == [
        {
            "group": "g",
            "partitions": [
                {"topic": "t", "partition": 0, "offset": 4},
                {"topic": "t", "partition": 1, "offset": 10},
            ],
        }
    ]


def test_lines_of_several_groups_name_them(cli):
    both = '"a, ""b""",t,0,1\ng,t,0,4\ng,t,1,10\n'
    assert cli.out("groups", "export", "--all-groups") == both
    assert cli.out("groups", "export", COMMA, "g") == both


def test_a_deleted_group_is_not_exported(cli):
    cli.run("groups", "delete", "g", "--yes")
    assert cli.out("groups", "export", "--all-groups") == '"a, ""b""",t,0,1\n'


def test_all_groups_are_imported_only_with_execute(cli, tmp_path):
    file = saved(tmp_path, cli.out("groups", "export", "--all-groups"))
    commit(cli, "g", {0: 9})
    cli.run("groups", "delete", COMMA, "--yes")
    shown = cli.documents("groups", "import", file)
    assert [(each["group"], each["reset"]) for each in shown] == [(COMMA, False), ("g", False)]
    assert shown[1]["partitions"][0] == {"topic": "t", "partition": 0, "committed": 9, "new": 4}
    assert "nothing was changed; add --execute" in cli.out("groups", "import", file)
    assert committed(cli, "g") == {0: 9, 1: 10}
    assert "reset 2 groups in 3 partitions" in cli.out("groups", "import", file, "--execute")
    assert (committed(cli, "g"), committed(cli, COMMA)) == ({0: 4, 1: 10}, {0: 1})


def test_blanks_around_the_name_of_a_group_are_kept(cli, tmp_path):
    commit(cli, " g ", {0: 2})
    file = saved(tmp_path, cli.out("groups", "export", " g ", "g"))
    commit(cli, " g ", {0: 3})
    cli.run("groups", "import", file, "--execute")
    assert (committed(cli, " g "), committed(cli, "g")) == ({0: 2}, {0: 4, 1: 10})


def test_an_import_may_be_of_some_groups(cli, tmp_path):
    file = saved(tmp_path, "g,t,0,1\nh,t,0,2\ni,t,0,3\n")
    cli.run("groups", "import", file, "--group", "h", "--group", "i", "--execute")
    assert (committed(cli, "g")[0], committed(cli, "h"), committed(cli, "i")) == (4, {0: 2}, {0: 3})
    assert "has no offsets of group 'x'; it has those of g, h, i" in cli.error("groups", "import", file, "--group", "x")


def test_lines_without_a_group_belong_to_the_one_that_is_given(cli):
    cli.run("groups", "import", "-", "--group", "h", "--execute", stdin="t,1,7\n")
    assert committed(cli, "h") == {1: 7}
    assert "name no group" in cli.run("groups", "import", "-", stdin="t,1,7\n", code=2).stderr


def test_a_reset_takes_its_group_from_a_file_of_several(cli, tmp_path):
    file = saved(tmp_path, "g,t,0,1\nh,t,0,2\n")
    cli.run("groups", "reset-offsets", "h", "--from-file", file, "--execute")
    assert committed(cli, "h") == {0: 2}
    assert "has no offsets of group 'x'" in cli.error("groups", "reset-offsets", "x", "--from-file", file)


def test_an_offset_outside_the_log_becomes_the_nearest_one_in_it(cli, tmp_path):
    cli.run("groups", "import", saved(tmp_path, "h,t,0,700\n"), "--execute")
    assert committed(cli, "h") == {0: 10}


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


def test_no_group_is_reset_if_one_has_members(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(last_members, "expire_last", lambda *_: None)
    handle = log(cli).group("h", create=True)
    handle.submit(JoinGroup(MemberDetails("m", (Protocol("range"),)), "consumer"))
    file = saved(tmp_path, "g,t,0,1\nh,t,0,1\n")
    assert "group 'h' has 1 members" in cli.error("groups", "import", file, "--execute")
    assert committed(cli, "g") == {0: 4, 1: 10}


def test_an_export_names_its_groups_or_means_all(cli):
    assert "give the groups, or --all-groups" in cli.misuse("groups", "export")
    assert "give the groups, or --all-groups" in cli.misuse("groups", "export", "g", "--all-groups")
    assert "group 'x' does not exist" in cli.error("groups", "export", "x")
