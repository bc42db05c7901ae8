"""The examples of change feeds: they run in the session with Delta."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.mark.parametrize("program", ["delta_change_feed.py", "delta_history.py"])
def test_the_example_finds_what_it_says(spark, program, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [program, str(tmp_path)])
    try:
        runpy.run_path(str(EXAMPLES / program), run_name="__main__")
    finally:
        for query in spark.streams.active:
            query.stop()
