"""`python -m tests.specification` explores the specifications, plants faults in them, and follows journals."""

import argparse
import sys
import time
from collections import Counter

from tests.simulator.run import OPERATIONS, run
from tests.specification import following, models, tlc

BEFORE_TLC = 20
"""How many worlds' journals TLC follows in one run."""


def main() -> int:
    """Return 1 if a model breaks a property, a fault is not found, or a journal is not allowed."""
    parser = argparse.ArgumentParser(prog="python -m tests.specification", description="Check the specifications.")
    parser.add_argument("--seeds", default="0..200", metavar="A..B", help="worlds from A up to B, without B")
    parser.add_argument("--operations", type=int, default=OPERATIONS, help="steps of a world, about")
    parser.add_argument("--worlds-only", action="store_true", help="only follow the journals of simulated worlds")
    options = parser.parse_args()
    try:
        tlc.require()
    except tlc.Unavailable as missing:
        sys.exit(f"specification: {missing}")
    first, last = map(int, options.seeds.split(".."))
    explored = options.worlds_only or _explore() & _plant()
    return int(not (_follow(range(first, last), options.operations) and explored))


def _explore() -> bool:
    held = True
    for name, model in models.MODELS.items():
        began = time.monotonic()
        ran = models.explore(model, seconds=3600)
        found = f"BREAKS {ran.violated}" if ran.violated else f"{ran.states:,} states"
        print(f"{name:24} {found}, {time.monotonic() - began:.0f} s", flush=True)
        held &= not ran.violated
    return held


def _plant() -> bool:
    found = True
    for fault in models.faults():
        violated = models.explore(models.MODELS[fault.model], fault).violated
        print(f"{fault.name:28} {violated or 'NOTHING'}", flush=True)
        found &= bool(violated)
    return found


def _follow(seeds: range, operations: int) -> bool:
    traces, entries, wrong, failed = 0, 0, 0, 0
    actions = Counter[str]()
    for start in range(seeds.start, seeds.stop, BEFORE_TLC):
        results = [run(seed, operations) for seed in range(start, min(start + BEFORE_TLC, seeds.stop))]
        failed += sum(each.failure is not None for each in results)
        journals = [journal for each in results for journal in following.journals_of(each)]
        followed = following.follow(journals, [stores for each in results for stores in following.stores_of(each)])
        for each in followed.wrong:
            print(each, flush=True)
        traces, entries, wrong = traces + followed.traces, entries + followed.entries, wrong + len(followed.wrong)
        actions += followed.actions
    print(f"{len(seeds)} worlds, {failed} failed; {traces} traces, {wrong} not allowed; {entries:,} entries")
    print(", ".join(f"{count:,} {name}" for name, count in actions.most_common()))
    return not wrong and not failed


if __name__ == "__main__":
    sys.exit(main())
