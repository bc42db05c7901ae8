"""Truncation: how much of what a node has on its disk belongs to the log, found out by leader epochs alone.

Within one leader epoch there is one leader, so two copies that have rows of the same epoch at an offset are equal up to
there. A node that returns compares its own leader-epoch-checkpoint with the lineage, which is the topic's, or, where
every journal is gone, that of the folder that the log is rebuilt from. It cuts what is not the same, never by the high
watermark: that it learns a round late, so it would cut rows that were acknowledged and keep some that were not
(KIP-101).

    local     0 from 0, 1 from 10, to 20        lineage   0 from 0, 2 from 15, to 30
    Where does epoch 1 end? There is none; epoch 0, before it, ends at 15. But here epoch 0 ends at 10: cut at 10.

Answering 15 alone would keep rows 10 to 14 of epoch 1 where the log has those of epoch 0: that is KIP-279, by which the
answer names the epoch that it is about. The question is put again where the asker does not know that epoch either.

Readers of a topic need no more than `Partition.end_of_epoch` (KIP-320), for its journal is one, so that its lineage
never has two histories. Followers name the files that they have copied, and a file that was cut is none of the log's.
Source: Kafka's LeaderEpochFileCache.endOffsetFor, AbstractFetcherThread.getOffsetTruncationState.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class EpochEnd(NamedTuple):
    """An answer: the largest leader epoch that is not above the one asked for, and where its rows end."""

    leader_epoch: int
    end: int


def end_of_epoch(epochs: Sequence[tuple[int, int]], log_end: int, asked: int) -> EpochEnd | None:
    """Return where the rows up to leader epoch `asked` end in a log, and of which epoch the last of them are.

    None where all rows of the log are of later epochs (Kafka's UNDEFINED_EPOCH).
    """
    known = [epoch for epoch, _ in epochs if epoch <= asked]
    if not known:
        return None
    end = min((start for epoch, start in epochs if epoch > asked), default=log_end)
    return EpochEnd(known[-1], end)


def divergence(
    local: Sequence[tuple[int, int]], local_end: int, lineage: Sequence[tuple[int, int]], lineage_end: int
) -> int:
    """Return the offset from which on the local rows do not belong to the log: there they are cut.

    `local` and `lineage` are leader epochs with their first offsets, `local_end` and `lineage_end` the ends of the two
    logs. Of rows below the first offset of the lineage, which have expired, nothing can be said: they count as equal.
    """
    end = local_end
    mine = list(local)
    while mine:
        asked = mine[-1][0]
        answer = end_of_epoch(lineage, lineage_end, asked)
        if answer is None:
            # All that the log has is newer than what is here.
            return min(end, lineage[0][1] if lineage else lineage_end)
        if answer.leader_epoch == asked:
            return min(end, answer.end)
        # The log knows no such epoch: what is here of it, and of all others that the answer passes over, goes.
        here = end_of_epoch(mine, end, answer.leader_epoch)
        if here is None:
            return min(end, answer.end, mine[0][1])
        end = min(end, here.end)
        if here.leader_epoch == answer.leader_epoch:
            return min(end, answer.end)
        mine = [(epoch, start) for epoch, start in mine if epoch <= here.leader_epoch]
    return min(end, lineage_end)
