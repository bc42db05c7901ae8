"""The history of a journal: its entries and earlier states, read anew while other processes append and trim.

If the first entries were trimmed, the history begins at the oldest snapshot after which every entry is kept.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyspark_log_coordinator.journal import trimming
from pyspark_log_coordinator.journal.replay import EntryMissing
from pyspark_log_storage.errors import CorruptObject, ObjectMissing, OutOfChain, UnknownVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_log_coordinator.journal.journal import Journal
    from pyspark_log_coordinator.journal.replay import Replay
    from pyspark_log_storage.errors import LogError

S = TypeVar("S")


class Step(NamedTuple):  # not generic: on Python 3.10 a named tuple cannot be
    """An entry of a journal, and the state after it. `time_ms` is by the clock of the process that wrote it."""

    number: int
    events: list[Any]
    state: Any
    time_ms: int


def history(journal: Journal[S, Any], after: int = 0) -> Iterator[Step]:
    """Yield every kept entry after entry `after`, oldest first.

    If `after` is the newest entry that `journal` knows, the entries after it are all that is read. Otherwise this
    compares each snapshot on the way with the folded state. Raises `CorruptObject`.
    """
    known = journal.copy() if after and journal.number == after else None
    journal.refresh()
    if known is not None:
        try:
            yield from _continued(known, journal)
        except (CorruptObject, ObjectMissing):
            after = known.number  # trimmed, or in another place now; if it is damaged, what follows finds that
        else:
            return
    past = journal.begin()
    snapshots = _kept_snapshots(past)
    begin = snapshots[0] if snapshots and _is_trimmed(past, snapshots[0]) else 0
    begin = max([begin, *(each for each in snapshots if each <= after)])
    while past.number < journal.number:
        try:
            if begin > past.number:
                past.load(begin)
                continue
            events = _take_next(past, journal)
        except (CorruptObject, ObjectMissing) as error:
            begin = _begin_again(past, begin, error)
            continue
        if past.number > after:
            yield Step(past.number, events, past.state, past.time_ms)
        with contextlib.suppress(ObjectMissing):  # trimmed since it was listed
            if past.number in snapshots:
                _check_snapshot(past)


def state_at(journal: Journal[S, Any], number: int) -> S:
    """Return the state after entry `number`, and leave the journal's own state alone.

    Raises `UnknownVersion` for an entry that was trimmed, or does not exist yet.
    """
    journal.refresh()
    before: tuple[int, ...] = ()
    while True:
        past = journal.begin()
        snapshots = _kept_snapshots(past)
        oldest = snapshots[0] if snapshots and _is_trimmed(past, snapshots[0]) else 1
        if not oldest <= number <= journal.number:
            raise UnknownVersion(number, oldest, journal.number)
        try:
            if (nearest := max((each for each in snapshots if each <= number), default=0)) > 0:
                past.load(nearest)
            while past.number < number:
                _take_next(past, journal)
            return past.state
        except (CorruptObject, ObjectMissing) as error:
            # What was trimmed during the read is no damage: then the next look finds other snapshots.
            if (oldest, *snapshots) == before:
                later = _next_snapshot(past, past.number, error)
                if later is None and number < min(snapshots, default=0) and _may_be_void(error, snapshots):
                    later = snapshots[0]
                if later is None and isinstance(error, (EntryMissing, ObjectMissing)):
                    later = _first_kept_after(number, snapshots)
                if later is None:
                    raise
                raise UnknownVersion(number, later, journal.number) from error
            before = (oldest, *snapshots)


def _continued(past: Replay[S, Any], journal: Journal[S, Any]) -> Iterator[Step]:
    while past.number < journal.number:
        events = _take_next(past, journal)
        yield Step(past.number, events, past.state, past.time_ms)


def _take_next(past: Replay[S, Any], journal: Journal[S, Any]) -> list[Any]:
    """Apply the next entry and return its events. Raise `OutOfChain` if it is not the one that `journal` knows.

    If the entry was trimmed during the read, a suspended process may have filled its slot with a void one.
    """
    events = past.take_next()
    if journal.hash_of(past.number) not in (None, past.last_hash):
        raise OutOfChain(past.entries.name(past.number), "it is void: it was written after the entry was trimmed")
    return events


def _first_kept_after(number: int, snapshots: Sequence[int]) -> int | None:
    """Return the oldest snapshot that trimming keeps if it is after `number`, else None.

    An interrupted trimming may have deleted an older object, and the spare that is left may be damaged.
    """
    kept = snapshots[-trimming.SNAPSHOTS_KEPT :]
    return kept[0] if len(kept) == trimming.SNAPSHOTS_KEPT and number < kept[0] else None


def _begin_again(past: Replay[Any, Any], tried: int, error: LogError) -> int:
    """Return the snapshot at which to continue after `error`. Raises `error` if it means damage."""
    if (later := _next_snapshot(past, max(tried, past.number), error)) is not None:
        return later
    # What was trimmed during the read is no damage.
    kept = _kept_snapshots(past)
    if isinstance(error, (EntryMissing, ObjectMissing)) and _first_kept_after(past.number + 1, kept) is not None:
        return min(each for each in kept if each > max(tried, past.number))
    begin = min(kept, default=0)
    if begin <= max(tried, past.number) or not (_is_trimmed(past, begin) or _may_be_void(error, kept)):
        raise error
    return begin


def _next_snapshot(past: Replay[Any, Any], number: int, error: LogError) -> int | None:
    """Return the next snapshot after `number` if several stores may lack the entries before it, or None: damage.

    After a trimming that reached only some stores, a majority may have no votes for an entry, or void ones. These
    entries are not needed if there is a later snapshot.
    """
    if past.place.certain or not isinstance(error, (EntryMissing, OutOfChain, ObjectMissing)):
        return None
    return min((each for each in past.snapshot_numbers(everywhere=True) if each > number), default=None)


def _may_be_void(error: LogError, snapshots: Sequence[int]) -> bool:
    """Return whether one of two entries that do not fit may be void: written to a trimmed slot by a suspended process.

    Trimming begins once there are enough snapshots, and deletes only what is older than the oldest of them.
    """
    return isinstance(error, OutOfChain) and len(snapshots) >= trimming.SNAPSHOTS_KEPT


def _check_snapshot(past: Replay[Any, Any]) -> None:
    """Raise `CorruptObject` if the snapshot of the newest entry of `past` differs from the folded entries."""
    found = past.read_snapshot(past.number)
    if found.hashes[-1:] != [past.last_hash]:
        raise CorruptObject(past.snapshot_name(past.number), "its hashes differ from those of the entries")
    if past.state_in(found) != past.state:
        raise CorruptObject(past.snapshot_name(past.number), "its state differs from that of the entries")


def _kept_snapshots(past: Replay[Any, Any]) -> list[int]:
    """Return the numbers of the snapshots after which all entries are kept, ascending.

    Trimming keeps the newest. An older snapshot, after which an entry is missing, was written late by a suspended
    process, or is back after a power failure, or on a store that was unreachable. Of several stores only the newest
    snapshot is certain: while a store is silent, it is unknown which of the others trimming kept.
    """
    numbers = sorted(past.snapshot_numbers(everywhere=True))
    left = trimming.SNAPSHOTS_KEPT if past.place.certain else 1
    older, newest = numbers[:-left], numbers[-left:]
    if not older:
        return newest
    existing = set(past.entries.numbers_below(newest[0]))
    first = newest[0]
    while first - 1 in existing:
        first -= 1
    return [number for number in older if number + 1 >= first] + newest


def _is_trimmed(past: Replay[Any, Any], oldest: int) -> bool:
    """Return whether entries before the oldest snapshot are missing. After a power failure some may be back."""
    return sum(1 for _ in past.entries.numbers_below(oldest)) < oldest - 1
