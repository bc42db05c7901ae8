"""Retries: repeats what failed with a retriable error, as Kafka's producer does, until a time-out ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from pyspark_log_coordinator.model import settings
from pyspark_log_storage import logs
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.environment import Environment

T = TypeVar("T")

BACKOFF_SECONDS_MAX = 1.0
"""Kafka's default of retry.backoff.max.ms. A longer retry.backoff.ms takes precedence."""
BACKOFF_SECONDS_MIN = 0.01
"""The least pause, also with retry.backoff.ms=0: without one a client would keep a core and a store busy."""


class RetryPolicy(msgspec.Struct, frozen=True):
    """Kafka's options of these names."""

    retries: int = settings.RETRIES.default
    retry_backoff_ms: int = settings.RETRY_BACKOFF_MS.default
    delivery_timeout_ms: int = settings.DELIVERY_TIMEOUT_MS.default
    session_timeout_ms: int = settings.BROKER_SESSION_TIMEOUT_MS.default
    """How long a node may be unreachable before a writer that waits elects leaders in its place."""

    @property
    def backoff_seconds(self) -> float:
        """The least pause before a retry."""
        return max(self.retry_backoff_ms / 1000, BACKOFF_SECONDS_MIN)


def is_retriable(error: LogError) -> bool:
    """Return whether the same call may succeed later without any action."""
    return error.retriable


def retry(
    environment: Environment,
    policy: RetryPolicy,
    attempt: Callable[[], T],
    *,
    failed: LogError | None = None,
    is_retriable: Callable[[LogError], bool] = is_retriable,
) -> T:
    """Return the result of `attempt`; call it again after a retriable `LogError`, within the bounds of the policy.

    `failed` is the error of a first attempt that the caller made itself. The first retriable error is logged.
    """
    backoff, timeout = policy.backoff_seconds, policy.delivery_timeout_ms / 1000
    deadline = environment.monotonic() + timeout
    attempts = 0
    while True:
        if failed is None:
            try:
                return attempt()
            except LogError as error:
                failed = error
        attempts += 1
        if not is_retriable(failed) or attempts > policy.retries or environment.monotonic() >= deadline:
            raise failed
        if attempts == 1:
            logs.warning("retrying for up to %(seconds).3g s: %(error)s", seconds=timeout, error=failed)
        longest = max(backoff, min(BACKOFF_SECONDS_MAX, backoff * 2 ** min(attempts, 32)))
        environment.sleep(min(environment.uniform(backoff, longest), max(0.0, deadline - environment.monotonic())))
        failed = None
