"""History: what a journal's kept entries say of the past, read afresh, while others go on and trim.

The first entries may have been trimmed: then it begins at the oldest snapshot after which every entry is kept.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark_log_coordinator.journal import journal as journals
from pyspark_log_coordinator.journal.replay import EntryMissing
from pyspark_log_storage.errors import CorruptObject, ObjectMissing, OutOfChain, UnknownVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_log_coordinator.journal.journal import Journal
    from pyspark_log_coordinator.journal.replay import Replay
    from pyspark_log_storage.errors import LogError

S = TypeVar("S")


def history(journal: Journal[S, Any]) -> Iterator[tuple[int, list[Any], S]]:
    """Yield number, events and the state afterwards of every kept entry, oldest first.

    Each snapshot that is passed is held against the folded state. Raises `CorruptObject`.
    """
    journal.refresh()
    past = journal.begin()
    snapshots = _kept_snapshots(past)
    begin = snapshots[0] if snapshots and _is_trimmed(past, snapshots[0]) else 0
    while past.number < journal.number:
        try:
            if begin > past.number:
                past.load(begin)
                continue
            events = past.take_next()
        except (CorruptObject, ObjectMissing) as error:
            begin = _begin_again(past, begin, error)
            continue
        yield past.number, events, past.state
        with contextlib.suppress(ObjectMissing):  # trimmed likewise
            if past.number in snapshots:
                _check_snapshot(past)


def state_at(journal: Journal[S, Any], number: int) -> S:
    """Return the state as it was after entry `number`, without changing what the journal knows.

    Raises `UnknownVersion` for an entry that has been trimmed, or is not there yet.
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
                past.take_next()
            return past.state
        except (CorruptObject, ObjectMissing) as error:
            # What has been trimmed while it was read is no damage, and another look shows that it is gone.
            if (oldest, *snapshots) == before:
                behind = _behind(past, past.number, error)
                if behind is None and number < min(snapshots, default=0) and _may_be_void(error, snapshots):
                    behind = snapshots[0]
                if behind is None:
                    raise
                raise UnknownVersion(number, behind, journal.number) from error
            before = (oldest, *snapshots)


def _begin_again(past: Replay[Any, Any], tried: int, error: LogError) -> int:
    """Return the snapshot at which to go on where nothing further can be read. Raises `error` where that is damage."""
    if (behind := _behind(past, max(tried, past.number), error)) is not None:
        return behind
    # What was trimmed while this was read is no damage.
    kept = _kept_snapshots(past)
    begin = min(kept, default=0)
    if begin <= max(tried, past.number) or not (_is_trimmed(past, begin) or _may_be_void(error, kept)):
        raise error
    return begin


def _behind(past: Replay[Any, Any], number: int, error: LogError) -> int | None:
    """Return the next snapshot behind `number` where several stores have no more of the entries, None else: damage.

    A trimming that reaches one store and not the next leaves entries of which a majority has nothing any more, or has
    what others put there. Nobody needs them while there is a snapshot behind them.
    """
    if past.place.certain or not isinstance(error, (EntryMissing, OutOfChain, ObjectMissing)):
        return None
    return min((each for each in past.snapshot_numbers(everywhere=True) if each > number), default=None)


def _may_be_void(error: LogError, snapshots: Sequence[int]) -> bool:
    """Return whether one of two entries that do not fit may be of a process that slept, in a slot that was trimmed.

    Nothing is trimmed before there are more snapshots than are kept, and what lies before the oldest of them may go.
    """
    return isinstance(error, OutOfChain) and len(snapshots) >= journals.SNAPSHOTS_KEPT


def _check_snapshot(past: Replay[Any, Any]) -> None:
    """Raise `CorruptObject` where the snapshot of the newest entry of `past` is not what the entries fold into."""
    found = past.read_snapshot(past.number)
    if found.hashes[-1:] != [past.last_hash]:
        raise CorruptObject(past.snapshot_name(past.number), "it is of another history than the entries are")
    if past.state_in(found) != past.state:
        raise CorruptObject(past.snapshot_name(past.number), "it holds another state than the entries give")


def _kept_snapshots(past: Replay[Any, Any]) -> list[int]:
    """Return the numbers of the snapshots after which all entries are kept, ascending.

    Trimming leaves the newest. An older one, after which an entry is missing, was written late by a process that
    slept, or came back after a power failure, or on a store that was away. Several stores say nothing for certain
    but of the newest snapshot: which of the others trimming left is not to be told while one store is silent.
    """
    numbers = sorted(past.snapshot_numbers(everywhere=True))
    left = journals.SNAPSHOTS_KEPT if past.place.certain else 1
    older, newest = numbers[:-left], numbers[-left:]
    if not older:
        return newest
    there = set(past.entries.numbers_below(newest[0]))
    first = newest[0]
    while first - 1 in there:
        first -= 1
    return [number for number in older if number + 1 >= first] + newest


def _is_trimmed(past: Replay[Any, Any], oldest: int) -> bool:
    """Return whether entries before the oldest snapshot's are missing; after a power failure some may be back."""
    return sum(1 for _ in past.entries.numbers_below(oldest)) < oldest - 1
