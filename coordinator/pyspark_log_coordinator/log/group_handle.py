"""A group as one process sees it: its journal, and how commands are submitted to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.group import machine as group
from pyspark_log_coordinator.group import offsets
from pyspark_log_coordinator.group.offsets import OffsetCommit, OffsetDelete, ResetOffsets
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_coordinator.journal import trimming
from pyspark_log_storage import logs
from pyspark_log_storage.errors import LogError, UnknownGroup

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_log_coordinator.cluster.cluster_state import GroupRecord
    from pyspark_log_coordinator.group.config import GroupConfig
    from pyspark_log_coordinator.group.offsets import NewOffsets
    from pyspark_log_coordinator.group.state import Group
    from pyspark_log_coordinator.journal.journal import Journal
    from pyspark_log_coordinator.journal.state_machine import Outcome


CLEAN_UP_EVERY_ENTRIES = 64


class GroupHandle:
    """A group: its `group.id`, and its journal."""

    def __init__(self, record: GroupRecord, journal: Journal[Group, group.Command]) -> None:
        self.group_id = record.group_id
        self.journal_id = record.journal_id
        self.journal = journal

    @property
    def state(self) -> Group:
        """The group after the newest entry that this process knows: a value, of which a refresh makes another."""
        return self.journal.state

    @property
    def version(self) -> int:
        """The number of that entry."""
        return self.journal.number

    @property
    def address(self) -> str:
        """Where the group's journal is: the URL of its folder."""
        return f"{self.journal.place.url}/{self.journal.folder}"

    def refresh(self, *, polls: bool = False, seconds: float = 0.0) -> Group:
        """Return the group's newest state, also if it was deleted; begin its journal if nobody has.

        `polls` and `seconds` as for `Journal.refresh`.
        """
        state = self.journal.refresh(polls=polls, seconds=seconds)
        return state if state.started else self._start()

    def alive(self, *, create: bool = False) -> Group:
        """Return the known state. Raise `UnknownGroup` if the group was deleted, unless `create` starts it again."""
        if self.state.state is not GroupState.DEAD:
            return self.state
        if create:
            return self._start()
        raise UnknownGroup(
            self.group_id, f"group {self.group_id!r} was deleted; join it or commit offsets to it to use it again"
        )

    def submit(self, command: group.Command) -> Outcome[Group]:
        """Carry out a command; see `Journal.submit`.

        After a commit that changed something, clean up at every 64th entry. A failure of that is logged and fails
        nothing.
        """
        outcome = self.journal.submit(command)
        is_due = bool(outcome.events) and self.version % CLEAN_UP_EVERY_ENTRIES == 0
        if isinstance(command, OffsetCommit) and is_due:
            try:
                self.clean_up()
            except LogError as error:
                message = "cleaning up the journal of group %(group)r failed: %(error)s"
                logs.warning(message, group=self.group_id, error=error)
        return outcome

    def clean_up(self) -> int:
        """Delete entries and snapshots that no process needs, and return how many objects."""
        return trimming.trim(self.journal)

    def alter_config(self, changes: Mapping[str, str]) -> GroupConfig:
        """Change settings, and return all. Raises `InvalidOption`."""
        return self.submit(group.AlterGroupConfig(dict(changes))).state.config

    def delete_offsets(self, topic_id: str) -> int:
        """Delete the committed offsets of a topic, and return how many there were. Raises `GroupNotEmpty`."""
        before = self.state.offsets.get(topic_id, {})
        self.submit(OffsetDelete({topic_id: tuple(before)}))
        return len(before)

    def reset_offsets(self, new: NewOffsets) -> None:
        """Let the group continue at these offsets, by topic id and partition. Queries follow while they run.

        Raises `GroupNotEmpty` if it has members.
        """
        self.submit(ResetOffsets(new))

    def check_reset(self, new: NewOffsets, now_ms: int) -> None:
        """Raise what `reset_offsets` would raise, and change nothing."""
        offsets.decide(self.state, ResetOffsets(new), now_ms)

    def delete(self) -> None:
        """Delete the group. Raises `GroupNotEmpty`."""
        self.submit(group.DeleteGroup())

    def _start(self) -> Group:
        return self.submit(group.StartGroup(self.group_id)).state
