"""Truncation: the part of a node's files that belongs to the log, found by leader epochs alone.

Each leader epoch has one leader, so two copies that have rows of the same epoch at an offset are equal up to there. A
node that comes back compares its own leader-epoch-checkpoint with the lineage: the topic's, or, if every journal is
lost, that of the folder from which the log is rebuilt. It cuts what differs. The high watermark is no measure: a node
learns it a round late, so it would cut acknowledged rows and keep others that were not (KIP-101).

    local     0 from 0, 1 from 10, to 20        lineage   0 from 0, 2 from 15, to 30
    Where does epoch 1 end? The lineage has none; epoch 0, before it, ends at 15. But here it ends at 10: cut at 10.

An answer of 15 alone would keep rows 10 to 14 of epoch 1, where the log has rows of epoch 0. So an answer names its
epoch (KIP-279), and the question is repeated if the local copy does not know that epoch either.

Readers of a topic need only `Partition.end_of_epoch` (KIP-320), because a topic has one journal and so one history.
Source: Kafka's LeaderEpochFileCache.endOffsetFor, AbstractFetcherThread.getOffsetTruncationState.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class EpochEnd(NamedTuple):
    """The largest leader epoch that is not above the one asked for, and the end of its rows."""

    leader_epoch: int
    end: int


def end_of_epoch(epochs: Sequence[tuple[int, int]], log_end: int, asked: int) -> EpochEnd | None:
    """Return the end of a log's rows of leader epochs up to `asked`, with the last of these epochs.

    Return None if all rows of the log are of later epochs (Kafka's UNDEFINED_EPOCH).
    """
    known = [epoch for epoch, _ in epochs if epoch <= asked]
    if not known:
        return None
    end = min((start for epoch, start in epochs if epoch > asked), default=log_end)
    return EpochEnd(known[-1], end)


def divergence(
    local: Sequence[tuple[int, int]], local_end: int, lineage: Sequence[tuple[int, int]], lineage_end: int
) -> int:
    """Return the offset from which on the local rows do not belong to the log.

    `local` and `lineage` are leader epochs with their first offsets, `local_end` and `lineage_end` the ends of the two
    logs. Rows below the first offset of the lineage have expired there, and count as equal.
    """
    end = local_end
    mine = list(local)
    while mine:
        asked = mine[-1][0]
        answer = end_of_epoch(lineage, lineage_end, asked)
        if answer is None:
            # All rows of the log are newer than the local ones.
            return min(end, lineage[0][1] if lineage else lineage_end)
        if answer.leader_epoch == asked:
            return min(end, answer.end)
        # The log does not have this epoch: cut its local rows, and those of all others above the answer's epoch.
        here = end_of_epoch(mine, end, answer.leader_epoch)
        if here is None:
            return min(end, answer.end, mine[0][1])
        end = min(end, here.end)
        if here.leader_epoch == answer.leader_epoch:
            return min(end, answer.end)
        mine = [(epoch, start) for epoch, start in mine if epoch <= here.leader_epoch]
    return min(end, lineage_end)
