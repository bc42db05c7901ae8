"""Counters of the requests to stores."""

import os

import pytest

from pyspark_log_storage.stores import request_counts
from pyspark_log_storage.stores.request_counts import counts_of


@pytest.fixture(autouse=True)
def none_counted_yet(monkeypatch):
    monkeypatch.setattr(request_counts, "_counts", {})


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
