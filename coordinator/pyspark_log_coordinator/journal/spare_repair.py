"""Repair of a journal: missing or damaged objects are restored from their spares on the same store, and vice versa.

Without a spare they are restored from the other stores of the journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_log_coordinator.journal.trimming import oldest_kept

if TYPE_CHECKING:
    from pyspark_log_coordinator.journal.journal import Journal
    from pyspark_log_coordinator.journal.objects import Damage
    from pyspark_log_storage.objects.spare import SpareFault


def faults(journal: Journal[Any, Any]) -> list[tuple[str, SpareFault]]:
    """Return the missing and damaged objects and spares whose other copy is intact, each with the URL of its store."""
    return journal.objects.faults(oldest_kept(journal), contents=True)


def damage(journal: Journal[Any, Any]) -> list[Damage]:
    """Return the damaged objects that have no intact spare."""
    return journal.objects.damage(oldest_kept(journal))


def repair(journal: Journal[Any, Any], *, contents: bool = False) -> list[str]:
    """Restore missing objects, and damaged ones if `contents` are to be read; return what was restored, for people.

    If entries after the newest snapshot are lost for good, write the known state as a snapshot.
    """
    journal.refresh()
    made = []
    for each in damage(journal) if contents else ():
        if each.is_repairable:
            journal.objects.mend(each)
            made.append(f"{each.url}/{each.key}")
    made += journal.objects.repair(oldest_kept(journal), contents=contents)
    newest = journal.newest_snapshot()
    if journal.place.certain and len(list(journal.entries.numbers_after(newest))) < journal.number - newest:
        journal.create_snapshot()
        made.append(journal.snapshot_name(journal.number))
    return made
