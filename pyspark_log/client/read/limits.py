"""The limits of a micro-batch.

`maxOffsetsPerTrigger` is shared out in proportion to each partition's backlog, so a large one does not starve a small
one. `minOffsetsPerTrigger` makes a batch wait until the backlog is that large, or `maxTriggerDelay` has passed. Source:
Spark's KafkaMicroBatchStream (`rateLimit`, `delayBatch`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

K = TypeVar("K")


def share_out(limit: int, begin: Mapping[K, int], until: Mapping[K, int]) -> dict[K, int]:
    """Return where each partition ends if about `limit` rows are taken of `[begin, until)`.

    Each partition with a backlog gets at least one row, so the sum may exceed a very small limit.
    """
    backlog = {key: until[key] - begin[key] for key in until if until[key] > begin[key]}
    total = sum(backlog.values())
    if total <= limit:
        return dict(until)
    ends = {}
    for key, end in until.items():
        share = limit * backlog.get(key, 0) / total
        whole = math.ceil(share) if share < 1 else math.floor(share)
        ends[key] = min(end, begin[key] + whole)
    return ends


def waits(backlog: int, minimum: int, now: float, last_batch: float | None, delay_ms: int) -> bool:
    """Return whether a batch of `backlog` rows should wait for more. Times in seconds of one monotonic clock.

    The first batch of a run (`last_batch` None) does not wait.
    """
    if backlog >= minimum or last_batch is None:
        return False
    return now - last_batch < delay_ms / 1000
