"""The thread that keeps a process a member of its group."""

import gc
import threading

import pytest

from pyspark_log_coordinator.membership.member_thread import AGAIN_SECONDS, SHORTEST_PAUSE, MemberThread
from pyspark_log_storage.errors import StoreUnavailable

GUARD = 60
AWAY = StoreUnavailable("root", "entry", "it does not answer")


class Owner:
    """Does, at each call, the next thing of a list. The last one stops its thread."""

    def __init__(self, *acts):
        self.left = list(acts)
        self.waits = []
        self.thread = MemberThread(self.work)
        self.thread._woken = Waits(self.waits)

    def work(self):
        found = self.left.pop(0)
        if not self.left:
            self.thread.stop()
        if isinstance(found, BaseException):
            raise found
        return found


class Waits:
    """An event that notes how long the thread would wait, and lets `meanwhile` happen then."""

    def __init__(self, noted):
        self.noted = noted
        self.meanwhile = lambda: None

    def clear(self):
        pass

    def set(self):
        pass

    def wait(self, seconds):
        self.noted.append(seconds)
        assert len(self.noted) < 10, "the thread does not end"
        self.meanwhile()


def test_it_works_again_after_each_pause_until_it_is_stopped():
    owner = Owner(0.5, 0.0, None, 7)
    owner.thread._run()
    assert owner.waits == [0.5, SHORTEST_PAUSE, None]
    assert owner.left == []


@pytest.mark.parametrize("error", [RuntimeError("a bug"), SystemExit(), AWAY])
def test_an_error_does_not_end_it(error, caplog):
    owner = Owner(error, None)
    owner.thread._run()
    assert owner.waits == [AGAIN_SECONDS]
    assert owner.left == []
    failure = "a member of a group could not send a heartbeat"
    ends = [f"{failure}, and tries again: it does not answer", f"this is over: {failure}"]
    assert caplog.messages == (ends if error is AWAY else [failure])


def test_it_ends_with_its_owner():
    held = [Owner(0.1, 0.2, 0.3)]
    thread, waits = held[0].thread, held[0].waits

    def drop():
        held.clear()
        gc.collect()

    thread._woken.meanwhile = drop
    thread._run()
    assert waits == [0.1]


class Sleeper:
    """Has nothing to do until it is woken."""

    def __init__(self):
        self.worked = threading.Semaphore(0)

    def work(self):
        self.worked.release()


def test_it_works_at_once_when_it_is_woken():
    sleeper = Sleeper()
    thread = MemberThread(sleeper.work)
    for _ in range(3):
        thread.wake()
        assert sleeper.worked.acquire(timeout=GUARD)
    thread.stop()
    thread._thread.join(GUARD)
    assert not thread._thread.is_alive()
