"""Where journals are stored: on one store, or on several of which a majority decides.

On one store an entry is one object, created once (`single_store`). On several an entry is decided by a majority
(`registers`), and a majority has each snapshot and manifest (`objects`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyspark_log_coordinator.journal import registers, single_store
from pyspark_log_coordinator.journal.objects import MajorityObjects, Objects, OneStoreObjects
from pyspark_log_coordinator.journal.registers import Registers
from pyspark_log_coordinator.journal.single_store import EntryLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.journal.quorum import Members
    from pyspark_log_storage.store import Store


class Entries(Protocol):
    """The slots of a journal. `EntryLog` and `Registers` say what each method does, and raises."""

    def name(self, n: int) -> str: ...
    def keys(self, n: int) -> tuple[str, ...]: ...
    def read(self, n: int) -> bytes | None: ...
    def propose(self, n: int, data: bytes, *, shared: bool = False) -> bytes: ...
    def confirm(self, n: int) -> None: ...
    def leads(self, n: int) -> bool: ...
    def newest_snapshot(self) -> int: ...
    def newest_behind(self, n: int) -> int: ...
    def numbers_below(self, n: int) -> Iterator[int]: ...
    def numbers_after(self, n: int) -> Iterator[int]: ...


class JournalPlace(Protocol):
    """The store or stores of journals."""

    certain: bool
    """Whether every listed object can be read. Of several stores only a few may have it, which is no fault."""
    generation: int
    """The number of the list of stores, from 1. Each migration of the journals begins the next one."""
    stores: Sequence[Store]

    @property
    def url(self) -> str:
        """The address, or addresses, for people."""

    def slot_of(self, name: str) -> int | None:
        """Return the number of the entry to which a file among the entries belongs, or None for a foreign file."""

    def entries(self, journal: str, environment: Environment, patience_ms: int) -> Entries:
        """Return the slots of the journal in the folder `journal`, which ends with "/"."""

    def objects(self, journal: str, environment: Environment, patience_ms: int) -> Objects:
        """Return the snapshots and manifests of the journal in the folder `journal`."""


class OneStore:
    """Journals on one store."""

    certain = True
    generation = 1

    def __init__(self, store: Store) -> None:
        self.stores: Sequence[Store] = (store,)
        self._store = store

    @property
    def url(self) -> str:
        return self._store.url

    def slot_of(self, name: str) -> int | None:
        return single_store.slot_of(name)

    def entries(self, journal: str, environment: Environment, patience_ms: int) -> EntryLog:
        return EntryLog(self._store, journal, environment, patience_ms)

    def objects(self, journal: str, environment: Environment, patience_ms: int) -> OneStoreObjects:
        return OneStoreObjects(self._store, journal)


class SeveralStores:
    """Journals on several stores, any minority of which may be lost."""

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
