"""The topic's part in a migration of the journals (`journal_generations`)."""

from __future__ import annotations

import msgspec

from pyspark_log_storage.ranges import Count


class MoveTopicJournal(msgspec.Struct, frozen=True):
    """Continue a topic's journal in a later generation."""

    generation: int


class TopicJournalMoved(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The topic's journal continues in this generation."""

    generation: Count


def decide(generation: int, command: MoveTopicJournal) -> list[TopicJournalMoved]:
    """Return the event that moves a topic's journal from `generation`, none if it has moved."""
    return [TopicJournalMoved(command.generation)] if generation < command.generation else []
