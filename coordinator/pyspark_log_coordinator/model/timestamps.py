"""The bounds of timestamps: message.timestamp.after.max.ms and message.timestamp.before.max.ms, as in Kafka.

A row of the future would stay the newest of its partition until then: retention could not delete it, nor what is
behind it. Times of rows are in microseconds since 1970, `now` in milliseconds, by the clock of the log.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from pyspark_log_coordinator.model.settings import LONG_MAX
from pyspark_log_storage.stored_fields import INT64_MAX

if TYPE_CHECKING:
    from pyspark_log_coordinator.model.topic_config import TopicConfig

_US_PER_MS = 1000
_INT64_MIN = -INT64_MAX - 1


def bounds(config: TopicConfig, now: int) -> tuple[int, int]:
    """Return the smallest and the largest timestamp that a topic takes at `now`."""
    before, after = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    lowest = _INT64_MIN if before == LONG_MAX else (now - before) * _US_PER_MS
    return max(_INT64_MIN, lowest), min(INT64_MAX, (now + after) * _US_PER_MS + _US_PER_MS - 1)


def refusal(config: TopicConfig, timestamp: int, now: int) -> str:
    """Return why a topic refuses a row of this timestamp, and what to do; empty if it takes it."""
    lowest, highest = bounds(config, now)
    if lowest <= timestamp <= highest:
        return ""
    if timestamp > highest:
        name, limit, where = "after", config.message_timestamp_after_max_ms, "later"
    else:
        name, limit, where = "before", config.message_timestamp_before_max_ms, "earlier"
    setting = f"message.timestamp.{name}.max.ms"
    return (
        f"the time of a row is {_shown(timestamp)}, and the topic takes none that is more than {limit} ms {where} than "
        f"now ({setting}), which is {_shown(now * _US_PER_MS)}; correct the time, which may be in another unit, or the "
        f"clock of the machine that wrote the row; or raise {setting} of the topic"
    )


def _shown(timestamp: int) -> str:
    """Return a time for people; Python has no year 10000."""
    try:
        shown = dt.datetime.fromtimestamp(timestamp // 1_000_000, dt.timezone.utc)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp // _US_PER_MS} ms after 1970"
    return f"{shown:%Y-%m-%d %H:%M:%S} UTC"
