"""The snapshots of a journal, on one store or on a majority of several.

They are created once. Processes that create the same one write the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from pyspark_log_coordinator.journal import registers, single_store, snapshot
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, LogError, NodeMissing, ObjectMissing
from pyspark_log_storage.objects.envelope import is_whole, read_if_there
from pyspark_log_storage.stores.failover import reread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.journal.quorum import Members
    from pyspark_log_storage.stores.store import Store
    from pyspark_log_storage.stores.store_threads import Answer

DELETING_SECONDS = 30.0
"""How long one call deletes from one of several stores: other calls of the process to that store wait for its end."""

T = TypeVar("T")


def checked(check: Callable[[bytes, str], object]) -> Callable[[bytes, str], bytes]:
    """Return a decoder that returns the bytes themselves, after `check`."""

    def decode(data: bytes, name: str) -> bytes:
        check(data, name)
        return data

    return decode


class Damage(msgspec.Struct, frozen=True):
    """A damaged object of a journal on one store."""

    url: str
    key: str
    store: int
    good: bytes | None
    """The bytes that belong there, if other stores tell."""
    is_alone: bool
    """Whether the journal is on this store alone."""

    @property
    def detail(self) -> str:
        """What is wrong, for people."""
        if self.good is not None:
            return "it is damaged; other stores have it intact"
        if self.is_alone:
            return "it is damaged; restore it from a backup, or rebuild the log (`pyspark-log cluster rebuild`)"
        return "it is damaged, and the other stores do not tell what belongs here: this store has no say in it"


class OneStoreObjects:
    """The snapshots of a journal on one store."""

    def __init__(self, store: Store, journal: str) -> None:
        self._store = store
        self._journal = journal

    def name(self, key: str) -> str:
        """Return the name of an object in errors."""
        return _name(self._store.url, key)

    def create(self, key: str, data: bytes, check: Callable[[bytes, str], object]) -> None:
        """Make an object durable. `check` raises if other bytes under the same key are no equivalent."""
        if not self._store.create(key, data):
            self.read(key, check)

    def read(self, key: str, decode: Callable[[bytes, str], T]) -> T:
        """Return the result of `decode` for an object's bytes and name; it raises if they are damaged.

        Raises `ObjectMissing`, what `decode` raises, `StoreError`.
        """
        return reread(self._store, lambda: decode(self._store.read(key), self.name(key)))

    def snapshots(self, *, everywhere: bool = False) -> Iterator[int]:
        """Yield the numbers of the snapshots, newest first.

        Of several stores a majority is asked, which knows every snapshot that entries were trimmed by; with
        `everywhere` all stores that answer within a second.
        """
        yield from sorted(snapshot.numbers(self._store, self._journal), reverse=True)

    def is_incomplete(self, key: str) -> bool:
        """Return whether a majority of several stores lacks an object that one of them has."""
        return False

    def damage(self, oldest: int) -> list[Damage]:
        """Return the damaged objects. Of several stores those that answer are read.

        Without those that the snapshot of entry `oldest` makes obsolete.
        """
        keys = _damaged(self._store, self._journal, oldest, single_store.slot_of)
        return [Damage(self._store.url, key, 0, None, is_alone=True) for key in keys]

    def repair(self, oldest: int) -> list[str]:
        """Replace the damaged objects that other stores have intact; return what was replaced, for people."""
        return []

    def delete_before(self, oldest: int, check: Callable[[bytes, str], object]) -> int:
        """Delete objects and entries older than an existing snapshot; return the number of deleted objects.

        `check` raises if the bytes of that snapshot are damaged.
        """
        obsolete = _obsolete_keys(self._store, self._journal, oldest, single_store.slot_of)
        if not obsolete:
            return 0
        try:
            self.read(snapshot.key(self._journal, oldest), check)
        except ObjectMissing:
            return 0  # another process has trimmed further
        for key in obsolete:
            self._store.delete(key)
        return len(obsolete)


class MajorityObjects:
    """The snapshots on several stores: created on a majority, read from any. See `OneStoreObjects`.

    One that fewer stores have is valid, too: its writer was interrupted, or a store was unreachable. It is the fold of
    decided entries. But only a snapshot that a majority has can replace the entries before it.
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
        return _name(self._members.urls, key)

    def create(self, key: str, data: bytes, check: Callable[[bytes, str], object]) -> None:
        def create_in(store: Store) -> None:
            def compare() -> None:
                if (found := store.read(key)) != data:
                    check(found, _name(store.url, key))

            if not store.create(key, data):
                reread(store, compare)

        answers = self._ask(create_in, enough=self._members.is_majority)
        self._members.require_majority(answers, f"{key} cannot be written")

    def read(self, key: str, decode: Callable[[bytes, str], T]) -> T:
        def read_in(store: Store) -> T:
            return reread(store, lambda: decode(store.read(key), _name(store.url, key)))

        answers = self._ask(read_in, enough=lambda answers: bool(_results(answers)), settled=self._is_hopeless)
        for result in _results(answers):
            found: T = result
            return found
        if self._is_hopeless(answers):
            errors = [each.error for each in answers]
            # An object that a majority lacks is gone, or was never complete; else a damaged one tells more.
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
        self._members.require_majority(answers, f"the snapshots in {self._journal} cannot be listed")
        yield from sorted({number for numbers in _results(answers) for number in numbers}, reverse=True)

    def is_incomplete(self, key: str) -> bool:
        """Return whether a majority lacks an object. Raise `StoreError` if those that answer do not tell."""

        def has(answers: Sequence[Answer], it: bool) -> bool:  # noqa: FBT001
            return sum(each.error is None and each.result is it for each in answers) >= self._members.majority

        answers = self._ask(lambda store: store.exists(key), enough=lambda found: has(found, True) or has(found, False))
        if not has(answers, True) and not has(answers, False):
            what = f"it is unknown whether a majority has {self.name(key)}"
            raise self._members.failure(what, answers, must=len(self._members))
        return has(answers, False)

    def damage(self, oldest: int) -> list[Damage]:
        """A register belongs there as a majority of the stores has it: nothing else can be decided in that ballot."""

        def damaged_in(store: Store) -> list[str]:
            return _damaged(store, self._journal, oldest, registers.slot_of, self._generation)

        answers = self._ask(damaged_in, settled=self._members.is_majority)
        urls = [each.store.url for each in self._members.members]
        return [
            Damage(urls[each.store], key, each.store, self._good(key), is_alone=False)
            for each in answers
            if each.error is None
            for key in each.result
        ]

    def repair(self, oldest: int) -> list[str]:
        return [
            f"{each.url}/{each.key}"
            for each in self.damage(oldest)
            if each.good is not None and self._mend(each, each.good)
        ]

    def _mend(self, damage: Damage, good: bytes) -> bool:
        """Replace a damaged object; return whether it was there. Others may have trimmed it since it was found."""

        def mend_in(store: Store) -> bool:
            is_there = store.url == damage.url and store.exists(damage.key)
            if is_there:
                store.put(damage.key, good)
            return is_there

        answers = self._ask(mend_in, settled=self._members.is_majority)
        for each in answers:
            if each.store == damage.store and each.error is not None:
                raise each.error
        return any(_results(answers))

    def _good(self, key: str) -> bytes | None:
        """Return the bytes that belong under a key, or None if the stores that answer do not tell."""
        copies = [
            data
            for data in self._ask_all(lambda store: read_if_there(store, key))
            if data is not None and is_whole(data, key)
        ]
        folder = layout.entries(self._journal, self._generation)
        found = registers.parse(key.removeprefix(folder)) if key.startswith(folder) else None
        if found is None:
            return next(iter(copies), None)
        contents = [registers.decode(found[1], data, key) for data in copies]
        for content in contents:
            if contents.count(content) >= self._members.majority:
                return registers.encode(found[1], content, key)
        return None

    def delete_before(self, oldest: int, check: Callable[[bytes, str], object]) -> int:
        """A store that does not answer, or lacks the snapshot, keeps its objects until the next time.

        So each store that deletes something has a newer snapshot, and its newest snapshot never becomes older.
        """
        key = snapshot.key(self._journal, oldest)
        # Mostly nothing is left to delete; then the snapshot need not be read and completed.
        found = self._ask(lambda store: self._obsolete(store, oldest), settled=self._members.is_majority)
        if self._members.is_majority(found) and not any(_results(found)):
            return 0
        try:
            data = self.read(key, checked(check))
        except ObjectMissing:
            return 0  # it was only on a store that has become unreachable
        self.create(key, data, check)

        def delete_in(store: Store) -> tuple[int, bool]:
            """Return how many objects were deleted, and whether more are left."""
            if next(snapshot.numbers(store, self._journal), 0) < oldest:
                return 0, False
            obsolete = self._obsolete(store, oldest)
            end = self._environment.monotonic() + DELETING_SECONDS
            for count, each in enumerate(obsolete, 1):
                store.delete(each)
                if self._environment.monotonic() >= end:
                    return count, count < len(obsolete)
            return len(obsolete), False

        deleted, is_left = 0, True
        while is_left:
            answers = self._ask(delete_in, settled=self._members.is_majority)
            self._members.require_majority(answers, f"the journal in {self._journal} cannot be trimmed")
            deleted += sum(count for count, _ in _results(answers))
            is_left = any(more for _, more in _results(answers))
        return deleted

    def _obsolete(self, store: Store, oldest: int) -> list[str]:
        return _obsolete_keys(store, self._journal, oldest, registers.slot_of, self._generation)

    def _ask_all(self, act: Callable[[Store], T]) -> list[T]:
        return _results(self._ask(act, settled=self._members.is_majority))

    def _ask(
        self,
        act: Callable[[Store], object],
        enough: Callable[[Sequence[Answer]], bool] | None = None,
        settled: Callable[[Sequence[Answer]], bool] | None = None,
    ) -> list[Answer]:
        return self._members.ask(act, self._environment, self._patience_ms, enough=enough, settled=settled)

    def _is_hopeless(self, answers: Sequence[Answer]) -> bool:
        """Return whether a majority has answered that it cannot give the object, however often it is asked."""
        errors = (each.error for each in answers)
        lasting = (error for error in errors if isinstance(error, LogError) and not _may_recover(error))
        return sum(1 for _ in lasting) >= self._members.majority


Objects: TypeAlias = OneStoreObjects | MajorityObjects


def _may_recover(error: LogError) -> bool:
    """Return whether the next call may succeed. A disk that is not mounted needs an operator."""
    return error.retriable and not isinstance(error, NodeMissing)


def _results(answers: Sequence[Answer]) -> list[Any]:
    return [each.result for each in answers if each.error is None]


def _damaged(
    store: Store, journal: str, oldest: int, slot_of: Callable[[str], int | None], generation: int = 1
) -> list[str]:
    """Return the keys of the damaged objects that the snapshot of entry `oldest` does not make obsolete."""
    found = []
    for number, key in _numbered(store, journal, slot_of, generation):
        data = read_if_there(store, key) if number >= oldest else None
        if data is not None and not is_whole(data, key):
            found.append(key)
    return found


def _obsolete_keys(
    store: Store, journal: str, oldest: int, slot_of: Callable[[str], int | None], generation: int = 1
) -> list[str]:
    """Return the keys of the objects that the snapshot of entry `oldest` makes obsolete.

    They are in the order of their deletion. Snapshots come first, so that each remaining one still has all later ones,
    wherever the deletion is interrupted; then entries in ascending order.
    """
    return [key for number, key in _numbered(store, journal, slot_of, generation) if number < oldest]


def _numbered(
    store: Store, journal: str, slot_of: Callable[[str], int | None], generation: int
) -> Iterator[tuple[int, str]]:
    """Yield number and key of a journal's snapshots, then of its entries, each in ascending order.

    `slot_of` returns the number of the entry to which a file among the entries belongs, None for a foreign file.
    Entries of other generations are not included.
    """
    kinds = (
        (snapshot.folder(journal), snapshot.number_of),
        (layout.entries(journal, generation), slot_of),
    )
    for folder, number_of in kinds:
        numbers = [(number_of(key.removeprefix(folder)), key) for key in store.list(folder)]
        yield from sorted((number, key) for number, key in numbers if number is not None)


def _name(url: str, key: str) -> str:
    return f"snapshot {url}/{key}"
