"""What a consumer does while a store does not answer: it waits, and logs that from time to time."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from pyspark_log_storage import logs

if TYPE_CHECKING:
    from pyspark_log_storage.errors import LogError

BACKOFF_SECONDS = 0.1
"""The pause before the next try (Kafka's default of retry.backoff.ms)."""
WARN_SECONDS = 30.0
"""How often the log has a warning."""


class Outages:
    """The outages that one consumer meets."""

    def __init__(self) -> None:
        self._is_out = False
        self._warned = -float("inf")

    @property
    def pause(self) -> float:
        """How many seconds to wait at least before the next try, 0 unless there is an outage."""
        return BACKOFF_SECONDS if self._is_out else 0.0

    def note(self, error: LogError) -> None:
        """Note that rows cannot be read now. Logs a warning, unless the last one was a moment ago."""
        self._is_out = True
        if monotonic() - self._warned >= WARN_SECONDS:
            self._warned = monotonic()
            logs.warning("a consumer waits, and tries again: %(error)s", error=error)

    def end(self) -> None:
        """Note that the stores answer."""
        self._is_out = False
