"""`python -m tests.mutants` plants every mutant, one after another, and prints which test notices it."""

import argparse
import queue
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.mutants.mutant import Mutant, chosen
from tests.mutants.trial import Result, Search, copy_tree, fails_without_a_fault, run, torture, worlds


def main() -> int:
    """Return 1 if a mutant survives that is not equivalent, or one is noticed that is said to be.

    With `--simulator` or `--torture` return 1 only if these did not run: it measures what they find by themselves.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Plant faults, and see what notices.")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these mutants or lists")
    parser.add_argument("--jobs", type=int, default=2, help="how many trials run beside each other (default: 2)")
    parser.add_argument("--named", action="store_true", help="run only the tests that the lists name")
    searches = parser.add_mutually_exclusive_group()
    searches.add_argument(
        "--simulator", dest="search", type=_worlds, metavar="N", help="run only the first N worlds of the simulator"
    )
    searches.add_argument(
        "--torture", dest="search", type=_torture, metavar="MINUTES", help="run no tests, but torture a log"
    )
    options = parser.parse_args()
    search: Search | None = options.search
    mutants = chosen(options.only)
    results = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees = [copy_tree(Path(folder) / str(number)) for number in range(options.jobs)]
        for result in _trials(mutants, trees, only_named=options.named, search=search):
            results.append(result)
            print(_line(result), flush=True)
        wrong = "" if search is not None else fails_without_a_fault(trees[0], results)
    print(_summary(results))
    if wrong:
        print(f"fails without a fault: {wrong}")
    if search is not None:
        return int(any(each.error for each in results))
    return int(bool(wrong) or not all(each.is_as_expected for each in results))


def _worlds(text: str) -> Search:
    return worlds(int(text))


def _torture(text: str) -> Search:
    return torture(float(text))


def _trials(
    mutants: Sequence[Mutant], trees: Sequence[Path], *, only_named: bool, search: Search | None
) -> Iterator[Result]:
    free: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for tree in trees:
        free.put(tree)

    def trial(mutant: Mutant) -> Result:
        tree = free.get()
        try:
            return run(mutant, tree, only_named=only_named, search=search)
        finally:
            free.put(tree)

    with ThreadPoolExecutor(len(trees)) as pool:
        for done in as_completed([pool.submit(trial, each) for each in mutants]):
            yield done.result()


def _line(result: Result) -> str:
    mutant = result.mutant
    found = result.noticed_by or ("equivalent" if mutant.equivalent else "NOTHING")
    line = f"{mutant.part:12} {mutant.name:40} {result.seconds:6.1f} s  {result.error or found}"
    if result.is_as_expected:
        return line
    return f"{line}\n    {mutant.rule}\n    {mutant.file}\n    - {mutant.old}\n    + {mutant.new}"


def _summary(results: Sequence[Result]) -> str:
    noticed = Counter(each.mutant.part for each in results if each.noticed_by)
    every = Counter(each.mutant.part for each in results)
    equivalent = Counter(each.mutant.part for each in results if each.mutant.equivalent)
    lines = [f"{part}: {noticed[part]} of {count} noticed" for part, count in sorted(every.items())]
    total = f"in all: {noticed.total()} of {every.total()} noticed, {equivalent.total()} equivalent"
    return "\n".join([*lines, total])


if __name__ == "__main__":
    sys.exit(main())
