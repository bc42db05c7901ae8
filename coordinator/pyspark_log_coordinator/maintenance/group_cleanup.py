"""Cleans up all groups, for `pyspark-log maintain`.

It does what a process that commits offsets does from time to time for its group (`GroupHandle.clean_up`), and deletes
the committed offsets of deleted topics, and the heartbeats and join requests of former members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.group.offsets import OffsetDelete
from pyspark_log_coordinator.membership.member_objects import Heartbeats, JoinRequests
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.group_handle import GroupHandle
    from pyspark_log_coordinator.log.log import Log


def clean_up_groups(log: Log, failed: Callable[[str, LogError], object]) -> int:
    """Clean up after all groups; return the number of objects deleted. `failed` gets each group that fails."""
    count = 0
    for record in log.groups().values():
        handle = log.group_handle(record)
        try:
            _forget_deleted_topics(log, handle)
            count += handle.clean_up()
            count += Heartbeats(handle, log.environment).delete_left_over(handle.journal.state.members)
            count += JoinRequests(handle, log.environment).delete_void(handle.journal.state.generation)
        except LogError as error:
            failed(record.group_id, error)
    return count


def _forget_deleted_topics(log: Log, handle: GroupHandle) -> None:
    """Delete the committed offsets of topics that were deleted, unless the group has members."""
    state = handle.begin()
    # Read after the group's state: a topic with committed offsets that is not there any more was deleted.
    present = {each.topic_id for each in log.topics().values()}
    gone = {topic_id: tuple(offsets) for topic_id, offsets in state.offsets.items() if topic_id not in present}
    if gone and not state.members:
        handle.submit(OffsetDelete(gone))
