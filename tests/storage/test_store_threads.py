"""Calls to stores in threads of their own."""

import threading
import time

from pyspark_log_storage.stores.store_threads import StoreThreads, finish_calls


def test_calls_whose_caller_has_gone_are_waited_for():
    ended = threading.Event()
    threads = StoreThreads("test")
    threads.start("store", lambda: ended.wait(0.1))
    threads.start("store", ended.set)
    del threads
    finish_calls(10)
    assert ended.is_set()


def test_a_store_that_hangs_is_waited_for_no_longer_than_agreed():
    hangs = threading.Event()
    threads = StoreThreads("test")
    threads.start("store", hangs.wait)
    finish_calls(0.01)
    assert threads.next(0) is None
    hangs.set()
    finish_calls(10)
    assert threads.next(0) is not None


def test_a_call_that_comes_after_the_end_is_not_made_and_not_waited_for():
    threads = StoreThreads("ended")
    threads.start("store", lambda: None)
    threads.end()
    for each in threading.enumerate():
        if each.name == "ended store":
            each.join(10)
    threads.start("store", lambda: None)
    began = time.monotonic()
    finish_calls(10)
    assert time.monotonic() - began < 5
    assert threads.next(0).error is None
    assert threads.next(0) is None
