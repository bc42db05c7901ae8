"""Whether type checkers see the types of an installed wheel: of a program, they refuse the marked lines alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent.parent / "tests" / "release" / "typed_program.py"


def faults_of_mypy(python: Path, folder: Path) -> list[str]:
    """Return what mypy says of the program, copied to a folder, beyond the lines that it must refuse."""
    program = Path(shutil.copy(PROGRAM, folder))
    options: list[str | Path] = [
        "--strict",
        "--config-file=",
        "--output=json",
        "--cache-dir",
        folder / "mypy",
        "--python-executable",
        python,
    ]
    command: list[str | Path] = [sys.executable, "-m", "mypy", *options, program.name]
    shown = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    errors = [json.loads(line) for line in shown.stdout.splitlines() if line.startswith("{")]
    found = {
        each["line"]: f"mypy: {each['file']}:{each['line']}: {each['message']}"
        for each in errors
        if each["severity"] == "error"
    }
    return _faults(found) + ([shown.stderr] if shown.stderr else [])


def faults_of_pyright(python: Path, folder: Path) -> list[str]:
    """Return what pyright says of the program, in the same way."""
    program = Path(shutil.copy(PROGRAM, folder))
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "reportUnusedExpression": false}')
    command: list[str | Path] = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", python, program.name]
    shown = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if not shown.stdout.startswith("{"):
        return [f"pyright: {shown.stdout}{shown.stderr}"]
    errors = [each for each in json.loads(shown.stdout)["generalDiagnostics"] if each["severity"] == "error"]
    return _faults(
        {each["range"]["start"]["line"] + 1: f"pyright: {each['file']}: {each['message']}" for each in errors}
    )


def _faults(found: dict[int, str]) -> list[str]:
    lines = PROGRAM.read_text().splitlines()
    refused = {number for number, line in enumerate(lines, 1) if line.endswith("  # refused")}
    missing = [f"nobody refuses line {number}: {lines[number - 1]}" for number in sorted(refused - found.keys())]
    return [found[number] for number in sorted(found.keys() - refused)] + missing
