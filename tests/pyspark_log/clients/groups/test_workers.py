"""Programs that share named tasks, as workers of Kafka Connect do: KIP-415's promises."""

import threading
from time import monotonic

import pytest

from pyspark_log import TaskRunner, Worker
from pyspark_log.clients.worker import SharedTasks
from pyspark_log_coordinator.group.machine import AlterGroupConfig
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_storage.errors import InvalidInput, NoCluster
from tests.support.coordinator.members import Processes
from tests.support.pyspark_log.clients.group_programs import GUARD, QUICK

TASKS = ["a", "b", "c", "d"]
LONG_MS = 3_600_000


class Runner(TaskRunner):
    def __init__(self, failures=0, stop_failures=0):
        self.running = set()
        self.calls = []
        self.failures = failures
        self.stop_failures = stop_failures

    @property
    def stops(self):
        return [task for what, tasks in self.calls for task in tasks if what == "stop"]

    def start(self, tasks):
        self.calls.append(("start", tasks))
        if self.failures:
            self.failures -= 1
            raise RuntimeError("it cannot start")
        self.running |= set(tasks)

    def stop(self, tasks):
        self.calls.append(("stop", tasks))
        if self.stop_failures:
            self.stop_failures -= 1
            raise RuntimeError("it cannot stop")
        self.running -= set(tasks)


class Pool:
    """The workers of group `w` of one log."""

    def __init__(self, log):
        self.log = log
        self.tasks = TASKS
        self.running = {}
        log.log.group("w", create=True).submit(AlterGroupConfig(QUICK))

    def start(self, runner=None, **options):
        runner = runner or Runner()
        options = {"heartbeat_interval_ms": 100, "scheduled_rebalance_max_delay_ms": LONG_MS} | options
        worker = Worker(self.log.path, "w", lambda: self.tasks, runner, **options)
        self.running[worker] = runner
        return worker

    def poll(self, until):
        deadline = monotonic() + GUARD
        while not until():
            assert monotonic() < deadline, self.log.log.group("w").journal.state
            for worker, runner in self.running.items():
                assert worker.poll(2) == runner.running

    def shares(self):
        return sorted(sorted(runner.running) for runner in self.running.values())

    def close(self):
        for each in self.running:
            each.close()


@pytest.fixture
def pool(log):
    made = Pool(log)
    yield made
    made.close()


def test_tasks_are_shared_and_only_those_that_move_are_stopped(pool):
    first = pool.start()
    pool.poll(lambda: first.tasks == set(TASKS))
    pool.start()
    pool.poll(lambda: pool.shares() == [["a", "b"], ["c", "d"]])
    assert pool.running[first].calls == [("start", TASKS), ("stop", ["c", "d"])]


def test_a_task_whose_start_fails_is_started_again(pool):
    worker = pool.start(Runner(failures=1))
    with pytest.raises(RuntimeError, match="it cannot start"):
        pool.poll(lambda: worker.tasks)
    assert worker.tasks == frozenset()
    pool.poll(lambda: worker.tasks == set(TASKS))
    assert pool.running[worker].calls == [("start", TASKS)] * 2


def test_a_task_whose_stop_fails_is_started_by_nobody_else(pool):
    leader = pool.start(client_id="a")
    pool.poll(lambda: leader.tasks == set(TASKS))
    stuck = pool.start(Runner(stop_failures=1), client_id="b")
    pool.poll(lambda: pool.shares() == [["a", "b"], ["c", "d"]])
    pool.start(client_id="c")
    with pytest.raises(RuntimeError, match="it cannot stop"):
        pool.poll(lambda: False)
    runner = pool.running.pop(stuck)
    pool.start(client_id="d")

    def is_stable_again():
        group = pool.log.log.group("w").journal.refresh()
        if not group.members[stuck._member.member_id].joined:
            stuck.poll()  # it rejoins, and takes no assignment
        return len(group.members) == 4 and group.state is GroupState.STABLE

    pool.poll(is_stable_again)
    for worker in pool.running:
        worker.poll(200)
    assert not any(other.running & runner.running for other in pool.running.values())
    pool.running[stuck] = runner
    pool.poll(lambda: [len(each) for each in pool.shares()] == [1] * 4)


def test_a_worker_that_is_closed_stops_its_tasks_and_leaves(pool):
    worker = pool.start()
    pool.poll(lambda: worker.tasks)
    runner = pool.running.pop(worker)
    worker.close()
    worker.close()
    assert (worker.tasks, runner.running) == (frozenset(), set())
    assert not pool.log.log.group("w").journal.refresh().members
    with pytest.raises(InvalidInput, match="this Worker is closed"):
        worker.poll()


def test_run_ends_when_another_thread_closes_the_worker(pool):
    worker = pool.start()
    runner = pool.running.pop(worker)
    thread = threading.Thread(target=worker.run)
    thread.start()
    deadline = monotonic() + GUARD
    while not worker.tasks:
        assert monotonic() < deadline
    worker.close()
    thread.join(GUARD)
    assert not thread.is_alive()
    assert runner.calls == [("start", TASKS), ("stop", TASKS)]


def test_what_cannot_be_tasks_is_refused(log, tmp_path):
    for tasks in ("abc", [1], {"a": "new"}, {"a": True}):
        with pytest.raises(InvalidInput, match=r"the tasks are .*; give their names"):
            Worker(log.path, "w", tasks, Runner())
    with Worker(tmp_path / "none", "w", ["a"], Runner()) as worker, pytest.raises(NoCluster, match="there is no log"):
        worker.poll()


def test_a_time_that_cannot_pass_is_refused(pool):
    with pool.start() as worker:
        for timeout_ms in (-1, float("nan")):
            with pytest.raises(InvalidInput, match=f"timeout_ms is {timeout_ms}; give 0 or more"):
                worker.poll(timeout_ms)


def test_a_runner_that_must_not_poll_may_still_close_its_worker(pool):
    class Polling(Runner):
        def start(self, tasks):
            super().start(tasks)
            with pytest.raises(InvalidInput, match="a TaskRunner cannot poll"):
                worker.poll()
            worker.close()

    worker = pool.start(Polling())
    runner = pool.running.pop(worker)
    worker.run()
    assert runner.calls == [("start", TASKS), ("stop", TASKS)]


CONNECTORS = {"A": 1, "A-0": 1, "A-1": 1, "B": 1, "B-0": 1}
DELAY_MS = 120_000
SESSION = 45


class Workers:
    def __init__(self):
        self.world = Processes(delay_ms=1000)
        self.tasks = dict(CONNECTORS)
        self.runners = {}
        self.members = {}

    def start(self, name):
        runner = self.runners[name] = Runner()
        environment = self.world.environment()
        shared = SharedTasks(runner, lambda: self.tasks, environment, DELAY_MS)
        self.members[name] = self.world.start(shared, client_id=name)

    def kill(self, name):
        self.world.kill(self.members.pop(name))

    def running(self):
        return {name: sorted(self.runners[name].running) for name in self.members}


@pytest.fixture
def workers():
    made = Workers()
    for name in ("W1", "W2", "W3"):
        made.start(name)
    made.world.settle()
    return made


def all_of(running):
    return sorted(task for tasks in running.values() for task in tasks)


def test_lost_tasks_wait_for_their_worker_and_go_back_to_it(workers):
    before = workers.running()
    workers.kill("W2")
    workers.world.run(SESSION + 10)
    workers.world.settle()
    assert workers.running() == {name: before[name] for name in ("W1", "W3")}, "they are scheduled, not assigned"
    workers.start("W2")
    workers.world.run(10)
    assert workers.running() == before | {"W2": []}
    workers.world.run(DELAY_MS / 1000)
    assert workers.running() == before
    assert not workers.runners["W1"].stops + workers.runners["W3"].stops, "tasks that keep their worker never stop"


def test_new_tasks_are_started_at_once_and_deleted_ones_stopped(workers):
    workers.tasks["C"] = 2
    del workers.tasks["A-1"]
    workers.world.run(20)
    assert all_of(workers.running()) == sorted(workers.tasks)


def test_a_worker_that_was_suspended_stops_its_tasks_before_it_joins_again(workers):
    suspended = workers.members["W2"]
    had = sorted(workers.runners["W2"].running)
    workers.world.kill(suspended)
    workers.world.run(SESSION + 10)
    workers.world.running.append(suspended)
    workers.world.run(10)
    assert workers.runners["W2"].stops == had
