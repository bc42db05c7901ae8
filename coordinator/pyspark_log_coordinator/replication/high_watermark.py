"""The high watermark: the end of the rows that every in-sync replica has.

HW = min(LEO of the ISR). It never moves back except in an unclean election, and does not advance while the ISR is
smaller than min.insync.replicas (KIP-966). Offsets count rows from the start of the partition. With
`replication.mode=quorum` a majority of the replicas takes the place of the ISR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def advance(
    log_end_offsets: Mapping[str, int], isr: Sequence[str], current: int, replicas: int, min_insync: int
) -> int:
    """Return the new HW, or `current` if it cannot advance.

    `replicas` is the replication factor: a topic with fewer replicas than `min_insync` requires all of them.
    """
    if not isr or len(isr) < min(min_insync, replicas):
        return current
    return max(current, min(log_end_offsets[node] for node in isr))


def advance_by_majority(log_end_offsets: Mapping[str, int], current: int) -> int:
    """Return the new HW of a quorum: the (f+1)-th highest LEO of 2f+1 replicas."""
    highest_first = sorted(log_end_offsets.values(), reverse=True)
    return max(current, highest_first[majority(len(highest_first)) - 1])


def majority(replicas: int) -> int:
    """Return the smallest number that is more than half of `replicas`."""
    return replicas // 2 + 1
