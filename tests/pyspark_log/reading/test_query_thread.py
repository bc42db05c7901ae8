"""The thread that keeps a query a member of its group."""

import gc
import threading
import weakref

import pytest

from pyspark_log.reading import query_member
from pyspark_log.reading.query_member import SHORTEST_PAUSE

GUARD = 60


class Actor:
    """Does, at each call, the next thing of a list."""

    def __init__(self, *acts):
        self.left = list(acts)

    def act(self):
        found = self.left.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found


class Waits:
    """An event that notes how long the thread would wait, and lets `meanwhile` happen then."""

    def __init__(self, meanwhile=lambda: None):
        self.all = []
        self._meanwhile = meanwhile

    def clear(self):
        pass

    def wait(self, seconds):
        self.all.append(seconds)
        assert len(self.all) < 10, "the thread does not end"
        self._meanwhile()


def run(actor, waits):
    query_member._run_thread(weakref.ref(actor), waits)


def test_it_acts_again_after_each_pause_until_there_is_nothing_more_to_do():
    actor, waits = Actor(0.5, 0.0, None), Waits()
    run(actor, waits)
    assert waits.all == [0.5, SHORTEST_PAUSE]
    assert actor.left == []


@pytest.mark.parametrize("error", [RuntimeError("a bug"), SystemExit()])
def test_an_error_does_not_end_it(error):
    actor, waits = Actor(error, None), Waits()
    run(actor, waits)
    assert waits.all == [1.0]
    assert actor.left == []


def test_it_ends_with_its_query():
    held = [Actor(0.1, 0.2)]

    def drop():
        held.clear()
        gc.collect()

    waits = Waits(drop)
    query_member._run_thread(weakref.ref(held[0]), waits)
    assert waits.all == [0.1]


def test_it_acts_at_once_when_it_is_woken():
    acted, woken = threading.Event(), threading.Event()

    class Sleeper:
        pauses = iter([GUARD, None])

        def act(self):
            pause = next(self.pauses)
            if pause is None:
                acted.set()
            return pause

    sleeper = Sleeper()
    query_member._start_thread(weakref.ref(sleeper), woken)
    while not acted.wait(0.001):
        woken.set()
