"""Programs that share named tasks: KIP-415's promises through `Worker`, by processes that poll in turn."""

import threading
from time import monotonic

import pytest

from pyspark_log import TaskRunner, Worker
from pyspark_log_coordinator.group.leaving import ExpireMember
from pyspark_log_coordinator.group.lifecycle import AlterGroupConfig
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_storage.errors import InvalidInput, NoCluster
from tests.support.pyspark_log.clients.group_programs import GUARD, QUICK

TASKS = ["a", "b", "c", "d"]
LONG_MS = 3_600_000


class Runner(TaskRunner):
    def __init__(self, failures=0, stop_failures=0):
        self.running = set()
        self.calls = []
        self.failures = failures
        self.stop_failures = stop_failures

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

    def kill(self, worker):
        """End a worker as the death of its process does, and let its session expire."""
        handle = self.log.log.group("w")
        runner = self.running.pop(worker)
        member_id = worker._member.member_id
        worker._thread.stop()
        handle.submit(ExpireMember(member_id, handle.journal.refresh().members[member_id].acted))
        return runner

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


def test_tasks_of_a_worker_that_is_gone_wait_for_it(pool):
    lasting, dying = pool.start(), pool.start()
    pool.poll(lambda: sorted(map(len, pool.shares())) == [2, 2])
    kept = set(lasting.tasks)
    pool.kill(dying)
    pool.poll(lambda: not pool.log.log.group("w").journal.refresh().members.keys() - {lasting._member.member_id})
    for _ in range(20):
        lasting.poll(5)
    assert lasting.tasks == kept


def test_tasks_of_a_worker_that_does_not_return_go_to_the_others_after_the_delay(pool):
    lasting, dying = (pool.start(scheduled_rebalance_max_delay_ms=1) for _ in range(2))
    pool.poll(lambda: sorted(map(len, pool.shares())) == [2, 2])
    pool.kill(dying)
    pool.poll(lambda: lasting.tasks == set(TASKS))
    assert [what for what, _ in pool.running[lasting].calls].count("stop") <= 1


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


def test_a_runner_may_close_its_worker(pool):
    class Closing(Runner):
        def start(self, tasks):
            super().start(tasks)
            worker.close()

    worker = pool.start(Closing())
    runner = pool.running.pop(worker)
    worker.run()
    assert runner.calls == [("start", TASKS), ("stop", TASKS)]


def test_what_cannot_be_tasks_is_refused(log, tmp_path):
    for tasks in ("abc", [1], {"a": "new"}, {"a": True}):
        with pytest.raises(InvalidInput, match=r"the tasks are .*; give their names"):
            Worker(log.path, "w", tasks, Runner())
    with Worker(tmp_path / "none", "w", ["a"], Runner()) as worker, pytest.raises(NoCluster, match="there is no log"):
        worker.poll()


def test_close_ends_even_if_the_runner_cannot_stop_a_task_in_the_thread_that_polls(pool):
    worker = pool.start(Runner(stop_failures=1))
    runner = pool.running.pop(worker)
    failures = []

    def run():
        try:
            worker.run()
        except RuntimeError as error:
            failures.append(str(error))

    polling = threading.Thread(target=run, daemon=True)
    polling.start()
    deadline = monotonic() + GUARD
    while not worker.tasks:
        assert monotonic() < deadline
    closing = threading.Thread(target=worker.close, daemon=True)
    closing.start()
    polling.join(GUARD)
    closing.join(5)
    assert not closing.is_alive()
    assert (failures, runner.running) == (["it cannot stop"], set()), "the call of close has repeated it"


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
    assert (worker.tasks, runner.running) == (frozenset(), set())


@pytest.mark.parametrize("moment", ["before it polls", "while it leaves"])
def test_run_ends_when_another_thread_closes_the_worker_between_two_polls(pool, moment):
    stopping, stopped = threading.Event(), threading.Event()

    class Slow(Runner):
        def stop(self, tasks):
            stopping.set()
            if moment == "while it leaves":
                stopped.wait(GUARD)
            super().stop(tasks)

    class Closing(threading.Event):
        """Another thread closes the worker when `run` has seen that it is not closed."""

        def is_set(self):
            was_set = super().is_set()
            if not was_set and worker.tasks and not worker._is_polling and threading.current_thread() is main:
                closing.start()
                if moment == "while it leaves":
                    stopping.wait(GUARD)
                else:
                    closing.join(GUARD)
            return was_set

    main = threading.current_thread()
    worker = pool.start(Slow())
    runner = pool.running.pop(worker)
    closing = threading.Thread(target=worker.close)
    while not worker.tasks:
        worker.poll(10)
    worker._closed = Closing()
    worker.run()
    stopped.set()
    closing.join(GUARD)
    assert (worker.tasks, runner.running) == (frozenset(), set())


def test_a_runner_that_stops_a_task_may_close_its_worker(pool):
    class Closing(Runner):
        def stop(self, tasks):
            super().stop(tasks)
            worker.close()

    worker = pool.start(Closing())
    pool.poll(lambda: worker.tasks)
    runner = pool.running.pop(worker)
    worker.close()
    assert runner.calls == [("start", TASKS), ("stop", TASKS)]
