"""Real processes on three nodes: killed while they copy, asleep through an election, on disks that go and come back."""

import shutil
import signal
import time
from pathlib import Path

import msgspec
import pytest

from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.errors import BatchMismatch
from tests.history.checker import check
from tests.history.events import read_history
from tests.processes import jepsen_workers, workers
from tests.processes.fork_server import POLL_S
from tests.processes.line_file import LineFile
from tests.processes.nodes import NODES, Nodes
from tests.processes.small_topic import AT_ONCE, TopicClient, error_of, rows_of, rows_of_all
from tests.processes.system_calls import SuspendAt, SuspendPoint

CONFIG = msgspec.structs.replace(AT_ONCE, min_insync_replicas=2, orphan_retention_ms=10**9)
KILLS = 40
WRITERS = ("a", "b")
STEP_S = 0.6

pytestmark = pytest.mark.timeout(300)


def test_a_follower_that_is_killed_at_any_moment_of_copying_leaves_a_node_that_catches_up(fork_server, folder):
    nodes = Nodes(folder, journals=3, config=CONFIG)
    nodes.take_away("2")
    TopicClient(nodes.root).fill("p", range(6))
    nodes.bring_back("2")
    template = folder / "template"
    shutil.copytree(nodes.folder, template)
    calls = fork_server.run(workers.count_calls_of_following, nodes.root, "2")
    written = [path for call, path in calls if call == "write" and "/node-2/" in path]
    assert len(written) >= 6, "there was nothing to copy"
    step = max(1, len(calls) // KILLS)
    for at in range(0, len(calls), step):
        shutil.rmtree(nodes.folder)
        shutil.copytree(template, nodes.folder)
        victim = fork_server.fork(workers.follow_and_die, nodes.root, "2", at, calls[at][0] == "write")
        # Of calls at several stores some may be left out: then it is done before.
        assert victim.wait() in {-signal.SIGKILL, 0, 1}, victim.output()
        report = TopicClient(nodes.root).report()
        assert report.sound, report.findings
        nodes.fill_up("2")
        nodes.check_all_are_equal(*NODES)
        assert TopicClient(nodes.root).rows_there("p") == rows_of_all("p", 6)


A_FILE = "/append/"
AN_ENTRY = "/journal/entries/"
A_COPY = "/node-0/topics/t/{}/append/"
"""A follower's, which an acks=1 writer makes when its batch is in the log."""


@pytest.mark.parametrize("comes_back", [False, True])
@pytest.mark.parametrize(
    ("at", "after"), [(A_FILE, False), (A_FILE, True), (AN_ENTRY, False), (AN_ENTRY, True), (A_COPY, False)]
)
def test_rows_of_a_writer_with_acks_one_that_sleeps_through_an_election_are_there_or_reported_lost(
    fork_server, folder, at, after, comes_back
):
    nodes = Nodes(folder, journals=3, config=CONFIG)
    client = TopicClient(nodes.root)
    client.fill("other", range(3))
    point = str(folder / "point")
    suspend_at = SuspendAt(point, "link", at.format(client.handle.topic_id), after=after)
    suspended = fork_server.fork(workers.write_with_acks_one_suspended, nodes.root, suspend_at, "zombie")
    suspended.wait_for(lambda: SuspendPoint(point).is_suspended, "it is suspended")
    nodes.take_away("1")
    others = TopicClient(nodes.root)
    impatient = RetryPolicy(retry_backoff_ms=20, session_timeout_ms=200)
    others.write("other", 3, impatient)
    assert all(each.leader in {"0", "2"} for each in others.handle.journal.state.partitions)
    if comes_back:
        nodes.bring_back("1")
    SuspendPoint(point).resume()
    while not suspended.has_ended():
        suspended.signal(signal.SIGCONT)
        time.sleep(POLL_S)
    outcome = suspended.result()
    if not comes_back:
        nodes.bring_back("1")
    nodes.fill_up("1")
    TopicClient(nodes.root).write("other", 4, impatient)  # as a new batch of Spark, which looks at the nodes first
    nodes.check_all_are_equal(*NODES)

    final = TopicClient(nodes.root)
    written, wanted = final.rows_there("zombie"), rows_of("zombie", 0)
    producer = final.handle.journal.state.producers.get("zombie")
    lost = 0 if producer is None else producer.rows_lost
    there = sum(map(len, written.values()))
    print(f"\n{at} after={after} back={comes_back}: {outcome[:150]}; {there} rows there, {lost} reported lost")
    assert (lost > 0) == (at == A_COPY)
    if producer is None:
        assert there == 0
        assert outcome != "done"
    else:
        assert there + lost == sum(map(len, wanted.values()))
    assert final.rows_there("other") == rows_of_all("other", 5)
    # The batch again: it is added where it is not there, known where it is, and an error where some of it was lost.
    error = error_of(lambda: final.write("zombie", 0, impatient))
    if lost:
        assert isinstance(error, BatchMismatch), error
        assert final.rows_there("zombie") == written
    else:
        assert error is None
        assert final.rows_there("zombie") == wanted


def test_a_disk_that_goes_and_comes_back_as_an_old_copy_while_all_write_and_read_costs_nothing(fork_server, folder):
    nodes = Nodes(folder, journals=1, config=msgspec.structs.replace(CONFIG, file_delete_delay_ms=5_000))
    stop, end, histories = (str(folder / name) for name in ("stop", "end", "histories"))
    progress = {name: str(folder / name) for name in WRITERS}
    readers = [fork_server.fork(jepsen_workers.read, nodes.root, histories, end) for _ in range(2)]
    writers = [
        fork_server.fork(jepsen_workers.write, nodes.root, name, path, histories, stop)
        for name, path in progress.items()
    ]
    time.sleep(STEP_S)
    restore = nodes.back_up("1")
    time.sleep(STEP_S)
    nodes.take_away("1")
    time.sleep(STEP_S)
    restore()
    time.sleep(STEP_S)
    nodes.fill_up("1")
    time.sleep(STEP_S)
    assert not any(each.has_ended() for each in (*writers, *readers))
    LineFile(stop).append("stop")
    for each in writers:
        each.result()
    LineFile(end).append("end")
    assert [each.result() for each in readers] == [0, 0]

    nodes.fill_up("1")
    nodes.check_all_are_equal(*NODES)
    nodes.take_away("2")  # what node 1 has counts now
    assert check(read_history(Path(histories).iterdir())) == []
    final = TopicClient(nodes.root)
    for name, path in progress.items():
        assert final.rows_there(name) == rows_of_all(name, len(LineFile(path).lines()))
