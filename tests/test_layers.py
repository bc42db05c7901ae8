"""The three packages import in one direction, and lightly."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

IMPORT_ALL = """
import sys
import pyspark_log, pyspark_log_coordinator, pyspark_log_storage
print(*{name.partition(".")[0] for name in sys.modules})
"""

HEAVY = {"numpy", "pandas", "pyarrow", "pyspark", "rich", "typer"}


def python(script: str) -> str:
    process = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def test_the_layers_hold():
    python("import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())")


def test_importing_the_packages_imports_nothing_heavy():
    # Spark imports every top-level pyspark_* module, in a new process, when it looks for sources.
    heavy = HEAVY & set(python(IMPORT_ALL).split())
    assert not heavy
