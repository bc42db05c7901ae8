"""Cleans up groups: deletes journal entries and snapshots that no process needs, and replaces lost spares.

A process that commits offsets does this from time to time for its group; `pyspark-log maintain` does it for all, and
also deletes the committed offsets of deleted topics, and the heartbeats and join requests of former members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.group.offsets import OffsetDelete
from pyspark_log_coordinator.journal import spare_repair, trimming
from pyspark_log_coordinator.membership.member_objects import Heartbeats, JoinRequests
from pyspark_log_storage import logs
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.group_handle import GroupHandle
    from pyspark_log_coordinator.log.log import Log


CLEAN_UP_EVERY_ENTRIES = 64


def clean_up_groups(log: Log, failed: Callable[[str, LogError], object]) -> int:
    """Clean up after all groups; return the number of objects deleted. `failed` gets each group that fails."""
    count = 0
    for record in log.groups().values():
        handle = log.group_handle(record)
        try:
            _forget_deleted_topics(log, handle)
            count += _clean_up(handle)
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


def clean_up_inline(handle: GroupHandle) -> None:
    """Clean up after a commit, at every 64th entry. A failure is logged and fails nothing."""
    if handle.journal.number % CLEAN_UP_EVERY_ENTRIES:
        return
    try:
        _clean_up(handle)
    except LogError as error:
        logs.warning("cleaning up the journal of group %(group)r failed: %(error)s", group=handle.group_id, error=error)


def _clean_up(handle: GroupHandle) -> int:
    count = trimming.trim(handle.journal)
    spare_repair.repair(handle.journal)
    return count
