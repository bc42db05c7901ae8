"""A member of a group that is suspended (SIGSTOP)."""

import signal
import time

import pytest

from tests.processes.group_workers import OPTIONS, SESSION_MS, work_once
from tests.processes.line_file import LineFile
from tests.support.plain_log import PlainLog
from tests.support.pyspark_log.clients.group_programs import Programs

ROWS = 40


ALL = dict.fromkeys(range(3), ROWS)


@pytest.fixture
def programs(folder):
    log = PlainLog(folder / "log")
    log.create("t", 3)
    log.append("t", {number: [b"row"] * ROWS for number in range(3)})
    made = Programs(log, **OPTIONS)
    yield made
    made.close()


def committed(programs):
    found = programs.state.offsets.get(programs.log.log.topic("t").topic_id, {})
    return {number: each.offset for number, each in found.items()}


def test_a_consumer_that_was_suspended_past_its_session_cannot_commit_says_why_and_rejoins(
    fork_server, folder, programs
):
    has, go = folder / "has", folder / "go"
    worker = fork_server.fork(work_once, programs.log.path, str(has), str(go))
    worker.wait_for(lambda: LineFile(str(has)).lines(), "it has rows")
    worker.signal(signal.SIGSTOP)
    suspended = time.monotonic()
    other = programs.start()
    programs.poll(lambda: committed(programs) == ALL, commit=True)
    assert set(programs.all_rows()) == {(number, offset) for number in range(3) for offset in range(ROWS)}
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
    assert committed(programs) == ALL
