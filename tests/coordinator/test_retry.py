"""Retries: which errors are retried, how often, how long, and with which waits."""

import msgspec
import pytest

from pyspark_log_coordinator.retry import RetryPolicy, retry
from pyspark_log_storage.errors import StoreRefused, StoreUnavailable
from tests.support.coordinator.fake_environment import fake_environment

QUICK = RetryPolicy(retries=5, retry_backoff_ms=0, delivery_timeout_ms=10_000)


def failing(times, error):
    """Return an attempt that fails so often, and the list of its calls."""
    calls = []

    def attempt():
        calls.append(1)
        if len(calls) <= times:
            raise error
        return "done"

    return attempt, calls


UNAVAILABLE = StoreUnavailable("/log", "key", "the store does not answer")


def test_a_retriable_error_is_retried():
    attempt, calls = failing(3, UNAVAILABLE)
    assert retry(fake_environment(), QUICK, attempt) == "done"
    assert len(calls) == 4


def test_the_time_for_retries_is_bounded_and_used_up():
    attempt, calls = failing(10**9, UNAVAILABLE)
    clock = fake_environment()
    with pytest.raises(StoreUnavailable):
        retry(clock, RetryPolicy(), attempt)
    assert clock.monotonic() == 120, "delivery.timeout.ms, by default"
    assert len(calls) >= 120, "at least one call a second"


def test_the_waits_between_attempts_grow_from_retry_backoff_ms_to_a_second():
    waits, clock = [], fake_environment()
    slept = msgspec.structs.replace(clock, sleep=lambda seconds: (waits.append(seconds), clock.sleep(seconds)))
    attempt, _ = failing(6, UNAVAILABLE)
    retry(slept, RetryPolicy(retry_backoff_ms=100), attempt)
    assert waits == [0.2, 0.4, 0.8, 1.0, 1.0, 1.0]


def test_the_first_retriable_error_is_logged_once(caplog):
    attempt, _ = failing(3, UNAVAILABLE)
    retry(fake_environment(), RetryPolicy(), attempt)
    assert [each.getMessage() for each in caplog.records] == ["retrying for up to 120 s: the store does not answer"]


def test_another_error_is_not_retried():
    attempt, calls = failing(1, StoreRefused("/log", "key", "no permission"))
    with pytest.raises(StoreRefused):
        retry(fake_environment(), QUICK, attempt)
    assert len(calls) == 1
