"""Gaps in a journal: an entry that is missing although a later one exists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_log_coordinator.journal import journal_entry
from pyspark_log_coordinator.journal.replay import EntryMissing

if TYPE_CHECKING:
    from pyspark_log_coordinator.journal.replay import Replay


def has_more(journal: Replay[Any, Any]) -> bool:
    """Return whether there is more to read. Raises `EntryMissing` if the next entry is lost.

    Called once after a journal is opened. From then on the process has read every entry that existed.
    """
    entries, number = journal.entries, journal.number
    later = entries.newest_after(number + 1)
    if later == 0:
        return False
    if number == 0 and _has_only_begun(journal, later):
        return False
    if entries.read(number + 1) is None and entries.newest_snapshot() <= number:
        raise EntryMissing(
            entries.name(number + 1),
            f"it is missing, and entry {later} exists; nothing was read or written without it",
        )
    return True


def _has_only_begun(journal: Replay[Any, Any], newest: int) -> bool:
    """Return whether `newest` is the first entry of a `begin_at` that was interrupted before its snapshot."""
    data = journal.entries.read(newest)
    name = journal.entries.name(newest)
    return data is not None and journal_entry.decode(data, name).previous == journal_entry.NO_HASH
