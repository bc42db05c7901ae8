"""Mutants of the pure rules: mutmut changes them in small ways, and says which changes no test notices.

`make mutants` tries all of them, which takes hours; `ARGS="--sample 300"` tries some, the same ones each time. What is
changed, and which tests run, is in pyproject.toml. mutmut finds modules by their paths, so it works in a copy of the
tree in which the packages are side by side (build/mutants). Of a mutant the tests run that reach its function, the
shortest first, until one fails.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from multiprocessing import cpu_count
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / "build" / "mutants"
PACKAGES = ["storage/pyspark_log_storage", "coordinator/pyspark_log_coordinator"]
SEED = 0
NOTICED = {"killed", "timeout"}
CONFTEST = '''\
import pytest
from mutmut.state import state


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """The shortest tests first."""
    items.sort(key=lambda item: state().duration_by_test.get(item.nodeid, 0))
'''


def copy_flat() -> None:
    """Copy the tree, with its packages side by side."""
    shutil.rmtree(COPY, ignore_errors=True)
    shutil.copytree(ROOT, COPY, ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "site"))
    for package in PACKAGES:
        shutil.move(COPY / package, COPY)
    (COPY / "conftest.py").write_text(CONFTEST)


def make_mutants(jobs: int) -> list[str]:
    """Write the mutants of all rules, and return their names."""
    from mutmut.__main__ import create_mutants
    from mutmut.utils.file_utils import copy_src_dir

    copy_src_dir()
    create_mutants(jobs)
    return sorted(results())


def results() -> dict[str, int | None]:
    """Return how the tests of each mutant exited; None if they did not run."""
    found = [json.loads(path.read_text())["exit_code_by_key"] for path in Path("mutants").rglob("*.meta")]
    return {name: code for each in found for name, code in each.items()}


def report(tried: list[str]) -> None:
    """Print the survivors, and the score."""
    from mutmut.mutation.diff_apply import find_mutant, get_diff_for_mutant
    from mutmut.stats import status_by_exit_code

    codes = results()
    status = {name: str(status_by_exit_code[codes[name]]) for name in tried}
    for name in tried:
        if status[name] not in NOTICED:
            print(f"\n{status[name]}: {name}\n{get_diff_for_mutant(name, path=find_mutant(name).path)}")
    counts = Counter(status.values())
    noticed = sum(counts[each] for each in NOTICED)
    print(", ".join(f"{count} {each}" for each, count in counts.most_common()))
    print(f"{noticed} of {len(tried)} mutants were noticed: {noticed / len(tried):.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, help="how many mutants to try (default: all)")
    parser.add_argument("--seed", type=int, default=SEED, help="which of them")
    parser.add_argument("--jobs", type=int, default=cpu_count(), help="how many at a time")
    options = parser.parse_args()
    copy_flat()
    os.chdir(COPY)
    names = make_mutants(options.jobs)
    print(f"{len(names)} mutants")
    if options.sample is not None:
        names = sorted(random.Random(options.seed).sample(names, options.sample))
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(options.jobs)]
    subprocess.run([*command, *(names if options.sample is not None else [])], check=True)
    report(names)


if __name__ == "__main__":
    main()
