"""Trimming: deletion of the entries and snapshots of a journal that are no longer needed.

Everything before an existing snapshot can be deleted. A process that was suspended meanwhile finds a newer snapshot in
place of the entries that it expects (see `journal`).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from pyspark_log_storage.errors import LogMoved

if TYPE_CHECKING:
    from pyspark_log_coordinator.journal.journal import Journal
    from pyspark_log_coordinator.journal.replay import Replay

SNAPSHOTS_KEPT = 4
"""How many snapshots trimming keeps: 256 versions each can still be read."""


def trim(journal: Journal[Any, Any]) -> int:
    """Delete what is older than the oldest of the kept snapshots; return the number of deleted objects."""
    journal.refresh()
    oldest = oldest_kept(journal)
    # Even if no snapshot is obsolete: an earlier trimming may have been interrupted after it deleted the snapshots.
    return journal.objects.delete_before(oldest) if oldest > 0 else 0


def oldest_kept(journal: Replay[Any, Any]) -> int:
    """Return the entry of the oldest snapshot that trimming keeps, or 0 if nothing is trimmed yet."""
    numbers = sorted(journal.objects.snapshots(everywhere=True))
    return numbers[-SNAPSHOTS_KEPT] if len(numbers) >= SNAPSHOTS_KEPT else 0


def delete_history(journal: Journal[Any, Any]) -> int:
    """Delete all but the last entry of a journal that has ended, or moved; return the number of deleted objects.

    The last entry and its snapshot stay forever: they tell a process that was suspended that the journal has ended, and
    that what it writes into older slots is void. A store that the journal has left may be one of the new ones, too, and
    show what has come since: then nothing is deleted.
    """
    with contextlib.suppress(LogMoved):
        journal.refresh()
    if journal.entries.read(journal.number) is None:
        return 0
    journal.create_snapshot()
    return journal.objects.delete_before(journal.number)
