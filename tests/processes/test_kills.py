"""SIGKILL at every step of what keeps a log cheap, and at random: nothing is lost, doubled or left behind.

With PYSPARK_LOG_EVERY_KILL a process is killed at each call of the steps that take long, too. How often is printed
(pytest -s).
"""

import os
import random
import shutil
import signal
import time

import pytest

from tests.processes import workers
from tests.processes.line_file import LineFile
from tests.processes.small_topic import PARTITIONS, TOPIC, TopicClient, rows_of_all, seeded
from tests.processes.steps import LATER_MS, NEVER, PRODUCER, RETAIN_LITTLE, STEPS, Writing, kind_of, what_is_left
from tests.support.direct import Stream

IS_EVERY_KILL = bool(os.environ.get("PYSPARK_LOG_EVERY_KILL"))
ROUNDS = 100
CLEAN_UP_EVERY = 10
SEED = 20_260_117

pytestmark = pytest.mark.usefixtures("small_constants")


@pytest.mark.parametrize("step", STEPS)
def test_a_process_that_is_killed_at_any_moment_of_a_step_leaves_a_log_that_goes_on(fork_server, folder, step):
    prepared = fork_server.run(workers.prepare, step, str(folder))
    done = {(call, kind_of(path)) for call, path in prepared.calls}
    assert done >= STEPS[step].does, "the step was not due"
    seen, kills = set(), 0
    some = None if IS_EVERY_KILL else STEPS[step].kills
    for at, (call, _) in list(enumerate(prepared.calls))[:: max(1, len(prepared.calls) // (some or NEVER))]:
        for torn in [False, True] if call == "write" else [False]:
            root = folder / f"{at}-{torn}"
            shutil.copytree(prepared.template, root)
            victim = fork_server.fork(workers.die_in, step, str(root), prepared.batches, at, torn)
            assert victim.wait() == -signal.SIGKILL, victim.output()
            kills += 1
            # Many calls change nothing that anybody can see: then what follows is known.
            left = what_is_left(root)
            if left not in seen:
                goes_on(str(root), step, prepared.batches + len(LineFile(f"{root}.progress").lines()))
            seen.add(left)
            shutil.rmtree(root)
    print(f"\n{step}: {kills} kills, which left {len(seen)} different logs")


def goes_on(root: str, step: str, acknowledged: int) -> None:
    """Hold the log of a process that was killed, do again what it was doing, go on, and hold it again."""
    made = STEPS[step].client
    client, writing = (
        made(root, seeded(LATER_MS * 2)),
        Writing(acknowledged, LineFile(f"{root}.progress of another")),
    )
    client.check(PRODUCER, acknowledged)
    client.maintain()
    client.clean_up_topic()
    # The killed one's batch again, which may be in the log, and the next one.
    writing.go_on(client)
    writing.go_on(client)
    STEPS[step].act(client, writing)
    client.clean_up()
    assert client.rubbish() == []
    made(root).check(PRODUCER, writing.next)


def test_processes_that_are_killed_at_random_again_and_again_leave_a_log_that_goes_on(fork_server, folder):
    root, progress, dice = str(folder / "root"), str(folder / "progress"), random.Random(SEED)
    TopicClient(root).create(RETAIN_LITTLE)
    survivor = Stream(root, subscribe=TOPIC, startingOffsets="earliest", failOnDataLoss="false")
    reached = dict.fromkeys(range(PARTITIONS), 0)
    for round_ in range(ROUNDS):
        victims = [
            fork_server.fork(workers.write_for_ever, root, progress),
            fork_server.fork(workers.maintain_for_ever, root),
        ]
        dice.shuffle(victims)
        for victim in victims:
            time.sleep(dice.uniform(0, 0.03))
            assert victim.kill() == -signal.SIGKILL, victim.output()
        client = TopicClient(root)
        batches = client.check(PRODUCER, len(LineFile(progress).lines()))
        read_on(survivor, reached, client, rows_of_all(PRODUCER, batches))
        if round_ % CLEAN_UP_EVERY == 0:
            client.clean_up()
            assert client.rubbish() == []
    assert batches > ROUNDS / 2, "they hardly lived"
    assert all(each.log_start > 0 for each in client.handle.journal.state.partitions)


def read_on(stream: Stream, reached: dict[int, int], client: TopicClient, expected: dict[int, list[bytes]]) -> None:
    """Read what is new, and hold it against what was written: each row once, in order; only what expired may miss."""
    rows = stream.batch() or []
    for row in sorted(rows, key=lambda row: (row["partition"], row["offset"])):
        p, offset = row["partition"], row["offset"]
        assert reached[p] <= offset
        assert row["value"] == expected[p][offset]
        if offset > reached[p]:
            assert offset <= client.handle.journal.state.partitions[p].log_start
        reached[p] = offset + 1
    for p, one in enumerate(client.handle.journal.state.partitions):
        assert reached[p] == one.high_watermark or one.log_start == one.high_watermark
