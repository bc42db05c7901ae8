"""The environment of a process: clocks, sleep, randomness and threads, passed in so that tests can replace them."""

from __future__ import annotations

import random
import time
import uuid
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_storage.stores.store_threads import StoreThreads

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_storage.stores.store import Store


CLOCKS_AGREE_MS = 60_000
"""By how much two clocks may differ and still both count as right."""


class Environment(msgspec.Struct, frozen=True):
    """The clocks, sleep, randomness and threads of one process."""

    now_ms: Callable[[], int]
    """Return milliseconds since 1970, by the clock of this machine. Decisions use the log's (`log_clock`)."""
    monotonic: Callable[[], float]
    """Return seconds of a clock that never goes back."""
    sleep: Callable[[float], None]
    """Wait for this number of seconds."""
    uniform: Callable[[float, float], float]
    """Return a random number between two bounds."""
    nonce: Callable[[], str]
    """Return 32 hex digits that no other process draws."""
    store_clock: Callable[[Store], int | None] | None = None
    """Return the time of a store's clock (ms), None if it has none; see `log_clock`. None: `now_ms` is always right."""
    store_threads: Callable[[str], StoreThreads] = StoreThreads
    """Return threads for calls to several stores at once, named by their purpose."""


def real_environment() -> Environment:
    """Return the environment of a real process."""
    return Environment(
        now_ms=lambda: time.time_ns() // 1_000_000,
        monotonic=time.monotonic,
        sleep=time.sleep,
        uniform=random.uniform,
        nonce=lambda: uuid.uuid4().hex,
        store_clock=lambda store: store.clock_ms(),
    )
