"""The snapshots of a journal, on one store or on a majority of several.

They are created once. Processes that create the same one write the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pyspark_log_coordinator.journal import registers, snapshot
from pyspark_log_coordinator.journal.journal_entry import slot_of
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, LogError, NodeMissing, ObjectMissing
from pyspark_log_storage.objects.envelope import is_whole, read_if_there
from pyspark_log_storage.stores.failover import reread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_log_coordinator.journal.place import JournalPlace
    from pyspark_log_coordinator.journal.snapshot import Snapshot
    from pyspark_log_storage.stores.store import Store
    from pyspark_log_storage.stores.store_threads import Answer

DELETING_SECONDS = 30.0
"""How long one call deletes from one of several stores: other calls of the process to that store wait for its end."""


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
        if self.good is not None:
            return "it is damaged; other stores have it intact"
        if self.is_alone:
            return "it is damaged; restore it from a backup, or rebuild the log (`pyspark-log cluster rebuild`)"
        return "it is damaged, and the other stores do not tell what belongs here: this store has no say in it"


class Objects:
    """The snapshots of a journal, and the search for damage and obsolete objects among all that is stored of it.

    On several stores a snapshot is created on a majority, and read from any. One that fewer have is valid, too: its
    writer was interrupted, or a store was unreachable. It is the fold of decided entries. But only a snapshot that a
    majority has can replace the entries before it.
    """

    def __init__(self, place: JournalPlace, journal: str) -> None:
        self._place = place
        self._journal = journal
        self._entries = layout.entries(journal, place.generation)

    def name(self, number: int) -> str:
        """Return the name of the snapshot of entry `number` in errors."""
        return f"snapshot {self._place.url}/{snapshot.key(self._journal, number)}"

    def create(self, new: Snapshot) -> None:
        """Make a snapshot durable. Raises `CorruptObject` if the stored one is damaged, `StoreError`."""
        key = snapshot.key(self._journal, new.number)
        data = snapshot.encode(new, key)

        def create_in(store: Store) -> None:
            def compare() -> None:
                if (found := store.read(key)) != data:
                    self._decode(new.number, found, store)

            if not store.create(key, data):
                reread(store, compare)

        answers = self._place.ask(create_in, enough=self._place.is_majority)
        self._place.require_majority(answers, f"{key} cannot be written")

    def read(self, number: int) -> Snapshot:
        """Return the snapshot of an entry. Raises `ObjectMissing`, `CorruptObject`, `NewerFormat`, `StoreError`.

        With `ObjectMissing` a majority of the stores lacks it: it was trimmed, or was never complete.
        """
        key = snapshot.key(self._journal, number)

        def read_in(store: Store) -> Snapshot:
            return reread(store, lambda: self._decode(number, store.read(key), store))

        answers = self._place.ask(read_in, enough=lambda answers: bool(_results(answers)), settled=self._is_hopeless)
        for result in _results(answers):
            found: Snapshot = result
            return found
        for kind in (ObjectMissing, CorruptObject):
            errors = [each.error for each in answers if isinstance(each.error, kind)]
            if len(errors) >= self._place.majority:
                raise errors[0]
        raise self._place.failure(f"{self.name(number)} cannot be read", answers, must=1)

    def snapshots(self, *, everywhere: bool = False) -> Iterator[int]:
        """Yield the numbers of the snapshots, newest first.

        Of several stores a majority is asked, which knows every snapshot that entries were trimmed by; with
        `everywhere` all stores that answer within a second.
        """
        answers = self._place.ask(
            lambda store: tuple(snapshot.numbers(store, self._journal)),
            enough=None if everywhere else self._place.is_majority,
            settled=self._place.is_majority,
        )
        self._place.require_majority(answers, f"the snapshots in {self._journal} cannot be listed")
        yield from sorted({number for numbers in _results(answers) for number in numbers}, reverse=True)

    def damage(self, oldest: int) -> list[Damage]:
        """Return the damaged objects. Of several stores those that answer are read.

        Without those that the snapshot of entry `oldest` makes obsolete. A register belongs there as a majority of the
        stores has it: nothing else can be decided in that ballot.
        """

        def damaged_in(store: Store) -> list[str]:
            found = []
            for number, key in self._numbered(store):
                data = read_if_there(store, key) if number >= oldest else None
                if data is not None and not is_whole(data, key):
                    found.append(key)
            return found

        answers = self._place.ask(damaged_in, settled=self._place.is_majority)
        self._place.require_majority(answers, f"the journal in {self._journal} cannot be read")
        urls = [each.url for each in self._place.stores]
        return [
            Damage(urls[each.store], key, each.store, self._good(key, each.store), is_alone=self._place.certain)
            for each in answers
            if each.error is None
            for key in each.result
        ]

    def repair(self, oldest: int) -> list[str]:
        """Replace the damaged objects that other stores have intact; return what was replaced, for people."""
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

        answers = self._place.ask(mend_in, settled=self._place.is_majority)
        for each in answers:
            if each.store == damage.store and each.error is not None:
                raise each.error
        return any(_results(answers))

    def _good(self, key: str, damaged: int) -> bytes | None:
        """Return the bytes that belong under a key of a damaged store, or None if the other stores do not tell."""
        answers = self._place.ask(lambda store: read_if_there(store, key), settled=self._place.is_majority)
        others = _results([each for each in answers if each.store != damaged])
        copies = [data for data in others if data is not None and is_whole(data, key)]
        is_register = registers.parse(key.removeprefix(self._entries)) is not None
        needed = self._place.majority if is_register else 1
        return next((data for data in copies if copies.count(data) >= needed), None)

    def delete_before(self, oldest: int) -> int:
        """Delete objects and entries older than an existing snapshot; return the number of deleted objects.

        One of several stores that does not answer, or lacks the snapshot, keeps its objects until the next time. So
        each store that deletes something has a newer snapshot, and its newest snapshot never becomes older. Raises
        `CorruptObject` if that snapshot is damaged.
        """
        # Mostly nothing is left to delete; then the snapshot need not be read and completed.
        found = self._place.ask(lambda store: self._obsolete(store, oldest), settled=self._place.is_majority)
        self._place.require_majority(found, f"the journal in {self._journal} cannot be trimmed")
        if not any(_results(found)):
            return 0
        try:
            kept = self.read(oldest)
        except ObjectMissing:
            return 0  # it was trimmed, too, or only on a store that has become unreachable
        if not self._place.certain:
            self.create(kept)

        def delete_in(store: Store) -> tuple[int, bool]:
            """Return how many objects were deleted, and whether more are left."""
            if not self._place.certain and next(snapshot.numbers(store, self._journal), 0) < oldest:
                return 0, False
            end, left = self._place.environment.monotonic() + DELETING_SECONDS, self._obsolete(store, oldest)
            for count, key in enumerate(left, 1):
                store.delete(key)
                if self._place.environment.monotonic() >= end:
                    return count, count < len(left)
            return len(left), False

        deleted, is_left = 0, True
        while is_left:
            answers = self._place.ask(delete_in, settled=self._place.is_majority)
            self._place.require_majority(answers, f"the journal in {self._journal} cannot be trimmed")
            deleted += sum(count for count, _ in _results(answers))
            is_left = any(more for _, more in _results(answers))
        return deleted

    def _decode(self, number: int, data: bytes, store: Store) -> Snapshot:
        key = snapshot.key(self._journal, number)
        return snapshot.decode(data, f"snapshot {store.url}/{key}", key)

    def _obsolete(self, store: Store, oldest: int) -> list[str]:
        """Return the keys of the objects that the snapshot of entry `oldest` makes obsolete.

        They are in the order of their deletion. Snapshots come first, so that each remaining one still has all later
        ones, wherever the deletion is interrupted; then entries in ascending order.
        """
        return [key for number, key in self._numbered(store) if number < oldest]

    def _numbered(self, store: Store) -> Iterator[tuple[int, str]]:
        """Yield number and key of a journal's snapshots, then of its entries, each in ascending order.

        Foreign files, and entries of other generations, are not included.
        """
        for folder, number_of in ((snapshot.folder(self._journal), snapshot.number_of), (self._entries, slot_of)):
            numbers = [(number_of(key.removeprefix(folder)), key) for key in store.list(folder)]
            yield from sorted((number, key) for number, key in numbers if number is not None)

    def _is_hopeless(self, answers: Sequence[Answer]) -> bool:
        """Return whether a majority has answered that it cannot give the object, however often it is asked.

        A disk that is not mounted needs an operator.
        """
        errors = [each.error for each in answers if isinstance(each.error, LogError)]
        lasting = sum(not error.retriable or isinstance(error, NodeMissing) for error in errors)
        return lasting >= self._place.majority


def _results(answers: Sequence[Answer]) -> list[Any]:
    return [each.result for each in answers if each.error is None]
