"""Workers that share tasks, as those of Kafka Connect do: KIP-415's story, by processes that act by themselves."""

import pytest

from pyspark_log.clients.worker import SharedTasks
from tests.support.coordinator.members import Processes

TASKS = {"A": 1, "A-0": 1, "A-1": 1, "B": 1, "B-0": 1}
DELAY_MS = 120_000
SESSION = 45


class Runner:
    def __init__(self):
        self.running = set()
        self.stops = []

    def start(self, tasks):
        self.running |= set(tasks)

    def stop(self, tasks):
        self.running -= set(tasks)
        self.stops += tasks


class Workers:
    def __init__(self):
        self.world = Processes(delay_ms=1000)
        self.tasks = dict(TASKS)
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


def test_tasks_are_shared(workers):
    assert all_of(workers.running()) == sorted(TASKS)
    assert sorted(map(len, workers.running().values())) == [1, 2, 2]


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


def test_lost_tasks_of_a_worker_that_never_returns_go_to_the_others_after_the_delay(workers):
    workers.kill("W2")
    workers.world.run(SESSION + DELAY_MS / 1000 - 10)
    assert len(all_of(workers.running())) < len(TASKS)
    workers.world.run(30)
    assert all_of(workers.running()) == sorted(TASKS)
    assert not workers.runners["W1"].stops + workers.runners["W3"].stops


def test_new_tasks_are_started_at_once_and_deleted_ones_stopped(workers):
    workers.tasks["C"] = 2
    del workers.tasks["A-1"]
    workers.world.run(20)
    assert all_of(workers.running()) == sorted(workers.tasks)


def test_a_new_worker_gets_its_share_when_the_others_have_stopped_it(workers):
    before = workers.running()
    workers.start("W4")
    workers.world.run(30)
    assert sorted(map(len, workers.running().values())) == [1, 1, 1, 2]
    stopped = [task for runner in workers.runners.values() for task in runner.stops]
    assert stopped == workers.running()["W4"]
    assert all(set(workers.running()[name]) <= set(before[name]) for name in before)


def test_a_worker_that_was_suspended_stops_its_tasks_before_it_joins_again(workers):
    suspended = workers.members["W2"]
    had = sorted(workers.runners["W2"].running)
    workers.world.kill(suspended)
    workers.world.run(SESSION + 10)
    workers.world.running.append(suspended)
    workers.world.run(10)
    assert workers.runners["W2"].stops == had
