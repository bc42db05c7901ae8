"""What the coordinator takes from outside: time, chance and waiting. Passed in, so tests can be all three."""

from __future__ import annotations

import random
import time
import uuid
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable


class Environment(msgspec.Struct, frozen=True):
    """The clock, the dice and the patience of one process."""

    now_ms: Callable[[], int]
    """Milliseconds since 1970. Written into entries for people to read; decides nothing."""
    monotonic: Callable[[], float]
    """Seconds on a clock that never goes back."""
    sleep: Callable[[float], None]
    """Wait some seconds."""
    uniform: Callable[[float, float], float]
    """A random number between two bounds."""
    nonce: Callable[[], str]
    """32 hex digits that nobody else draws."""


def real_environment() -> Environment:
    """Return the environment of a real process."""
    return Environment(
        now_ms=lambda: time.time_ns() // 1_000_000,
        monotonic=time.monotonic,
        sleep=time.sleep,
        uniform=random.uniform,
        nonce=lambda: uuid.uuid4().hex,
    )
