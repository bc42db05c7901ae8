"""Migration of a journal to other stores: where it continues after the entry that moves it.

The entry that moves a journal is its last one in the old place. In the new place the journal begins with the snapshot
of that entry and the entry itself; the first process that folds the entry writes both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark_log_coordinator.journal.journal_entry import digest
from pyspark_log_coordinator.journal.replay import EntryMissing
from pyspark_log_storage.errors import CorruptObject

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.journal.place import JournalPlace
    from pyspark_log_coordinator.journal.replay import Replay

    Follow: TypeAlias = Callable[[int], JournalPlace]
    """Returns the place of a generation of a journal, or a later one in which the journal is known to have begun."""


def next_place(journal: Replay[Any, Any], follow: Follow) -> JournalPlace:
    """Return the place to which the newest known entry moves the journal, and begin the journal there if necessary.

    A snapshot may lead further than to the next generation. Then return the place of the generation before, in which
    the journal had begun when that entry was decided. Raises `CorruptObject`, `EntryMissing`, `StoreError`.
    """
    generation = journal.generation
    if generation > journal.place.generation + 1:
        return _later(journal, follow(generation - 1))
    place = _later(journal, follow(generation))
    if place.generation == generation:
        _begin_in(journal, place)
    return place


def require_begun(journal: Replay[Any, Any]) -> None:
    """Raise `EntryMissing` if the journal's place has nothing of it although it must have begun there."""
    if journal.number > 0 and journal.generation != journal.place.generation:
        name = journal.entries.name(journal.number + 1)
        raise EntryMissing(name, "the journal has migrated here, but nothing of it exists here; is a disk an old copy?")


def _later(journal: Replay[Any, Any], place: JournalPlace) -> JournalPlace:
    """Return `place`. Raises `CorruptObject` if it is no later one, in which the search would never end."""
    if place.generation <= journal.place.generation:
        raise CorruptObject(
            journal.entries.name(journal.number),
            f"it moves the journal to generation {journal.generation} of the journals' stores, but the newest of the "
            f"cluster is {journal.place.generation}",
        )
    return place


def _begin_in(journal: Replay[Any, Any], place: JournalPlace) -> None:
    """Begin the journal in a place, unless another process has; all of them write the same bytes.

    It has begun when its newest known entry is decided there. Before that its snapshot must be there, on a majority,
    and before that the entry must be durable in the old place, where nobody will look for another one afterwards.
    """
    number, there = journal.number, journal.entries_at(place)

    def has_begun() -> bool:
        return there.read(number) is not None or there.newest_snapshot() > number

    if has_begun():
        return
    journal.entries.confirm(number)
    data = journal.entries.read(number)
    if data is not None and digest(data) == journal.last_hash:
        journal.create_snapshot(journal.objects_at(place))
        there.propose(number, data, shared=True)
    elif not has_begun():
        # Another entry, or none, means that the old place was trimmed, which happens only after the new one has begun.
        raise EntryMissing(journal.entries.name(number), f"it is missing, and the journal has not begun at {place.url}")
