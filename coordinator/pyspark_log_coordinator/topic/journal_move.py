"""journal_move."""

from __future__ import annotations

import msgspec

from pyspark_log_storage.ranges import Count


class MoveJournal(msgspec.Struct, frozen=True):
    """Let a topic's journal go on in a generation."""

    generation: int


class JournalMoved(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The topic's journal goes on in this generation."""

    generation: Count


def decide_topic(generation: int, command: MoveJournal) -> list[JournalMoved]:
    """Return the event that moves a topic's journal, which is in `generation`; none where it is there."""
    return [JournalMoved(command.generation)] if generation < command.generation else []
