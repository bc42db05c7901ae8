"""Counters of the requests to stores."""

import os

import pytest

from pyspark_log_storage.stores.request_counts import counts_of


@pytest.mark.deep
def test_a_forked_process_counts_its_own_requests():
    counts_of("s3://counted-in-a-fork").add("get_object")
    child = os.fork()
    if child == 0:
        counts_of("s3://counted-in-a-fork").add("get_object")
        os._exit(counts_of("s3://counted-in-a-fork").total().number)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert counts_of("s3://counted-in-a-fork").total().number == 1
