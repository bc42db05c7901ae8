"""A group as one process sees it: its journal, and how commands are submitted to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.group import machine as group

if TYPE_CHECKING:
    from pyspark_log_coordinator.cluster.groups import GroupRecord
    from pyspark_log_coordinator.journal.journal import Journal, Outcome


class GroupHandle:
    """A group: its name, and its journal."""

    def __init__(self, record: GroupRecord, journal: Journal[group.Group, group.Command]) -> None:
        self.name = record.name
        self.group_id = record.group_id
        self.journal = journal

    def refresh(self) -> group.Group:
        """Return the group's newest state; begin its journal if nobody has."""
        state = self.journal.refresh()
        if state.started:
            return state
        return self.submit(group.StartGroup(self.name, self.group_id, self.journal.place.generation)).state

    def submit(self, command: group.Command) -> Outcome[group.Group]:
        """Carry out a command; see `Journal.submit`."""
        return self.journal.submit(command)
