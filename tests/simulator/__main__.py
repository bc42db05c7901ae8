"""`python -m tests.simulator --seed N` replays one seed, step by step; `--seeds A..B` runs many."""

import argparse
import sys
import time
import traceback
from collections import Counter

from tests.simulator import probes
from tests.simulator.run import OPERATIONS, run


def main() -> int:
    """Return 1 where a seed fails, or where so many seeds should have reached what none did."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description="Run simulated worlds.")
    parser.add_argument("--seed", type=int, help="one seed, with every step")
    parser.add_argument("--seeds", default="0..200", metavar="A..B", help="seeds from A up to B, without B")
    parser.add_argument("--operations", type=int, default=OPERATIONS, help="steps of a run, about")
    parser.add_argument("--stop", action="store_true", help="stop at the first seed that fails")
    parser.add_argument("--stale-lists", type=float, default=0, metavar="MS", help="how old a list may be")
    options = parser.parse_args()
    stale = options.stale_lists / 1000
    if options.seed is not None:
        result = run(options.seed, options.operations, print, stale)
        if result.failure is not None:
            traceback.print_exception(result.failure)
        print(f"seed {options.seed}: {_words(result.counts)}")
        return int(result.failure is not None)
    first, last = map(int, options.seeds.split(".."))
    began, failed, counts = time.monotonic(), [], Counter[str]()
    ran = 0
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
    print(f"{ran} seeds in {time.monotonic() - began:.0f} s, {len(failed)} failed; {_words(counts)}")
    if failed:
        again = f"--seed {failed[0]} --operations {options.operations} --stale-lists {options.stale_lists}"
        print(f"replay with: python -m tests.simulator {again}")
    left = probes.unreached(counts) if ran >= probes.ENOUGH and first == 0 else []
    if left:
        print(f"not reached: {', '.join(left)}")
    return int(bool(failed or left))


def _words(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main())
