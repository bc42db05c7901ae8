"""The committed offsets of a group whose consumer is a streaming query: Spark assigns its partitions, not the group.

Spark's checkpoint says what the query has read. After Spark's own commit the query commits the same offsets to its
group, for lag tools and for queries that start there (`startingOffsets=group`). In the other direction a **rewind** of
the group (`pyspark-log groups reset-offsets`) sets where the query continues. Rewinds have numbers, and the query's
offset has the group and the number of the newest rewind that it has followed, so a replay repeats it exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log.reading.source_offset import SourceOffset, TakenRewinds, TopicPartition
from pyspark_log.reading.tracking import Start, committed_start
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit
from pyspark_log_storage import logs
from pyspark_log_storage.errors import LogError, OutcomeUnknown, RewindPending, UnknownGroup

if TYPE_CHECKING:
    from pyspark_log.reading.positions import Subscribed
    from pyspark_log_coordinator.group.state import Group
    from pyspark_log_coordinator.log.group_handle import GroupHandle
    from pyspark_log_coordinator.log.log import Log


ALL = -1
"""A number before that of every rewind, and of offsets that were committed without one."""


class GroupOffsets:
    """A query's group."""

    def __init__(self, group_id: str, *, fail_on_data_loss: bool) -> None:
        self._group_id = group_id
        self._fail_on_data_loss = fail_on_data_loss
        self._committed: SourceOffset | None = None
        """What this object has committed last."""
        self._first_seen: TakenRewinds | None = None
        self._failures = logs.Failures()

    def refresh(self, log: Log, *, required: bool) -> GroupHandle | None:
        """Return the group, refreshed. The group is created if it does not exist.

        If a store does not answer, return None unless the group is required. Raises `InvalidName`, `LogError`.
        """
        try:
            return log.group(self._group_id, create=True, polls=not required)
        except LogError as error:
            if required or not error.retriable:
                raise
            self._note(error)
            return None

    @staticmethod
    def is_named_in(offset: SourceOffset, handle: GroupHandle) -> bool:
        """Return whether an offset says which rewind of the group its query has followed."""
        return offset.group is not None and offset.group.journal_id == handle.journal_id

    def taken(self, handle: GroupHandle, offset: SourceOffset) -> TakenRewinds:
        """Return the rewind that a query that has read up to `offset` has followed.

        A query that was in another group, or in none, follows the rewinds since this object saw the group first.
        """
        if offset.group is not None and self.is_named_in(offset, handle):
            return offset.group
        if self._first_seen is None:
            self._first_seen = TakenRewinds(handle.journal_id, handle.state.rewinds)
        return self._first_seen

    def commit(self, log: Log, offset: SourceOffset) -> None:
        """Commit what Spark has committed. Raises `UnknownMember` if the group has members that share its work.

        A rewind that the query has not followed yet makes the commit pointless: nothing is committed. If a store fails,
        that is logged, and the next call tries again: to commit the same offsets twice does no harm.
        """
        if offset == self._committed:
            return
        offsets = {
            topic.topic_id: {number: Offset(at.offset, at.epoch) for number, at in topic.end.items()}
            for topic in offset.topics.values()
        }
        try:
            handle = log.group(self._group_id, create=True)
            handle.submit(OffsetCommit(offsets, rewinds=self.taken(handle, offset).number))
        except RewindPending:
            return
        except LogError as error:
            if not (error.retriable or isinstance(error, (OutcomeUnknown, UnknownGroup))):
                raise
            self._note(error)
            return
        self._failures.end(None, "offsets are committed to group %(group)r again", group=self._group_id)
        self._committed = offset

    def starts(self, group: Group, now: Subscribed, rewinds: int = ALL) -> dict[TopicPartition, Start]:
        """Return where the subscribed partitions with a committed offset continue, if that is of a later rewind.

        Raises `DataLoss` for offsets outside the log; without `fail_on_data_loss`, takes the nearest.
        """
        found = {}
        for topic, number in now.topic_partitions():
            at = group.rewound(now.handles[topic].topic_id, number, rewinds)
            if at is not None:
                key, fail = (topic, number), self._fail_on_data_loss
                found[key] = committed_start(now.partition(*key), key, at, fail_on_data_loss=fail)
        return found

    def _note(self, error: LogError) -> None:
        message = "committing offsets to group %(group)r failed: %(error)s"
        self._failures.note(None, error, message, group=self._group_id)
