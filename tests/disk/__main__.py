"""`python -m tests.disk` forms the states that power failures may leave, and opens the log on each."""

import argparse
import sys
import tempfile
import time
import traceback

from tests.disk.failures import Trial, failures
from tests.disk.story import KINDS, DiskStory
from tests.support.coordinator.fault_story import told


def main() -> int:
    """Return 1 if a promise is broken in some state."""
    parser = argparse.ArgumentParser(prog="python -m tests.disk", description="Lose power after each call.")
    parser.add_argument("--kind", choices=KINDS, default="one", help="the kind of cluster (default: one)")
    parser.add_argument("--seed", type=int, default=0, help="of the states that are chosen by chance (default: 0)")
    parser.add_argument("--kills", type=float, default=0.3, help="the chance of a kill in each step (default: 0.3)")
    parser.add_argument("--samples", type=int, default=2, help="states by chance after each call (default: 2)")
    parser.add_argument("--every", type=int, default=1, help="fail after every so many calls (default: 1)")
    parser.add_argument("--begin", type=int, default=0, help="fail after so many calls at first (default: 0)")
    parser.add_argument("--seconds", type=float, default=3600, help="stop after this time (default: 3600)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as told_in, told():
        story = DiskStory(options.kind, told_in, options.seed, options.kills)
        story.run()
        return int(_tried(story, options) > 0)


def _tried(story: DiskStory, options: argparse.Namespace) -> int:
    """Try the states, say what they were, and return how many failed: three at most."""
    began, failed, calls = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as tried_in:
        trial = Trial(story, tried_in)
        for failure in failures(story, options.seed, options.samples, range(options.begin, 10**9, options.every)):
            calls = failure.calls
            if time.monotonic() - began > options.seconds or failed >= 3:
                break
            try:
                trial.run(failure)
            except Exception:  # noqa: BLE001 -- told here
                failed += 1
                traceback.print_exc()
                trial.clear()
    print(f"{options.kind}: until {calls} of {len(story.recorder.calls)} calls, {story.kills} kills")
    print(f"{len(trial.distinct)} states, {trial.audited} of them audited, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(main())
