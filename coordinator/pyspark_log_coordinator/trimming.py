"""Trimming: what of a journal on one store is older than a snapshot, in the order in which it goes.

Spares first. Then snapshots, so that one that is there has all its successors, wherever this is cut short; then entries
in ascending order; then manifests. A manifest is of the entry after its born, and of no other: with that slot it goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator import manifest, snapshot
from pyspark_log_storage import spare
from pyspark_log_storage.layout import born_of, entries, is_born_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_storage.store import Store


def older(
    store: Store, journal: str, oldest: int, slot_of: Callable[[str], int | None], generation: int = 1
) -> list[str]:
    """Return the keys of what nobody needs who has the snapshot of entry `oldest`.

    `slot_of` tells whose entry's a file among the entries is, None for a file that is no part of the journal. Entries
    of another generation are left alone.
    """
    spares = f"{journal}{spare.FOLDER}"
    return [
        *_older(store, spares, oldest, slot_of, generation),
        *_older(store, journal, oldest, slot_of, generation),
    ]


def _older(store: Store, journal: str, oldest: int, slot_of: Callable[[str], int | None], generation: int) -> list[str]:
    doomed = [snapshot.key(journal, each) for each in sorted(snapshot.numbers(store, journal)) if each < oldest]
    folder = entries(journal, generation)
    for key in store.list(folder):
        slot = slot_of(key.removeprefix(folder))
        if slot is not None and slot >= oldest:
            break
        if slot is not None:
            doomed.append(key)
    manifests = manifest.key(journal, "")
    for key in store.list(manifests):
        name = key.removeprefix(manifests)
        if is_born_name(name) and born_of(name) + 1 < oldest:
            doomed.append(key)
    return doomed
