"""Orphans: files that no entry names, and how they become safe to remove.

Every file's name tells what its writer knew (born). Below the orphan floor nothing is sequenced any more, so a
file born below it that no entry names never will be named: the refusal makes removal safe, no clock does. The
floor trails by `orphan.retention.ms`, which decides only how long rubbish stays: the newest entry is marked, and
becomes the floor when the mark is that old.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.topic_state import FloorMark, Topic
from pyspark_log_storage import layout
from pyspark_log_storage.errors import StaleFile
from pyspark_log_storage.ranges import Count

if TYPE_CHECKING:
    from collections.abc import Iterable


class RaiseOrphanFloor(msgspec.Struct, frozen=True):
    """Raise the floor to the mark if that is old enough, and mark `number`, the newest entry now."""

    number: int


class ConfirmDeletions(msgspec.Struct, frozen=True):
    """The bytes of these released files are gone; `last` is the key of the newest of them."""

    last: str


class OrphanFloorRaised(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """Nothing born below `floor` is sequenced any more."""

    floor: Count


class FloorMarked(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """Entry `number` will be the floor in time."""

    mark: FloorMark


class DeletionsConfirmed(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The first `count` released files are no longer kept in mind."""

    count: Count


Event = OrphanFloorRaised | FloorMarked | DeletionsConfirmed


def decide(topic: Topic, command: RaiseOrphanFloor | ConfirmDeletions, now: int) -> list[Event]:
    """Return the events of a command about orphans, none where it is done already."""
    return decide_floor(topic, command, now) if isinstance(command, RaiseOrphanFloor) else decide_forget(topic, command)


def evolve(topic: Topic, event: Event) -> Topic:
    """Return the topic after `event`."""
    match event:
        case OrphanFloorRaised():
            return msgspec.structs.replace(topic, orphan_floor=event.floor)
        case FloorMarked():
            return msgspec.structs.replace(topic, floor_mark=event.mark)
        case DeletionsConfirmed():
            return msgspec.structs.replace(topic, released=topic.released.drop(event.count))


def decide_floor(topic: Topic, command: RaiseOrphanFloor, now: int) -> list[Event]:
    """Return the new floor and the new mark, nothing where the mark is too young."""
    marked = FloorMarked(FloorMark(command.number, now))
    mark = topic.floor_mark
    if mark is None:
        return [marked]
    if now - mark.at_ms < topic.config.orphan_retention_ms:
        return []
    return [OrphanFloorRaised(mark.number), marked] if mark.number > topic.orphan_floor else [marked]


def decide_forget(topic: Topic, command: ConfirmDeletions) -> list[Event]:
    """Return how many released files go from the state; nothing where another did it."""
    for index, released in enumerate(topic.released):
        if released.key == command.last:
            return [DeletionsConfirmed(index + 1)]
    return []


def check_born(topic: Topic, names: Iterable[str]) -> None:
    """Raise `StaleFile` where a file was born below the floor: its bytes may be gone."""
    for name in names:
        if layout.born_of(name) < topic.orphan_floor:
            raise StaleFile(
                f"topic {topic.name!r}: the file {name} waited longer than orphan.retention.ms to be sequenced, and "
                "may have been removed; write the batch again"
            )
