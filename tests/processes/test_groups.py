"""Members of a group that are suspended (SIGSTOP) or killed (SIGKILL)."""

import signal
import time

import pytest

from tests.plain_log import PlainLog
from tests.processes.group_workers import OPTIONS, SESSION_MS, work, work_once
from tests.processes.line_file import LineFile
from tests.pyspark_log.clients.group_programs import Programs

ROWS = 40


@pytest.fixture
def log(folder):
    made = PlainLog(folder / "log")
    made.create("t", 3)
    made.append("t", {number: [b"row"] * ROWS for number in range(3)})
    return made


@pytest.fixture
def programs(log):
    made = Programs(log, **OPTIONS)
    yield made
    made.close()


def committed(programs):
    found = programs.state.offsets.get(programs.log.log.topic("t").topic_id, {})
    return {number: each.offset for number, each in found.items()}


def test_a_consumer_that_was_suspended_past_its_session_cannot_commit_says_why_and_rejoins(
    fork_server, folder, log, programs
):
    has, go = folder / "has", folder / "go"
    worker = fork_server.fork(work_once, log.path, str(has), str(go))
    worker.wait_for(lambda: LineFile(str(has)).lines(), "it has rows")
    worker.signal(signal.SIGSTOP)
    suspended = time.monotonic()
    other = programs.start()
    programs.poll(lambda: len(programs.all_rows()) == 3 * ROWS, commit=True)
    assert time.monotonic() - suspended > SESSION_MS / 1000 - 0.2
    LineFile(str(go)).append("go")
    worker.signal(signal.SIGCONT)
    programs.poll(lambda: len(other.assignment()) < 3 or worker.has_ended())
    programs.poll(worker.has_ended)
    said = worker.result()
    assert said.startswith("UnknownMember: group 'g' has no member 'consumer-")
    assert "its session expired" in said
    assert "gave no sign of life for" in said
    assert f"session.timeout.ms={SESSION_MS}" in said
    assert committed(programs) == dict.fromkeys(range(3), ROWS)


def test_the_partitions_of_a_killed_consumer_go_on_at_the_committed_offsets(fork_server, folder, log, programs):
    done = folder / "done"
    worker = fork_server.fork(work, log.path, str(done))
    worker.wait_for(lambda: len(LineFile(str(done)).lines()) >= ROWS, "it has committed rows")
    worker.kill()
    noted = [tuple(map(int, line.split())) for line in LineFile(str(done)).lines()]
    at = committed(programs)
    programs.start()
    total = sum(ROWS - at.get(number, 0) for number in range(3))
    programs.poll(lambda: len(programs.all_rows()) >= total, commit=True)
    found = programs.all_rows()
    assert len(found) == len(set(found)) == total
    assert all(offset >= at.get(partition, 0) for partition, offset in found)
    assert all(offset < at[partition] for partition, offset in noted)
