"""What `import pyspark_log` offers."""

import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pyspark_log
from pyspark_log.build import build, digest_of

ROOT = Path(__file__).parents[2]


def test_the_names_shown_are_those_that_users_type_and_no_module_has_one_of_these():
    """Once such a module is imported, it would be what they get."""
    assert dir(pyspark_log) == sorted(pyspark_log.__all__)
    assert not {each.name for each in pkgutil.iter_modules(pyspark_log.__path__)} & set(pyspark_log.__all__)


def test_builds_differ_if_a_file_of_the_program_does_and_not_by_where_they_are_installed(tmp_path):
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    for folder in (package, package / "inner"):
        (folder / "__init__.py").write_text("")
    copy = shutil.copytree(package, tmp_path / "copy")
    (copy / "__init__.pyc").write_bytes(b"compiled here")
    first = digest_of([package])
    assert (re.fullmatch("[0-9a-f]{8}", first) is not None, digest_of([copy])) == (True, first)
    (copy / "inner" / "__init__.py").write_text("changed")
    assert digest_of([copy]) != first
    assert build() not in {first, digest_of([])}


@pytest.mark.deep
def test_a_type_checker_refuses_a_name_that_is_not_there(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import pyspark_log\n\npyspark_log.Producer\npyspark_log.Prodcuer\n")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(program)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout  # as `make check`
    assert [line.split("error: ")[1] for line in shown.splitlines() if "error: " in line] == [
        'Module has no attribute "Prodcuer"; maybe "Producer"?  [attr-defined]'
    ]
