"""Limits the rate of copying and scrubbing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_log_coordinator.environment import Environment


class Throttle:
    """Waits after each range of bytes, so that the average rate is at most `bytes_per_second`."""

    def __init__(self, environment: Environment, bytes_per_second: float) -> None:
        assert bytes_per_second > 0
        self._environment = environment
        self._rate = bytes_per_second
        self._free_at = 0.0

    def __call__(self, count: int) -> None:
        """Wait for as long as `count` bytes take at this rate."""
        now = self._environment.monotonic()
        self._free_at = max(self._free_at, now) + count / self._rate
        self._environment.sleep(self._free_at - now)
