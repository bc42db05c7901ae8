"""Repeating a call to a server that may succeed later, with random pauses; and how long a call may take."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

import tenacity

from pyspark_log_storage.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from concurrent.futures import Future

    from pyspark_log_storage.errors import StoreError

RETRY_SECONDS = 14.0
"""After this time no further attempt begins, so that a small call ends within 30 s."""
CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 10.0
"""How long a server may be silent."""
READ_BYTES_MAX = 2**31
"""The largest answer. Whatever is larger is read in pieces."""
_BYTES_PER_SECOND_MIN = 1024 * 1024
_PAUSE_SECONDS = 0.05
_PAUSE_SECONDS_MAX = 4.0
_BUSY_SECONDS = 0.5
"""The least pause after the server asked for fewer requests."""

T = TypeVar("T")


class Again(Exception):
    """An attempt failed, and the next may succeed. `busy` says whether the server asked for fewer requests."""

    def __init__(self, error: StoreError, *, busy: bool) -> None:
        super().__init__()
        self.error = error
        self.busy = busy


def seconds_for(size: int) -> float:
    """Return how long an attempt may take that sends or receives so many bytes."""
    return CONNECT_SECONDS + ANSWER_SECONDS + size / _BYTES_PER_SECOND_MIN


def in_doubt(error: StoreError) -> StoreError:
    """Return the error of a `create` that an earlier attempt may have done: a retriable one, whatever the last says."""
    if error.retriable:
        return error
    message = f"{error.message}; an attempt before this answer may have written {error.key}, so try again"
    return StoreUnavailable(error.url, error.key, message)


async def until_answered(attempt: Callable[[], Awaitable[T]]) -> T:
    """Return what an attempt returns, the first that does not raise `Again`; raises its error after `RETRY_SECONDS`."""
    retrying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(Again),
        stop=tenacity.stop_after_delay(RETRY_SECONDS),
        wait=_pause,
        reraise=True,
    )
    try:
        return await retrying(attempt)
    except Again as failed:
        error = failed.error
    raise error from None


def result_of(future: Future[T]) -> T:
    """Return the answer to a call that was started, and end the call if this thread is interrupted."""
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def pauses(attempts: int) -> Iterator[float]:
    """Yield how long to wait before each of so many attempts: not before the first, then randomly longer each time."""
    for number in range(attempts):
        yield random.uniform(0.5, 1) * _PAUSE_SECONDS * 2 ** (number - 1) if number else 0.0


def _pause(state: tenacity.RetryCallState) -> float:
    """Return how long to wait before the next attempt: random, longer each time and if the server is busy."""
    failed = state.outcome.exception() if state.outcome is not None else None
    least = _BUSY_SECONDS if isinstance(failed, Again) and failed.busy else 0.0
    wait: float = tenacity.wait_random_exponential(multiplier=_PAUSE_SECONDS, max=_PAUSE_SECONDS_MAX)(state)
    return least + wait
