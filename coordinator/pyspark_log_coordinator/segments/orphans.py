"""Orphans: files that no journal entry names, and the floor below which they are safe to delete.

A file's name tells the newest entry that its writer knew (born). Files born below the orphan floor are no longer
sequenced, so one that no entry names by now will never be named. This refusal makes deletion safe, not a clock. The
newest entry is marked, and becomes the floor when the mark is `orphan.retention.ms` old.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.topic_state import FloorMark, Topic, TopicCommand
from pyspark_log_storage import layout
from pyspark_log_storage.errors import StaleFile
from pyspark_log_storage.stored_fields import Count

if TYPE_CHECKING:
    from collections.abc import Iterable


class RaiseOrphanFloor(TopicCommand, frozen=True):
    """Raise the floor to the mark if that is old enough, and mark `number`, the newest entry."""

    number: int


class ConfirmDeletions(TopicCommand, frozen=True):
    """Confirm that the oldest pending deletions, up to the key `last`, were carried out."""

    last: str


class OrphanFloorRaised(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """Files born below entry `floor` are no longer sequenced."""

    floor: Count


class FloorMarked(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The marked entry becomes the floor when the mark is old enough."""

    mark: FloorMark


class DeletionsConfirmed(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The oldest `count` pending deletions were carried out."""

    count: Count


Event = OrphanFloorRaised | FloorMarked | DeletionsConfirmed


def decide(topic: Topic, command: RaiseOrphanFloor | ConfirmDeletions, now: int) -> list[Event]:
    """Return the events that carry out `command`; none if the mark is too young or the deletions are confirmed."""
    match command:
        case RaiseOrphanFloor():
            return _raise_floor(topic, command.number, now)
        case ConfirmDeletions():
            keys = [each.key for each in topic.pending_deletions]
            return [DeletionsConfirmed(keys.index(command.last) + 1)] if command.last in keys else []


def evolve(topic: Topic, event: Event) -> Topic:
    match event:
        case OrphanFloorRaised():
            known = {name: one for name, one in topic.producers.items() if one.born is None or one.born >= event.floor}
            return msgspec.structs.replace(topic, orphan_floor=event.floor, producers=known)
        case FloorMarked():
            return msgspec.structs.replace(topic, floor_mark=event.mark)
        case DeletionsConfirmed():
            return msgspec.structs.replace(topic, pending_deletions=topic.pending_deletions[event.count :])


def _raise_floor(topic: Topic, newest: int, now: int) -> list[Event]:
    marked = FloorMarked(FloorMark(newest, now))
    mark = topic.floor_mark
    if mark is None or mark.at_ms > now:  # one of the future, which a wrong clock has made, would never be old enough
        return [marked]
    if now - mark.at_ms < topic.config.orphan_retention_ms:
        return []
    return [OrphanFloorRaised(mark.number), marked] if mark.number > topic.orphan_floor else [marked]


def check_born(topic: Topic, names: Iterable[str]) -> None:
    """Raise `StaleFile` if a file was born below the floor, when it may have been deleted, or for a former journal."""
    for name in names:
        if layout.born_of(name) < max(topic.orphan_floor, topic.restored):
            raise StaleFile(
                f"topic {topic.name!r}: file {name} waited longer than orphan.retention.ms to be sequenced and may "
                "have been deleted, or was written before the log began anew; write the batch again"
            )
