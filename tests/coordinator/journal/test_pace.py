"""The pace of a journal: what a writer concludes from how long its proposals took."""

import pytest

from pyspark_log_coordinator.journal.pace import Pace


@pytest.mark.parametrize(
    ("proposal_seconds", "is_slow", "waits"), [(0.0001, False, False), (0.001, True, False), (0.003, True, True)]
)
def test_a_commit_waits_for_its_store_if_a_request_takes_long(proposal_seconds, is_slow, waits):
    pace = Pace()
    pace.measure(proposal_seconds)
    assert (pace.is_slow, pace.waits_for_store) == (is_slow, waits)


def test_a_store_that_nobody_has_measured_is_neither_slow_nor_waited_for():
    assert not Pace().is_slow
    assert not Pace().waits_for_store


def test_a_busy_processor_does_not_make_a_store_slow():
    pace = Pace()
    for seconds in (0.0001, 0.1, 0.1):
        pace.measure(seconds)
    assert not pace.waits_for_store


def test_a_store_that_became_slow_is_found_to_be_so():
    pace = Pace()
    pace.measure(0.0001)
    for _ in range(200):
        pace.measure(0.006)
    assert pace.waits_for_store
