"""SIGKILL at random of all who use a compacted topic.

Its newest rows are always those that were acknowledged, a row that is left never changes, whoever reads sees no older
row of a key after a newer one, and no file is left that nothing needs.

PYSPARK_LOG_SOAK_SECONDS says for how long; the numbers are printed (pytest -s).
"""

import os
import random
import signal
import time
from collections import Counter

import pytest

from tests.processes import compaction_workers
from tests.processes.fork_server import Processes
from tests.processes.keyed_topic import KeyedClient
from tests.processes.line_file import LineFile
from tests.processes.steps import PRODUCER

SECONDS = float(os.environ.get("PYSPARK_LOG_SOAK_SECONDS", "3"))
SEED = 20_261_126
KILLS_BETWEEN_CHECKS = 12

pytestmark = [pytest.mark.usefixtures("small_constants"), pytest.mark.timeout(SECONDS * 2 + 300)]


def test_processes_that_write_compact_and_read_are_killed_at_random_and_the_newest_rows_are_always_right(
    fork_server, folder
):
    root, progress, looks, stop = (str(folder / name) for name in ("root", "progress", "looks", "stop"))
    KeyedClient(root).create()
    begin = {
        "writer": lambda server: server.fork(compaction_workers.write, root, PRODUCER, progress, stop),
        "reader": lambda server: server.fork(compaction_workers.look, root, PRODUCER, progress, looks, stop),
        "consumer": lambda server: server.fork(compaction_workers.follow, root, stop),
    }
    for number in range(2):
        begin[f"compactor {number}"] = lambda server: server.fork(compaction_workers.compact, root, stop)
    dice, kills, compacted, deadline = random.Random(SEED), Counter(), 0, time.monotonic() + SECONDS
    while not kills or time.monotonic() < deadline:
        processes = Processes(fork_server, begin)
        for _ in range(KILLS_BETWEEN_CHECKS):
            time.sleep(dice.uniform(0, 0.06))
            victim = dice.choice(list(begin))
            processes.kill(victim)
            kills[victim] += 1
        processes.check()
        for name in dice.sample(list(begin), len(begin)):
            assert processes.workers[name].kill() == -signal.SIGKILL, processes.workers[name].output()
            kills[name] += 1
        client = KeyedClient(root)
        batches = client.check(PRODUCER, len(LineFile(progress).lines()))
        client.clean_up()
        assert client.rubbish() == []
        client.check(PRODUCER, batches)
        compacted = sum(each.compactions for each in client.handle.partitions)
        # What was written, and not acknowledged, is written again.
    seen = len(LineFile(looks).lines())
    print(f"\n{kills.total()} kills, {dict(kills)}; {batches} batches, {compacted} compactions; {seen} reads")
    assert min(batches, compacted, seen) > kills.total() / 10, "they hardly lived"
