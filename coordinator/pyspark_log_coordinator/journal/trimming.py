"""Trimming: what of a journal on one store is older than a snapshot, in the order in which it goes.

Snapshots first, so that one that is there has all its successors, wherever this is cut short; then entries in
ascending order; then manifests. A manifest is of the entry after its born, and of no other: with that slot it goes.
Each object goes before its spare: of the two the damaged one may be the object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.journal import manifest
from pyspark_log_storage import spare
from pyspark_log_storage.layout import born_of, entries, is_born_name, number_of_newest_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_storage.store import Store


def older(
    store: Store, journal: str, oldest: int, slot_of: Callable[[str], int | None], generation: int = 1
) -> list[str]:
    """Return the keys of what nobody needs who has the snapshot of entry `oldest`, spares too.

    `slot_of` tells whose entry's a file among the entries is, None for a file that is no part of the journal. Entries
    of another generation are left alone.
    """
    kinds = (
        (f"{journal}snapshots/", _snapshot_of),
        (entries(journal, generation), slot_of),
        (manifest.key(journal, ""), _entry_of_manifest),
    )
    doomed = []
    for folder, number_of in kinds:
        objects, spares = spare.listed(store, journal, folder)
        old = []
        for of in objects | spares:
            number = number_of(of.removeprefix(folder))
            if number is not None and number < oldest:
                old.append((number, of))
        for _, of in sorted(old):
            doomed += [of] if of in objects else []
            doomed += [spare.key(journal, of)] if of in spares else []
    return doomed


def _snapshot_of(name: str) -> int | None:
    try:
        return number_of_newest_first(name)
    except ValueError:
        return None


def _entry_of_manifest(name: str) -> int | None:
    return born_of(name) + 1 if is_born_name(name) else None
