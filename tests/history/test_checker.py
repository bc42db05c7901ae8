"""The checker accepts what a log may do, and notices each thing that it must not."""

import ast
from pathlib import Path

import pytest

from tests.history import checker, events
from tests.history.checker import check
from tests.history.events import (
    Assign,
    Commit,
    Committed,
    Compact,
    Delete,
    Poll,
    Read,
    Retain,
    Row,
    Send,
    encode,
    read_history,
)


def send(value, offset, began, result="ok", *, acks="all", key=None, who="writer", took=1):
    return Send(who, began, began + took, "t", [Row(0, offset, value, key)], result, acks)


def rows(*values, start=0):
    return [Row(0, offset, value) for offset, value in enumerate(values, start)]


def poll(*values, began, start=0, who="reader"):
    return Poll(who, began, began + 1, "t", rows(*values, start=start))


def read(*values, began, start=0):
    return Read("scanner", began, began + 1, "t", rows(*values, start=start), {0: start} if start else {})


def commit(offset, began, result="ok", who="member", took=1):
    return Commit(who, began, began + took, "g", "t", {0: offset}, result)


def committed(offset, began):
    return Committed("other", began, began + 1, "g", "t", {0: offset})


A, B, C = (send(value, offset, offset * 10) for offset, value in enumerate("abc"))
UNKNOWN = send("u", None, 0, "unknown")
REFUSED = send("r", None, 0, "refused")

GOOD = {
    "a read while a row is sent has it or not": [
        A,
        send("b", 1, 10, took=9),
        read("a", began=12),
        read("a", "b", began=13),
    ],
    "rows that are sent at once are in any order": [
        send("a", 1, 0, took=9),
        send("b", 0, 1, took=9),
        read("b", "a", began=20),
    ],
    "an unknown row is not there": [UNKNOWN, read(began=20)],
    "an unknown row comes late": [UNKNOWN, A, read("a", began=20), read("a", "u", began=40)],
    "a refused row is not there": [REFUSED, read(began=20)],
    "a row that was refused is tried again": [send("a", None, -5, "refused"), A, read("a", began=20)],
    "a row whose place is not told is somewhere": [send("a", None, 0), read("a", began=20)],
    "an election cuts a row of acks=1": [
        send("a", 0, 0, acks="1"),
        read(began=20),
        send("b", 0, 30),
        read("b", began=40),
    ],
    "a client that is assigned a partition begins elsewhere": [
        A,
        B,
        poll("a", "b", began=20),
        Assign("reader", 30, 30, "t", {0: 0}),
        poll("a", began=40),
    ],
    "the rows of one call have outcomes of their own": [
        Send("w", 0, 0, "t", [Row(0, None, "a"), Row(0, None, "b")], "unknown"),
        Send("w", 0, 1, "t", [Row(0, 0, "a")]),
        read("a", began=20),
    ],
    "deleted rows are left out": [
        A,
        B,
        C,
        read("a", "b", "c", began=25),
        Delete("x", 30, 31, "t", {0: 2}),
        Read("scanner", 31, 32, "t", rows("c", start=2)),
    ],
    "old rows are left out": [Retain("x", 0, 0, "t", 50), A, B, Read("scanner", 55, 56, "t", rows("b", start=1))],
    "rows with a newer row of their key are left out": [
        Compact("x", 0, 0, "t"),
        send("a", 0, 0, key="k"),
        send("b", 1, 10, key="k"),
        Read("scanner", 20, 21, "t", rows("b", start=1)),
    ],
    "commits go on": [commit(1, 0), committed(1, 5), commit(2, 10), commit(2, 20), committed(2, 30)],
    "an unknown commit counts or not": [commit(1, 0), commit(5, 10, "unknown"), committed(1, 20), committed(5, 30)],
    "commits at once are in any order": [commit(2, 0, took=9), commit(1, 1, who="other", took=2)],
}

BAD = {
    "an acknowledged row is missing at the end": ("lost", [A, B, read("a", began=20)]),
    "an acknowledged row is missing in between": (
        "lost",
        [A, B, C, Read("x", 30, 31, "t", [Row(0, 0, "a"), Row(0, 2, "c")])],
    ),
    "a row whose place was not told is nowhere": ("lost", [send("a", None, 0), read(began=20)]),
    "a reader of the end misses it": ("lost", [A, B, C, read("b", began=30, start=1)]),
    "another row is where one was acknowledged": ("changed", [A, UNKNOWN, read("u", began=20)]),
    "two readers differ": (
        "changed",
        [UNKNOWN, send("v", None, 0, "unknown"), poll("u", began=20), read("v", began=20)],
    ),
    "a later row comes before": ("order", [send("a", 1, 0), send("b", 0, 10), read("b", "a", began=20)]),
    "a row is there twice": ("twice", [A, read("a", "a", began=20)]),
    "a row is acknowledged again elsewhere": ("twice", [A, send("a", 1, 10)]),
    "nobody sent a row": ("unsent", [read("x", began=20)]),
    "a row is read before it is sent": ("unsent", [read("b", began=0), send("b", 0, 10)]),
    "a row is there that was refused when others of its call were not": (
        "refused",
        [
            Send("w", 0, 0, "t", [Row(0, None, "a"), Row(0, None, "b")], "unknown"),
            Send("w", 0, 1, "t", [Row(0, 0, "a")]),
            Send("w", 0, 1, "t", [Row(0, None, "b")], "refused"),
            read("a", "b", began=20),
        ],
    ),
    "a client that polls misses an unknown row": (
        "gap",
        [UNKNOWN, send("v", None, 0, "unknown"), Poll("x", 20, 21, "t", [Row(0, 0, "u"), Row(0, 2, "v")])],
    ),
    "a client does not begin where it was assigned": (
        "lost",
        [A, B, Assign("reader", 15, 15, "t", {0: 0}), poll("b", began=20, start=1)],
    ),
    "a client gets a row again": ("backwards", [A, B, poll("a", "b", began=20), poll("b", began=30, start=1)]),
    "rows are left out before they are deleted": (
        "lost",
        [A, B, Read("scanner", 20, 21, "t", rows("b", start=1)), Delete("x", 30, 31, "t", {0: 1})],
    ),
    "young rows are left out": (
        "lost",
        [Retain("x", 0, 0, "t", 50), A, B, read(began=45)],
    ),
    "the newest row of a key is left out": (
        "lost",
        [
            Compact("x", 0, 0, "t"),
            send("a", 0, 0, key="k"),
            send("b", 1, 10, key="l"),
            Read("s", 20, 21, "t", rows("b", start=1)),
        ],
    ),
    "a commit goes back": ("commit", [commit(2, 0), commit(1, 10, who="other")]),
    "an unknown commit is there and then is not": (
        "commit",
        [commit(1, 0), commit(5, 2, "unknown"), committed(5, 10), committed(1, 20)],
    ),
    "a commit is there before it is made": ("commit", [committed(5, 0), commit(5, 10)]),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_log_may_do_this(name):
    assert check(GOOD[name]) == []


@pytest.mark.parametrize("name", BAD)
def test_a_log_must_not_do_this(name):
    rule, history = BAD[name]
    assert {each.rule for each in check(history)} == {rule}


def test_a_call_whose_client_was_killed_is_unknown_and_one_with_an_outcome_is_not():
    begun = Send("w", 0, 0, "t", [Row(0, None, "a")], "unknown")
    assert check([begun, read(began=20)]) == []
    assert {each.rule for each in check([begun, A, read(began=20)])} == {"lost"}
    assert {each.rule for each in check([begun, Send("w", 0, 1, "t", begun.rows, "refused"), read("a", began=20)])} == {
        "refused"
    }


def test_a_history_is_read_from_files_and_a_torn_last_line_is_left_out(tmp_path):
    history = [event for events in GOOD.values() for event in events]
    data = b"".join(encode(event) + b"\n" for event in history)
    (tmp_path / "one").write_bytes(data + b'{"what":"send","wh')
    assert read_history([tmp_path / "one"]) == sorted(history, key=lambda event: event.ended)


@pytest.mark.parametrize("module", [checker, events])
def test_the_checker_imports_nothing_of_the_product(module):
    statements = [each for each in ast.walk(ast.parse(Path(module.__file__).read_text())) if hasattr(each, "names")]
    imported = {getattr(each, "module", "") or name.name for each in statements for name in each.names}
    assert {name for name in imported if name.startswith(("pyspark", "tests"))} <= {"tests.history.events"}
