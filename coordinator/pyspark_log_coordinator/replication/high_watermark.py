"""The high watermark: how far every in-sync replica has the log.

HW = min(LEO of the ISR). It never goes back in a clean history, and does not move while the ISR is
smaller than min.insync.replicas (KIP-966). Offsets are row counts from the partition's start.
With `replication.mode=quorum` a majority of the replicas decides in place of the ISR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def advance(
    log_end_offsets: Mapping[str, int], isr: Sequence[str], current: int, replicas: int, min_insync: int
) -> int:
    """Return the new HW, which is `current` where nothing lets it move.

    `log_end_offsets` is by node, `replicas` the replication factor: a topic of fewer replicas than
    `min_insync` asks for all of them.
    """
    if not isr or len(isr) < min(min_insync, replicas):
        return current
    return max(current, min(log_end_offsets[node] for node in isr))


def advance_by_majority(log_end_offsets: Mapping[str, int], current: int) -> int:
    """Return the new HW of a quorum: of 2f+1 replicas the (f+1)-th highest LEO."""
    highest_first = sorted(log_end_offsets.values(), reverse=True)
    return max(current, highest_first[majority(len(highest_first)) - 1])


def majority(replicas: int) -> int:
    """Return how many of `replicas` are more than half of them."""
    return replicas // 2 + 1
