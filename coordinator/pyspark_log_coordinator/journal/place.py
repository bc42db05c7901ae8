"""Where journals are stored: on one store, or on several of which a majority decides.

On one store an entry is one object, created once (`single_store`). On several an entry is decided by a majority
(`registers`), and a majority has each snapshot (`objects`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pyspark_log_coordinator.journal import registers, single_store
from pyspark_log_coordinator.journal.objects import MajorityObjects, OneStoreObjects
from pyspark_log_coordinator.journal.registers import Registers
from pyspark_log_coordinator.journal.single_store import EntryLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.journal.quorum import Members
    from pyspark_log_storage.stores.store import Store


class OneStore:
    """Journals on one store."""

    certain = True
    """Whether every listed object can be read. Of several stores only a few may have it, which is no fault."""
    generation = 1
    """The number of the list of stores, from 1. Each migration of the journals begins the next one."""

    def __init__(self, store: Store) -> None:
        self.stores: Sequence[Store] = (store,)
        self._store = store

    @property
    def url(self) -> str:
        """The address, or addresses, for people."""
        return self._store.url

    def slot_of(self, name: str) -> int | None:
        """Return the number of the entry to which a file among the entries belongs, or None for a foreign file."""
        return single_store.slot_of(name)

    def entries(self, journal: str, environment: Environment, patience_ms: int) -> EntryLog:
        """Return the slots of the journal in the folder `journal`, which ends with "/"."""
        return EntryLog(self._store, journal, environment, patience_ms)

    def objects(self, journal: str, environment: Environment, patience_ms: int) -> OneStoreObjects:
        """Return the snapshots of the journal in the folder `journal`."""
        return OneStoreObjects(self._store, journal)


class SeveralStores:
    """Journals on several stores, any minority of which may be lost. Methods as those of `OneStore`."""

    certain = False

    def __init__(self, members: Members, generation: int = 1) -> None:
        self.members = members
        self.generation = generation
        self.stores: Sequence[Store] = tuple(each.store for each in members.members)

    @property
    def url(self) -> str:
        return self.members.urls

    def slot_of(self, name: str) -> int | None:
        return registers.slot_of(name)

    def entries(self, journal: str, environment: Environment, patience_ms: int) -> Registers:
        return Registers(self.members, journal, environment, patience_ms, self.generation)

    def objects(self, journal: str, environment: Environment, patience_ms: int) -> MajorityObjects:
        return MajorityObjects(self.members, journal, environment, patience_ms, self.generation)


Entries: TypeAlias = EntryLog | Registers
JournalPlace: TypeAlias = OneStore | SeveralStores
