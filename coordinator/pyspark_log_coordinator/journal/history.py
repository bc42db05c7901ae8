"""The history of a journal: its entries and earlier states, read anew while other processes append and trim.

If the first entries were trimmed, the history begins at the oldest snapshot after which the next entry is kept.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyspark_log_coordinator.journal import trimming
from pyspark_log_coordinator.journal.replay import EntryMissing
from pyspark_log_storage.errors import CorruptObject, ObjectMissing, OutOfChain, UnknownVersion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_log_coordinator.journal.journal import Journal
    from pyspark_log_coordinator.journal.replay import Replay
    from pyspark_log_coordinator.journal.snapshot import Snapshot
    from pyspark_log_storage.errors import LogError

S = TypeVar("S")


class Step(NamedTuple):  # not generic: on Python 3.10 a named tuple cannot be
    """An entry of a journal, and the state after it. `time_ms` is by the clock of the process that wrote it."""

    number: int
    events: list[Any]
    state: Any
    time_ms: int
    is_snapshot: bool = False
    """Whether this is the snapshot of the entry, at which the kept entries begin, and not the entry itself."""


def history(
    journal: Journal[S, Any], after: int = 0, until: int | None = None, *, with_base: bool = False
) -> Iterator[Step]:
    """Yield every kept entry after entry `after`, oldest first; `with_base` also what is read before it, if anything.

    Ends with entry `until`, which `journal` knows already, or with the newest that there is.
    If `after` is the newest entry that `journal` knows, the entries after it are all that is read. Otherwise this
    compares each snapshot on the way with the folded state. Raises `CorruptObject`.
    """
    known = journal.copy() if after and journal.number == after else None
    if until is None:
        journal.refresh()
    if known is not None:
        try:
            yield from _fold(known, journal, journal.number)
        except (CorruptObject, ObjectMissing):
            pass  # trimmed, or in another place now; if it is damaged, what follows finds that
        else:
            return
    for step in _steps(journal, after):
        if with_base or (step.number > after and not step.is_snapshot):
            yield step
        if until is not None and step.number >= until:
            return


def state_at(journal: Journal[S, Any], number: int) -> S:
    """Return the state after entry `number`, and leave the journal's own state alone.

    Raises `UnknownVersion` for an entry that was trimmed, or does not exist yet.
    """
    journal.refresh()
    known = _steps(journal, number) if 0 < number <= journal.number else ()
    found = next((step for step in known if step.number >= number), None)
    if found is not None and found.number == number:
        state: S = found.state
        return state
    oldest = next((step.number for step in _steps(journal, 0)), 1) if found is None else found.number
    raise UnknownVersion(number, oldest, journal.number)


def _steps(journal: Journal[S, Any], after: int) -> Iterator[Step]:
    """Yield the newest kept snapshot up to entry `after`, and the entries that follow it, oldest first.

    Entries may be trimmed while they are read, and a suspended process may fill their slots again. So entries are
    yielded together, once their chain has led to the next snapshot, or to the newest entry that `journal` knows.
    """
    begin, told = _first(journal, after), 0
    while True:
        past = journal.begin()
        steps: list[Step] = []
        try:
            if begin > 0:
                past.load(begin)
                steps.append(Step(begin, [], past.state, past.time_ms, is_snapshot=True))
            while told < journal.number:
                number, found = _next_snapshot(past, journal.number)
                steps += _fold(past, journal, number)
                if found is not None:
                    _check_snapshot(past, found)
                yield from (each for each in steps if each.number > told)
                told, steps = past.number, []
        except (CorruptObject, ObjectMissing) as error:
            journal.refresh()
            begin = _begin_again(journal, max(begin, told), error)
        else:
            return


def _fold(past: Replay[S, Any], journal: Journal[S, Any], number: int) -> list[Step]:
    """Return the entries from the one after `past` to entry `number`, up to the newest that `journal` knows.

    Raises `OutOfChain` if the newest is another one than `journal` knows.
    """
    steps: list[Step] = []
    ahead: dict[int, bytes] = {}
    while past.number < number:
        if past.number + 1 not in ahead:
            ahead = past.entries.read_several(past.number + 1, number)
        events = past.take_next(ahead.get(past.number + 1))
        steps.append(Step(past.number, events, past.state, past.time_ms))
    if past.number == journal.number and past.last_hash != journal.last_hash:
        raise OutOfChain(past.entries.name(past.number), "it is not the entry that is known to be the newest")
    return steps


def _next_snapshot(past: Replay[Any, Any], newest: int) -> tuple[int, Snapshot | None]:
    """Return the first snapshot after `past` and its number, or `newest` if there is none up to that entry."""
    for number in sorted(past.objects.snapshots(everywhere=True)):
        if past.number < number <= newest:
            with contextlib.suppress(ObjectMissing):  # trimmed since it was listed, or on a store that is silent now
                return number, past.objects.read(number)
    return newest, None


def _first(journal: Journal[Any, Any], after: int) -> int:
    """Return the newest kept snapshot up to entry `after`, or the oldest one; 0 to begin with the first entry.

    A snapshot after which the next entry is missing was written late by a suspended process, or is back after a power
    failure, or on a store that was unreachable.
    """
    snapshots = [0, *sorted(journal.objects.snapshots(everywhere=True))]
    kept = [each for each in snapshots[:-1] if journal.entries.has(each + 1)] + snapshots[-1:]
    return max([kept[0], *(each for each in kept if each <= after)])


def _begin_again(journal: Journal[Any, Any], tried: int, error: LogError) -> int:
    """Return the snapshot after `tried` at which to continue after `error`. Raises `error` if it means damage.

    Entries that are missing or do not fit before the oldest snapshot that trimming keeps have been trimmed: that was
    interrupted, a suspended process filled a slot or wrote a snapshot late, or some objects are back after a power
    failure. After a trimming that reached only some of several stores, a majority may have no votes for entries before
    any snapshot.
    """
    if not isinstance(error, (EntryMissing, OutOfChain, ObjectMissing)):
        raise error
    snapshots = sorted(journal.objects.snapshots(everywhere=True))
    if journal.place.certain:
        snapshots = snapshots[: max(1, len(snapshots) - trimming.SNAPSHOTS_KEPT + 1)]
    later = next((each for each in snapshots if each > tried), None)
    if later is None:
        raise error
    return later


def _check_snapshot(past: Replay[Any, Any], found: Snapshot) -> None:
    """Raise `CorruptObject` if a snapshot differs from the folded entries."""
    if found.hash != past.last_hash:
        raise CorruptObject(past.objects.name(past.number), "its hash differs from that of the entry")
    if past.state_in(found) != past.state:
        raise CorruptObject(past.objects.name(past.number), "its state differs from that of the entries")
