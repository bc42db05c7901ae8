"""The part of a topic or a group in a migration of the journals (`journal_generations`)."""

from __future__ import annotations

import msgspec

from pyspark_log_storage.stored_fields import Count


class MoveJournal(msgspec.Struct, frozen=True):
    """Continue the journal of a topic or a group in a later generation."""

    generation: int


class JournalMoved(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The journal continues in this generation."""

    generation: Count


def decide(generation: int, command: MoveJournal) -> list[JournalMoved]:
    """Return the event that moves a journal from `generation`, none if it has moved."""
    return [JournalMoved(command.generation)] if generation < command.generation else []
