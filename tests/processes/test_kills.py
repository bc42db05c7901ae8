"""SIGKILL at every step of what keeps a log cheap: nothing is lost, doubled or left behind.

With PYSPARK_LOG_EVERY_KILL a process is killed at each call of the steps that take long, too. How often is printed
(pytest -s).
"""

import os
import shutil
import signal

import pytest

from tests.processes import workers
from tests.processes.line_file import LineFile
from tests.processes.small_topic import seeded
from tests.processes.steps import LATER_MS, NEVER, PRODUCER, STEPS, Writing, kind_of, what_is_left

IS_EVERY_KILL = bool(os.environ.get("PYSPARK_LOG_EVERY_KILL"))

pytestmark = [pytest.mark.usefixtures("small_constants"), pytest.mark.timeout(900)]


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
