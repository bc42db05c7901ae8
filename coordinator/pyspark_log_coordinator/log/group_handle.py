"""A group as one process sees it: its journal, and how commands are submitted to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.group import machine as group
from pyspark_log_coordinator.group.lifecycle import StartGroup
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_storage.errors import UnknownGroup

if TYPE_CHECKING:
    from pyspark_log_coordinator.cluster.groups import GroupRecord
    from pyspark_log_coordinator.group.state import Group
    from pyspark_log_coordinator.journal.journal import Journal
    from pyspark_log_coordinator.journal.state_machine import Outcome


class GroupHandle:
    """A group: its `group.id`, and its journal."""

    def __init__(self, record: GroupRecord, journal: Journal[Group, group.Command]) -> None:
        self.group_id = record.group_id
        self.journal_id = record.journal_id
        self.journal = journal

    def begin(self) -> Group:
        """Return the group's newest state; begin its journal if nobody has."""
        state = self.journal.refresh()
        return state if state.started else self._start()

    def refresh(self, *, create: bool = False) -> Group:
        """Return the group's newest state. Raise `UnknownGroup` if it was deleted, unless `create` starts it again."""
        state = self.begin()
        if state.state is not GroupState.DEAD:
            return state
        if create:
            return self._start()
        raise UnknownGroup(
            self.group_id, f"group {self.group_id!r} was deleted; join it or commit offsets to it to use it again"
        )

    def look(self, *, create: bool = False) -> Group:
        """Do the same at the least cost, for callers that poll; see `Journal.look`."""
        state = self.journal.look()
        is_there = state.started and state.state is not GroupState.DEAD
        return state if is_there else self.refresh(create=create)

    def submit(self, command: group.Command) -> Outcome[Group]:
        """Carry out a command; see `Journal.submit`."""
        return self.journal.submit(command)

    def _start(self) -> Group:
        return self.submit(StartGroup(self.group_id, journal_generation=self.journal.place.generation)).state
