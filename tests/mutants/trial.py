"""A trial: one mutant is planted in a copy of the tree, and the tests run there until one fails.

First the tests run that the list names, in their order. If they pass, the fast tests of the changed package run. If
these pass too, the mutant has survived: nothing notices the fault. A copy is made of hard links, so it costs no room;
the changed file is replaced there, not written to.

Or a search takes the place of the tests: worlds of the simulator until one fails, or some minutes of torture.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tests.mutants.mutant import ROOT, Mutant

FAST = "not spark and not slow"
SECONDS_MAX = 900
"""How long the tests of one trial may take."""
TEST_SECONDS_MAX = 60
"""How long one test may take: a fault may make it hang."""
_LEFT_OUT = ("build", "dist", "site", "*.egg-info", ".*")
_FOLDERS = {"storage": "tests/storage", "coordinator": "tests/coordinator", "pyspark_log": "tests/pyspark_log"}
_FAILED, _PASSED = 1, 0
_TOO_LONG = f"it took longer than {SECONDS_MAX} s"


class Search(msgspec.Struct, frozen=True):
    """What takes the place of the tests: a program that exits with 1 if it finds something, and says what."""

    what: str
    arguments: tuple[str, ...]
    found: str
    """A regular expression, whose first group is what was found."""


def worlds(count: int, operations: int = 2000) -> Search:
    """Return a search in simulated worlds, with the seeds from 0 up to `count`, until one fails."""
    arguments = ("tests.simulator", "--stop", "--seeds", f"0..{count}", "--operations", str(operations))
    return Search("worlds", arguments, r"^(seed \d+ fails: .*)$")


def torture(minutes: float) -> Search:
    """Return a search by real processes that are attacked for some minutes (docs/torture.md)."""
    return Search("torture", ("tests.torture", "--minutes", str(minutes)), r"^    (\w+: .*)$")


class Result(msgspec.Struct, frozen=True):
    """What became of a mutant."""

    mutant: Mutant
    noticed_by: str
    """The test that failed, or what the search has found; empty if there was none."""
    seconds: float
    error: str = ""
    """Why the tests could not tell, or empty."""

    @property
    def is_as_expected(self) -> bool:
        """Whether it was noticed, or need not be."""
        return not self.error and bool(self.noticed_by) != bool(self.mutant.equivalent)


def copy_tree(to: Path) -> Path:
    """Make a copy of the tree, with what its modules were compiled to."""
    return Path(shutil.copytree(ROOT, to, copy_function=_link, ignore=shutil.ignore_patterns(*_LEFT_OUT)))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def run(mutant: Mutant, tree: Path, *, only_named: bool = False, search: Search | None = None) -> Result:
    """Plant the mutant in the copy `tree`, run the tests (all, or only those that the list names), and restore it.

    With `search` no test runs, but that.
    """
    began = time.monotonic()
    place = tree / mutant.file
    text = (ROOT / mutant.file).read_text()
    _replace(place, mutant.applied_to(text))
    try:
        if search is not None:
            noticed_by, error = first_found(tree, search)
        else:
            noticed_by, error = _noticed_by(mutant, tree, only_named=only_named)
    finally:
        _remove(place)
        _link(str(ROOT / mutant.file), str(place))
    return Result(mutant, noticed_by, time.monotonic() - began, error)


def _replace(place: Path, text: str) -> None:
    _remove(place)  # or the file that it is linked to would change, too
    place.write_text(text)


def _remove(place: Path) -> None:
    """Remove a module with what it was compiled to: two faults of one module may have one size and one time."""
    place.unlink()
    for compiled in place.parent.glob(f"__pycache__/{place.stem}.*.pyc"):
        compiled.unlink()


def _noticed_by(mutant: Mutant, tree: Path, *, only_named: bool) -> tuple[str, str]:
    package = () if only_named or mutant.equivalent else (_FOLDERS[mutant.file.partition("/")[0]],)
    for tests in (*mutant.tests, *package):
        noticed_by, error = first_failure(tree, [tests])
        if noticed_by or error:
            return noticed_by, error
    return "", ""


def fails_without_a_fault(tree: Path, results: Iterable[Result]) -> str:
    """Return a test that noticed a fault and fails without it, too, so that it has noticed nothing; or empty."""
    tests = sorted({each.noticed_by for each in results if each.noticed_by})
    return "; ".join(filter(None, first_failure(tree, tests))) if tests else ""


def first_failure(tree: Path, tests: list[str]) -> tuple[str, str]:
    """Run tests until one fails, and return that, or why it cannot be known whether one does."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-m", FAST]
    command += ["--hypothesis-seed=0", f"--timeout={TEST_SECONDS_MAX}", *tests]
    return _first(r"^FAILED (.*?)(?: - .*)?$", _run(tree, command), "the tests")


def first_found(tree: Path, search: Search) -> tuple[str, str]:
    """Search until something is found, and return that, or why it cannot be known whether there is something."""
    return _first(search.found, _run(tree, [sys.executable, "-m", *search.arguments]), f"the {search.what}")


def _first(failed: str, ran: subprocess.CompletedProcess[str] | None, what: str) -> tuple[str, str]:
    """Return the first failure that was printed, or why it cannot be known whether there is one."""
    if ran is None:
        return "", _TOO_LONG
    found = re.search(failed, ran.stdout, re.MULTILINE)
    if ran.returncode == _FAILED and found is not None:
        return found[1], ""
    if ran.returncode == _PASSED:
        return "", ""
    return "", f"{what} did not run: {(ran.stdout + ran.stderr)[-2000:]}"


def _run(tree: Path, command: list[str]) -> subprocess.CompletedProcess[str] | None:
    """Run a command in a copy of the tree; None if it takes too long."""
    packages = os.pathsep.join(map(str, (tree, tree / "storage", tree / "coordinator")))
    environment = os.environ | {"PYTHONPATH": packages}
    try:
        return subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return None
