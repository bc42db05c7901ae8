"""Connections to object stores, which the stores of a process share."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pyspark_log_storage.stores.connections import connection

WAIT_SECONDS = 20


def test_a_connection_that_takes_long_to_make_delays_no_other():
    """A program that prints credentials may hang, and what asks a server for them may wait long."""
    goes_on, begun = threading.Event(), threading.Event()

    def slowly():
        begun.set()
        assert goes_on.wait(WAIT_SECONDS)
        return "slow"

    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(connection, "slow store", slowly)
        assert begun.wait(WAIT_SECONDS)
        try:
            other = threads.submit(connection, "other store", lambda: "other")
            assert other.result(WAIT_SECONDS / 4) == "other"
        finally:
            goes_on.set()
        assert slow.result(WAIT_SECONDS) == "slow"


def test_a_connection_is_made_once_and_one_that_cannot_be_at_the_next_need():
    made, together = [], threading.Barrier(8)

    def get(_):
        together.wait(WAIT_SECONDS)
        return connection("store", lambda: made.append(object()) or made[-1])

    with pytest.raises(ZeroDivisionError):
        connection("store", lambda: 1 // 0)
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(get, range(8))) == made * 8
