"""The group's part in a migration of the journals (`journal_generations`)."""

from __future__ import annotations

import msgspec

from pyspark_log_storage.ranges import Count


class MoveGroupJournal(msgspec.Struct, frozen=True):
    """Continue a group's journal in a later generation of journal nodes."""

    journal_generation: int


class GroupJournalMoved(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The group's journal continues in this generation of journal nodes."""

    journal_generation: Count


def decide(journal_generation: int, command: MoveGroupJournal) -> list[GroupJournalMoved]:
    """Return the event that moves a group's journal from `journal_generation`, none if it has moved."""
    later = journal_generation < command.journal_generation
    return [GroupJournalMoved(command.journal_generation)] if later else []
