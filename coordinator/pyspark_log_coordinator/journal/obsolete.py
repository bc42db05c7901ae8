"""Obsolete objects of a journal on one store: those older than a snapshot, in the order in which they are deleted.

Snapshots come first, so that each remaining one still has all later ones, wherever the deletion is interrupted; then
entries in ascending order; then manifests. The entry that may name a manifest is the one after its born: they become
obsolete together. Each object comes before its spare, because the object may be the damaged one of the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.journal import manifest
from pyspark_log_storage.layout import born_of, entries, is_born_name, number_of_newest_first
from pyspark_log_storage.objects import spare

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_storage.stores.store import Store


def obsolete_keys(
    store: Store, journal: str, oldest: int, slot_of: Callable[[str], int | None], generation: int = 1
) -> list[str]:
    """Return the keys of the objects, and spares, that the snapshot of entry `oldest` makes obsolete.

    `slot_of` returns the number of the entry to which a file among the entries belongs, None for a foreign file.
    Entries of other generations are not included.
    """
    kinds = (
        (f"{journal}snapshots/", _snapshot_of),
        (entries(journal, generation), slot_of),
        (manifest.key(journal, ""), _entry_of_manifest),
    )
    keys = []
    for folder, number_of in kinds:
        objects, spares = spare.listed(store, journal, folder)
        old = []
        for of in objects | spares:
            number = number_of(of.removeprefix(folder))
            if number is not None and number < oldest:
                old.append((number, of))
        for _, of in sorted(old):
            keys += [of] if of in objects else []
            keys += [spare.key(journal, of)] if of in spares else []
    return keys


def _snapshot_of(name: str) -> int | None:
    try:
        return number_of_newest_first(name)
    except ValueError:
        return None


def _entry_of_manifest(name: str) -> int | None:
    return born_of(name) + 1 if is_born_name(name) else None
