"""Documents as text: a record, a list, and what is left out."""

import io
import sys

import pytest

from pyspark_log.cli import output


def printed(capsys, found, **how):
    output.show(found, json=False, **how)
    return capsys.readouterr().out.splitlines()


def test_a_record_has_a_line_for_each_field_and_a_table_for_each_list_of_documents(capsys):
    record = {"topic": "t", "high_watermark": 1234, "is_typed": False, "rack": None, "config": {"a.ms": 5000, "b": "x"}}
    assert printed(capsys, record | {"none_yet": [], "rows": [{"partition": 0, "isr": ["0", "2"]}]}) == [
        "topic           t",
        "high watermark  1,234",
        "is typed        no",
        "rack            none",
        "config          a.ms=5000",
        "                b=x",
        "none yet        none",
        "",
        "partition  isr",
        "───────────────",
        "        0  0, 2",
    ]


def test_a_list_is_a_table_without_columns_that_are_empty_but_that_nobody_leads_is_shown(capsys):
    rows = [{"name": "long", "lag": 12, "leader": None, "adding": []}, {"name": "b", "lag": 3, "leader": None}]
    rows[1]["adding"] = ()
    assert printed(capsys, rows) == ["name  lag  leader", "─────────────────", "long   12  none", "b       3  none"]
    assert printed(capsys, [], empty="no groups yet") == ["no groups yet"]


def test_offsets_beyond_the_end_are_a_column_only_if_there_are_any(capsys):
    rows = [{"partition": 0, "lag": 0, "beyond": 0}, {"partition": 1, "lag": 0, "beyond": 0}]
    assert printed(capsys, rows)[0] == "partition  lag"
    rows[1]["beyond"] = 2
    assert printed(capsys, rows)[0] == "partition  lag  beyond"


def test_lists_of_documents_in_a_list_are_tables_below_it(capsys):
    rows = [{"topic": "t", "expired": [{"rows": 5}], "orphans": 0}, {"topic": "u", "expired": [], "orphans": 1}]
    assert printed(capsys, rows)[::2] == ["topic  orphans", "t            0", "", "topic  rows", "t         5"]


def test_a_terminal_without_unicode_gets_none(monkeypatch):
    printed = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", printed)
    output.show([{"topic": "t"}], json=False)
    assert printed.buffer.getvalue() == b"topic\n-----\nt\n"


def test_several_records_have_an_empty_line_between_them(capsys):
    assert printed(capsys, [{"group": "a"}, {"group": "b"}], records=True) == ["group  a", "", "group  b"]


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("created_ms", 1_700_000_000_123, "2023-11-14 22:13:20.123Z"),
        ("behind_ms", 45_000, "45 s"),
        ("behind_ms", 2_000_000_000_000, "23148 d"),
        ("assigned", {"t": [0, 1]}, "t=0, 1"),
        ("client", "a\x1b[2J\nb", r"a\x1b[2J\nb"),
    ],
)
def test_values_are_shown_for_people_and_nothing_that_a_terminal_would_obey(capsys, field, value, shown):
    assert printed(capsys, [{field: value}])[2].strip() == shown
