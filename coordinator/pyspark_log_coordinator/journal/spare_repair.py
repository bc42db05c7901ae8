"""Mending: an object of a journal that is missing or damaged on a store is made again from its spare, and the reverse.

What trimming removes anyway is left alone: of an old object one of the two may have gone first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_storage import spare

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pyspark_log_storage.spare import Fault
    from pyspark_log_storage.store import Store


def faults(
    store: Store, journal: str, folders: Sequence[str], doomed: Collection[str], *, contents: bool
) -> Iterator[Fault]:
    """Yield what is wrong in these folders of a journal on a store, and can be made again.

    `doomed` is what trimming removes: of that nothing is missing. What is damaged is found only if `contents` are read.
    """
    for folder in folders:
        for fault in spare.faults(store, journal, folder, contents=contents):
            is_doomed = fault.of in doomed or spare.key(journal, fault.of) in doomed
            if not (fault.is_missing and is_doomed):
                yield fault


def mend(store: Store, found: Iterable[Fault]) -> list[str]:
    """Make again what is wrong; return what was made, for people. Raises `StoreError`."""
    made = []
    for fault in found:
        spare.mend(store, fault)
        made.append(f"{store.url}/{fault.key}")
    return made
