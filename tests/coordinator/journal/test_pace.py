"""The pace of a journal: what a writer concludes from how long its proposals took."""

import pytest

from pyspark_log_coordinator.journal.pace import Pace


@pytest.mark.parametrize(("proposal_seconds", "is_slow"), [(0.0001, False), (0.001, True)])
def test_a_store_is_slow_if_a_request_takes_long(proposal_seconds, is_slow):
    pace = Pace()
    pace.measure(proposal_seconds)
    assert pace.is_slow == is_slow


def test_a_store_that_nobody_has_measured_is_not_slow():
    assert not Pace().is_slow


def test_a_busy_processor_does_not_make_a_store_slow():
    pace = Pace()
    for seconds in (0.0001, 0.1, 0.1):
        pace.measure(seconds)
    assert not pace.is_slow


def test_a_store_that_became_slow_is_found_to_be_so():
    pace = Pace()
    pace.measure(0.0001)
    for _ in range(200):
        pace.measure(0.006)
    assert pace.is_slow
