"""`python -m tests.simulator --seed N` replays a seed step by step; `--seeds A..B` runs many, `--more N` new ones."""

import argparse
import random
import sys
import time
import traceback
from collections import Counter

from tests.simulator import probes
from tests.simulator.run import OPERATIONS, Result, run

NEW_SEEDS_MAX = 10**9


def main() -> int:
    """Return 1 if a seed fails, or if no world reaches a probe that so many worlds should have reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description="Run simulated worlds.")
    parser.add_argument("--seed", type=int, help="one seed, with every step")
    parser.add_argument("--seeds", default="0..200", metavar="A..B", help="seeds from A up to B, without B")
    parser.add_argument("--more", type=int, metavar="N", help="N seeds from a random one on")
    parser.add_argument("--operations", type=int, default=OPERATIONS, help="steps of a run, about")
    parser.add_argument("--stop", action="store_true", help="stop at the first seed that fails")
    options = parser.parse_args()
    if options.seed is not None:
        result = run(options.seed, options.operations, print)
        if result.failure is not None:
            traceback.print_exception(result.failure)
        print(f"seed {options.seed}: {_words(result.counts)}")
        return int(result.failure is not None)
    first, last = map(int, options.seeds.split(".."))
    if options.more is not None:
        first = random.randrange(probes.ENOUGH, NEW_SEEDS_MAX)
        last = first + options.more
    began, ran, failed, counts = time.monotonic(), 0, [], Counter[str]()
    try:
        for seed in range(first, last):
            result = run(seed, options.operations)
            counts += result.counts
            ran += 1
            if result.failure is not None:
                failed.append(seed)
                print(_failure(result), flush=True)
                if options.stop:
                    break
            if ran % 100 == 0:
                print(f"{ran} of {last - first} seeds, {len(failed)} failed", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print(f"interrupted in the world of seed {first + ran}")
    print(f"{ran} seeds from {first} on in {time.monotonic() - began:.0f} s, {len(failed)} failed; {_words(counts)}")
    if failed:
        print(f"replay with: python -m tests.simulator --seed {failed[0]} --operations {options.operations}")
    left = probes.unreached(counts) if ran >= (probes.MANY if first else probes.ENOUGH) else []
    if left:
        print(f"not reached: {', '.join(left)}")
    return int(bool(failed or left))


def _failure(result: Result) -> str:
    assert result.failure is not None
    frame = traceback.extract_tb(result.failure.__traceback__)[-1]
    what = str(result.failure).partition("\n")[0][:300]
    where = f"{frame.filename.rsplit('/', 1)[1]}:{frame.lineno}"
    return f"seed {result.seed} fails: {type(result.failure).__name__} ({where}): {what}"


def _words(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main())
