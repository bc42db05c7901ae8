"""What `import pyspark_log` offers."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import pyspark_log

ROOT = Path(__file__).parents[2]


def test_the_names_shown_are_those_that_users_type():
    assert dir(pyspark_log) == sorted(pyspark_log.__all__)


def test_no_module_has_the_name_of_something_that_users_type():
    """Once it is imported, it would be what they get."""
    modules = {each.name for each in pkgutil.iter_modules(pyspark_log.__path__)}
    assert not modules & set(pyspark_log.__all__)


@pytest.mark.slow
def test_a_type_checker_refuses_a_name_that_is_not_there(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import pyspark_log\n\npyspark_log.Producer\npyspark_log.Prodcuer\n")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(program)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout  # as `make check`
    assert [line.split("error: ")[1] for line in shown.splitlines() if "error: " in line] == [
        'Module has no attribute "Prodcuer"; maybe "Producer"?  [attr-defined]'
    ]
