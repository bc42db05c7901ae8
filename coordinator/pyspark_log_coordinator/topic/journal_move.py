"""The topic's part in a migration of the journals: the entry with which its journal continues in a later generation."""

from __future__ import annotations

import msgspec

from pyspark_log_storage.ranges import Count


class MoveTopicJournal(msgspec.Struct, frozen=True):
    """Let a topic's journal go on in a generation."""

    generation: int


class TopicJournalMoved(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The topic's journal goes on in this generation."""

    generation: Count


def decide_topic(generation: int, command: MoveTopicJournal) -> list[TopicJournalMoved]:
    """Return the event that moves a topic's journal, which is in `generation`; none where it is there."""
    return [TopicJournalMoved(command.generation)] if generation < command.generation else []
