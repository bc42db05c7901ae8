"""Members of a group that are suspended (SIGSTOP) or killed (SIGKILL)."""

import signal
import time

import pytest

from pyspark_log_coordinator.group.state import GroupState
from tests.processes.group_workers import OPTIONS, SESSION_MS, lead_without_assigning, work, work_once
from tests.processes.line_file import LineFile
from tests.support.plain_log import PlainLog
from tests.support.pyspark_log.clients.group_programs import Programs

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


ALL = dict.fromkeys(range(3), ROWS)


def committed(programs):
    found = programs.state.offsets.get(programs.log.log.topic("t").topic_id, {})
    return {number: each.offset for number, each in found.items()}


def commit_all(programs):
    """Let the programs poll until the group has committed all rows.

    While the machine is busy a session may expire once more, and the rows that its member could not commit are read
    again. So this waits for what is committed.
    """
    programs.poll(lambda: committed(programs) == ALL, commit=True)
    assert set(programs.all_rows()) == {(number, offset) for number in range(3) for offset in range(ROWS)}


def test_a_consumer_that_was_suspended_past_its_session_cannot_commit_says_why_and_rejoins(
    fork_server, folder, log, programs
):
    has, go = folder / "has", folder / "go"
    worker = fork_server.fork(work_once, log.path, str(has), str(go))
    worker.wait_for(lambda: LineFile(str(has)).lines(), "it has rows")
    worker.signal(signal.SIGSTOP)
    suspended = time.monotonic()
    other = programs.start()
    commit_all(programs)
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


def test_if_the_leader_is_killed_before_it_has_assigned_the_work_the_others_share_it_in_a_new_generation(
    fork_server, folder, log, programs
):
    completed = LineFile(str(folder / "completed"))
    leader = fork_server.fork(lead_without_assigning, log.path, str(folder / "completed"), 3)
    leader.wait_for(lambda: programs.state.state is GroupState.STABLE, "it is the group's only member")
    dead = programs.state.leader
    programs.start()
    programs.start()
    programs.poll(completed.lines)
    assert programs.state.state is GroupState.COMPLETING_REBALANCE
    leader.kill()
    generation = int(completed.lines()[0])
    programs.settle(partitions=3)
    assert programs.state.generation > generation
    assert set(programs.state.members) == {each.group_metadata().member_id for each in programs.running}
    assert dead not in programs.state.members
    commit_all(programs)
