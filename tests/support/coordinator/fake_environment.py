"""An environment in which time passes only by `sleep`, and every nonce is a number."""

import itertools

import msgspec

from pyspark_log_coordinator.environment import Environment
from pyspark_log_storage.stores.store_threads import StoreThreads

_writers = itertools.count(1)
_BEGIN_MS = 4_000_000_000_000
"""After the times of all rows: a topic refuses those of the future."""


def fake_environment() -> Environment:
    """Return an environment of its own: clocks at a fixed time, and nonces that no other one draws."""
    writer, nonces, milliseconds = next(_writers), itertools.count(1), itertools.count(_BEGIN_MS)
    seconds = 0.0

    def sleep(duration: float) -> None:
        nonlocal seconds
        seconds += duration

    return Environment(
        now_ms=lambda: next(milliseconds),
        monotonic=lambda: seconds,
        sleep=sleep,
        uniform=max,
        nonce=lambda: f"{writer:016x}{next(nonces):016x}",
    )


def with_journal_threads(environment: Environment, threads: StoreThreads) -> Environment:
    """Return an environment in which these threads call the stores of a journal."""
    others = environment.store_threads
    return msgspec.structs.replace(
        environment, store_threads=lambda purpose: threads if purpose == "journal store" else others(purpose)
    )
