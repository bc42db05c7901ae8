"""Where journals live: on one store, or on several of which a majority decides.

    OneStore        an entry is one object, created once (`entry_log`)
    SeveralStores   an entry is agreed upon (`registers`); snapshots and manifests are on a majority

A journal takes a place in place of a store, and asks it for its entries, and for its other objects: snapshots and
manifests, which are created once, with the same bytes by whoever creates them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from pyspark_log_coordinator.journal import manifest, registers, single_store, snapshot, spare_repair, trimming
from pyspark_log_coordinator.journal.registers import Registers
from pyspark_log_coordinator.journal.single_store import EntryLog
from pyspark_log_storage import layout, spare
from pyspark_log_storage.errors import CorruptObject, LogError, NodeMissing, ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.journal.quorum import Members
    from pyspark_log_coordinator.journal.store_threads import Answer
    from pyspark_log_storage.spare import Fault
    from pyspark_log_storage.store import Store

T = TypeVar("T")


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


class Objects(Protocol):
    """The snapshots and manifests of a journal."""

    def name(self, key: str) -> str:
        """Return what errors call an object."""

    def create(self, key: str, data: bytes, check: Callable[[bytes, str], object]) -> None:
        """Make an object durable. `check` raises where other bytes under the same key are not as good."""

    def read(self, key: str, decode: Callable[[bytes, str], T]) -> T:
        """Return what `decode` makes of the bytes of an object and of its name; it raises where they are damaged.

        Raises `ObjectMissing`, what `decode` raises, `StoreError`.
        """

    def snapshots(self, *, everywhere: bool = False) -> Iterator[int]:
        """Yield the numbers of the snapshots, newest first.

        Of several stores a majority is asked, which suffices for all that entries were trimmed by; `everywhere` means
        all stores that answer within a second.
        """

    def faults(self, oldest: int, *, contents: bool) -> list[tuple[str, Fault]]:
        """Return what is wrong and can be made again from its spare, with the address of its store; see `mending`.

        Stores that do not answer are passed over, if there are several.
        """

    def mend(self, oldest: int, *, contents: bool) -> list[str]:
        """Make again what `faults` finds; return what was made, for people."""

    def remove_before(self, oldest: int, check: Callable[[bytes, str], object]) -> int:
        """Remove what is older than a snapshot that is there, entries too; return how many objects went.

        `check` raises where the bytes of that snapshot are damaged.
        """


class JournalPlace(Protocol):
    """Where journals live."""

    certain: bool
    """Whether what is listed can be read. On several stores it may be on a few of them only, and nothing be wrong."""
    generation: int
    """Which list of stores it is, from 1: each move of the journals to other stores begins the next."""
    stores: Sequence[Store]

    @property
    def url(self) -> str:
        """The address, or addresses, for people."""

    def slot_of(self, name: str) -> int | None:
        """Return whose entry's a file among the entries is, None for a file that is no part of the journal."""

    def entries(self, journal: str, environment: Environment, patience_ms: int) -> Entries:
        """Return the slots of the journal in the folder `journal`, which ends with "/"."""

    def objects(self, journal: str, environment: Environment, patience_ms: int) -> Objects:
        """Return the other objects of the journal in the folder `journal`."""


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


class OneStoreObjects:
    """The snapshots and manifests of a journal on one store."""

    def __init__(self, store: Store, journal: str) -> None:
        self._store = store
        self._journal = journal

    def name(self, key: str) -> str:
        return _name(self._journal, self._store.url, key)

    def create(self, key: str, data: bytes, check: Callable[[bytes, str], object]) -> None:
        if self._store.create(key, data):
            spare.add(self._store, self._journal, key, data)

    def read(self, key: str, decode: Callable[[bytes, str], T]) -> T:
        return spare.decoded(self._store, self._journal, key, lambda data: decode(data, self.name(key)))

    def snapshots(self, *, everywhere: bool = False) -> Iterator[int]:
        folders = self._journal, f"{self._journal}{spare.FOLDER}"
        yield from sorted({each for folder in folders for each in snapshot.numbers(self._store, folder)}, reverse=True)

    def faults(self, oldest: int, *, contents: bool) -> list[tuple[str, Fault]]:
        return [(self._store.url, fault) for fault in self._faults(oldest, contents=contents)]

    def mend(self, oldest: int, *, contents: bool) -> list[str]:
        return spare_repair.mend(self._store, self._faults(oldest, contents=contents))

    def _faults(self, oldest: int, *, contents: bool) -> Iterator[Fault]:
        folders = [f"{self._journal}{each}/" for each in ("entries", "snapshots", "manifests")]
        doomed = set(trimming.older(self._store, self._journal, oldest, single_store.slot_of))
        return spare_repair.faults(self._store, self._journal, folders, doomed, contents=contents)

    def remove_before(self, oldest: int, check: Callable[[bytes, str], object]) -> int:
        doomed = trimming.older(self._store, self._journal, oldest, single_store.slot_of)
        for key in doomed:
            self._store.delete(key)
        return len(doomed)


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


class MajorityObjects:
    """The snapshots and manifests of a journal on several stores: created on a majority, read from any.

    What is found on fewer was begun by somebody who was stopped, or is on a store that was away. It is right all the
    same: a snapshot is what decided entries fold into, and the entry that names a manifest has its hash. But only
    what a majority has can stand in for what is removed.
    """

    def __init__(
        self, members: Members, journal: str, environment: Environment, patience_ms: int, generation: int = 1
    ) -> None:
        self._members = members
        self._generation = generation
        self._journal = journal
        self._environment = environment
        self._patience_ms = patience_ms

    def name(self, key: str) -> str:
        return _name(self._journal, self._members.urls, key)

    def create(self, key: str, data: bytes, check: Callable[[bytes, str], object]) -> None:
        def create_in(store: Store) -> None:
            if not store.create(key, data) and (found := store.read(key)) != data:
                check(found, _name(self._journal, store.url, key))

        answers = self._ask(create_in, enough=self._members.is_majority)
        if not self._members.is_majority(answers):
            raise self._members.failure(f"{key} cannot be written", answers)

    def read(self, key: str, decode: Callable[[bytes, str], T]) -> T:
        def read_in(store: Store) -> T:
            return decode(store.read(key), _name(self._journal, store.url, key))

        answers = self._ask(read_in, enough=_has_result, settled=self._is_hopeless)
        for each in answers:
            if each.error is None:
                found: T = each.result
                return found
        if self._is_hopeless(answers):
            errors = [each.error for each in answers]
            # What a majority does not have is gone, or never was; else one that is damaged tells more.
            is_gone = sum(isinstance(error, ObjectMissing) for error in errors) >= self._members.majority
            worst = ObjectMissing if is_gone else CorruptObject
            for error in errors:
                if isinstance(error, worst):
                    raise error
        raise self._members.failure(f"{self.name(key)} cannot be read", answers, must=1)

    def snapshots(self, *, everywhere: bool = False) -> Iterator[int]:
        answers = self._ask(
            lambda store: tuple(snapshot.numbers(store, self._journal)),
            enough=None if everywhere else self._members.is_majority,
            settled=self._members.is_majority,
        )
        if not self._members.is_majority(answers):
            raise self._members.failure(f"the snapshots in {self._journal} cannot be listed", answers)
        yield from sorted({number for each in answers if each.error is None for number in each.result}, reverse=True)

    def faults(self, oldest: int, *, contents: bool) -> list[tuple[str, Fault]]:
        def faults_in(store: Store) -> list[tuple[str, Fault]]:
            return [(store.url, fault) for fault in self._faults(store, oldest, contents=contents)]

        answers = self._ask(faults_in, settled=self._members.is_majority)
        return [each for answer in answers if answer.error is None for each in answer.result]

    def mend(self, oldest: int, *, contents: bool) -> list[str]:
        answers = self._ask(
            lambda store: spare_repair.mend(store, self._faults(store, oldest, contents=contents)),
            settled=self._members.is_majority,
        )
        return [each for answer in answers if answer.error is None for each in answer.result]

    def _faults(self, store: Store, oldest: int, *, contents: bool) -> Iterator[Fault]:
        """Yield what is wrong with a store's registers. Of snapshots and manifests other stores have copies."""
        folders = [layout.entries(self._journal, self._generation)]
        doomed = set(trimming.older(store, self._journal, oldest, registers.slot_of, self._generation))
        return spare_repair.faults(store, self._journal, folders, doomed, contents=contents)

    def remove_before(self, oldest: int, check: Callable[[bytes, str], object]) -> int:
        """See `Objects`. A store that is away, or has not got the snapshot, keeps what it has until the next time.

        So each store that lets go of something has a newer snapshot to show, and its newest one never gets older.
        """
        key = snapshot.key(self._journal, oldest)

        def doomed_in(store: Store) -> list[str]:
            return trimming.older(store, self._journal, oldest, registers.slot_of, self._generation)

        # Mostly nothing is left to do, and then the snapshot need not be made sure of.
        found = self._ask(doomed_in, settled=self._members.is_majority)
        if self._members.is_majority(found) and not any(each.result for each in found if each.error is None):
            return 0

        def checked(data: bytes, name: str) -> bytes:
            check(data, name)
            return data

        try:
            data = self.read(key, checked)
        except ObjectMissing:
            return 0  # only a store had it that has gone away since
        self.create(key, data, check)

        def remove_in(store: Store) -> int:
            if next(snapshot.numbers(store, self._journal), 0) < oldest:
                return 0
            doomed = doomed_in(store)
            for each in doomed:
                store.delete(each)
            return len(doomed)

        answers = self._ask(remove_in, settled=self._members.is_majority)
        if not self._members.is_majority(answers):
            raise self._members.failure(f"the journal in {self._journal} cannot be trimmed", answers)
        return sum(each.result for each in answers if each.error is None)

    def _ask(
        self,
        act: Callable[[Store], object],
        enough: Callable[[Sequence[Answer]], bool] | None = None,
        settled: Callable[[Sequence[Answer]], bool] | None = None,
    ) -> list[Answer]:
        return self._members.ask(act, self._environment, self._patience_ms, enough=enough, settled=settled)

    def _is_hopeless(self, answers: Sequence[Answer]) -> bool:
        """Return whether a majority has answered that it cannot give the object, however long one asks."""
        errors = (each.error for each in answers)
        told = (error for error in errors if isinstance(error, LogError) and not _may_answer(error))
        return sum(1 for _ in told) >= self._members.majority


def _may_answer(error: LogError) -> bool:
    """Return whether a store may give another answer within moments. One that is not mounted will not."""
    return error.retriable and not isinstance(error, NodeMissing)


def _has_result(answers: Sequence[Answer]) -> bool:
    return any(each.error is None for each in answers)


def _name(journal: str, url: str, key: str) -> str:
    kind = "manifest" if key.startswith(manifest.key(journal, "")) else "snapshot"
    return f"{kind} {url}/{key}"
