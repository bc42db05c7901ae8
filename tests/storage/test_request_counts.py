"""Counters of the requests to stores."""

import os

import pytest

from pyspark_log_storage.stores import request_counts
from pyspark_log_storage.stores.request_counts import RequestCounts, Requests, all_counts, counts_of


@pytest.fixture(autouse=True)
def none_counted_yet(monkeypatch):
    monkeypatch.setattr(request_counts, "_counts", {})


def test_requests_and_their_bytes_are_counted_by_operation():
    counts = RequestCounts()
    counts.add("put_object", sent=10)
    counts.add("put_object", sent=5)
    counts.add("get_object", received=7)
    assert counts.by_operation() == {"put_object": Requests(2, 15, 0), "get_object": Requests(1, 0, 7)}
    assert counts.total() == Requests(3, 15, 7)
    counts.clear()
    assert counts.total() == Requests()


def test_all_stores_at_one_address_have_the_same_counters():
    assert counts_of("s3://a") is counts_of("s3://a")
    assert counts_of("s3://a") is not counts_of("s3://b")
    assert all_counts().keys() == {"s3://a", "s3://b"}


@pytest.mark.deep
def test_a_forked_process_counts_its_own_requests_also_if_a_lock_was_held():
    counts = counts_of("s3://a")
    counts.add("get_object")
    with counts._lock:
        child = os.fork()
        if child == 0:
            counts.add("get_object")
            os._exit(counts.total().number)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert counts.total().number == 1
