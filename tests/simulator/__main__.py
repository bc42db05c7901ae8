"""`python -m tests.simulator --seed N` replays one seed, step by step; `--seeds A..B` runs many.

`--more N` runs those that follow the last one in `worlds.tsv`, and `--record` adds a line to it: which worlds of which
commit have been run, and how many failed. A run that is interrupted records the worlds until then.
"""

import argparse
import subprocess
import sys
import time
import traceback
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

from tests.simulator import probes
from tests.simulator.run import OPERATIONS, run

RECORD = Path(__file__).with_name("worlds.tsv")


def main() -> int:
    """Return 1 where a seed fails, or where so many seeds should have reached what none did."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description="Run simulated worlds.")
    parser.add_argument("--seed", type=int, help="one seed, with every step")
    parser.add_argument("--seeds", default="0..200", metavar="A..B", help="seeds from A up to B, without B")
    parser.add_argument("--more", type=int, metavar="N", help=f"N seeds, from the first one that {RECORD.name} lacks")
    parser.add_argument("--operations", type=int, default=OPERATIONS, help="steps of a run, about")
    parser.add_argument("--stop", action="store_true", help="stop at the first seed that fails")
    parser.add_argument("--stale-lists", type=float, default=0, metavar="MS", help="how old a list may be")
    parser.add_argument("--record", action="store_true", help=f"add a line to {RECORD.name}; of a whole commit only")
    options = parser.parse_args()
    commit = _commit() if options.record else ""
    stale = options.stale_lists / 1000
    if options.seed is not None:
        result = run(options.seed, options.operations, print, stale)
        if result.failure is not None:
            traceback.print_exception(result.failure)
        print(f"seed {options.seed}: {_words(result.counts)}")
        return int(result.failure is not None)
    first, last = map(int, options.seeds.split(".."))
    if options.more is not None:
        first = _recorded()
        last = first + options.more
    began, failed, counts = time.monotonic(), [], Counter[str]()
    ran = 0
    try:
        for seed in range(first, last):
            result = run(seed, options.operations, stale_list_seconds=stale)
            counts += result.counts
            ran += 1
            if result.failure is not None:
                failed.append(seed)
                what = str(result.failure).splitlines() or [""]
                frame = traceback.extract_tb(result.failure.__traceback__)[-1]
                where = f"{frame.filename.rsplit('/', 1)[1]}:{frame.lineno}"
                print(f"seed {seed} fails: {type(result.failure).__name__} ({where}): {what[0][:300]}", flush=True)
                if options.stop:
                    break
            if ran % 100 == 0:
                print(f"{ran} of {last - first} seeds, {len(failed)} failed", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print(f"interrupted in the world of seed {first + ran}")
    print(f"{ran} seeds from {first} on in {time.monotonic() - began:.0f} s, {len(failed)} failed; {_words(counts)}")
    if commit and ran:
        day = datetime.now(timezone.utc).date()
        with RECORD.open("a") as record:
            print(day, commit, f"{first}..{first + ran}", options.operations, len(failed), sep="\t", file=record)
    if failed:
        again = f"--seed {failed[0]} --operations {options.operations} --stale-lists {options.stale_lists}"
        print(f"replay with: python -m tests.simulator {again}")
    left = probes.unreached(counts) if ran >= (probes.MANY if first else probes.ENOUGH) else []
    if left:
        print(f"not reached: {', '.join(left)}")
    return int(bool(failed or left))


def _recorded() -> int:
    """Return the first seed that is above all recorded ones."""
    lines = RECORD.read_text().splitlines()[1:]
    return max((int(line.split("\t")[2].split("..")[1]) for line in lines), default=0)


def _commit() -> str:
    """Return the commit that runs. Raises `SystemExit` where there are changes to it."""
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", f":!{RECORD.name}")
    if changed:
        raise SystemExit(f"--record names the worlds of a commit, and these files are changed:\n{changed}")
    return _git("rev-parse", "--short=12", "HEAD")


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(RECORD.parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _words(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main())
