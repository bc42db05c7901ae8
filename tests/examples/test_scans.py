"""The examples of scans, which need no Spark: they find what they say, and print what the guide shows."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "arrow.md"


@pytest.mark.parametrize(("program", "tables"), [("polars_scan.py", 1), ("duckdb_scan.py", 2)])
def test_the_example_of_a_scan_prints_what_the_guide_shows(program, tables, tmp_path, capsys):
    runpy.run_path(str(ROOT / "examples" / program))["main"](str(tmp_path / "log"))
    printed = re.findall(r"^┌.*?┘$", capsys.readouterr().out, flags=re.MULTILINE | re.DOTALL)
    assert len(printed) == tables
    shown = re.findall(r"^┌.*?┘$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert printed[0] in shown
