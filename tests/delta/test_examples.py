"""The examples that need Delta: they run in the session that has it."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.mark.parametrize(
    ("program", "more"), [("delta_change_feed.py", []), ("delta_history.py", []), ("pipeline.py", ["delta"])]
)
def test_the_example_finds_what_it_says(spark, program, more, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [program, str(tmp_path), *more])
    try:
        runpy.run_path(str(EXAMPLES / program), run_name="__main__")
    finally:
        for query in spark.streams.active:
            query.stop()
