"""The write-once slots in which one store decides a journal's entries, numbered from 1.

    <journal>/entries/<number, 20 digits>

The store decides by put-if-absent. Several stores decide by a majority, with the same methods (`registers`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.journal import snapshot
from pyspark_log_coordinator.journal.journal_entry import slot_of
from pyspark_log_coordinator.journal.pace import (
    FRESH_SECONDS,
    FRESH_SECONDS_REMOTE,
    REFRESH_SECONDS,
    REFRESH_SECONDS_REMOTE,
)
from pyspark_log_storage.errors import CorruptObject, LogError, NodeMissing, OutcomeUnknown
from pyspark_log_storage.layout import number as digits
from pyspark_log_storage.objects.envelope import read_if_there
from pyspark_log_storage.stores.store import is_object_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_log_coordinator.journal.place import OneStore

READ_AT_ONCE = 32
"""How many entries a process that has many to read asks an object store for at a time."""
_BACKOFF_SECONDS_MAX = 1.0


class EntryLog:
    """The slots of a journal on one store."""

    loses_cheaply = True
    """Whether to propose for a slot that is filled costs no more than to read it first."""

    def __init__(self, place: OneStore, journal: str) -> None:
        """`journal` is its folder, and ends with "/"."""
        store = self._store = place.stores[0]
        self._journal = journal
        self._folder = f"{journal}entries/"
        self._environment = place.environment
        self._patience_ms = place.patience_ms
        is_remote = is_object_store(store)
        self.fresh_seconds = FRESH_SECONDS_REMOTE if is_remote else FRESH_SECONDS
        """For how long `propose` may go without a look at the newest entry."""
        self.refresh_seconds = REFRESH_SECONDS_REMOTE if is_remote else REFRESH_SECONDS
        """How often a process that polls has to refresh."""
        self.may_have_written = False
        """Whether the last proposal may have been written although other bytes are decided."""

    def name(self, n: int) -> str:
        """Return the name of entry `n` in errors."""
        return f"journal entry {self._store.url}/{self._key(n)}"

    def read(self, n: int) -> bytes | None:
        """Return the bytes that are decided for slot `n`, or None if none are yet."""
        return read_if_there(self._store, self._key(n))

    def read_several(self, first: int, last: int) -> dict[int, bytes]:
        """Return some of the entries from `first` to `last`, which are read at once; only those that can be read.

        Empty if there are fewer than two, and on other stores than an object store. There a process that opens an old
        journal would wait for up to 255 entries, one after the other.
        """
        numbers = range(first, min(last + 1, first + READ_AT_ONCE))
        if not numbers[1:] or not is_object_store(self._store):
            return {}
        threads = self._environment.store_threads("entries")
        try:
            for number in numbers:
                threads.start(number, lambda number=number: self.read(number), number)  # type: ignore[misc]
            answers = [threads.next(None) for _ in numbers]
        finally:
            threads.end()
        return {each.tag: each.result for each in answers if each and each.error is None and each.result is not None}

    def may_have(self, n: int) -> bool:
        """Return whether slot `n` is filled, at the least cost."""
        return self._store.exists(self._key(n))

    def has(self, n: int) -> bool:
        """Return whether entry `n` certainly exists."""
        return self.may_have(n)

    def is_followed(self, n: int) -> bool:
        """Return whether the slot after `n` is filled; false in an object store, where `end_after` tells."""
        return not is_object_store(self._store) and self.may_have(n + 1)

    def newest_snapshot(self) -> int:
        """Return the number of the newest snapshot, or 0 if there is none."""
        return next(snapshot.numbers(self._store, self._journal), 0)

    def newest_after(self, n: int) -> int:
        """Return the newest entry after slot `n`, with or without gaps before it; 0 if there is none."""
        return max(self._numbers(after=n), default=0)

    def end_after(self, n: int) -> int | None:
        """Return the highest number of an entry or snapshot after `n`, or `n`; None if that takes several requests.

        An object store tells by one: the keys of snapshots come after those of entries, the newest of them first. The
        order matters: an entry that was trimmed before its folder is listed has a snapshot afterwards.
        """
        if not is_object_store(self._store):
            return None
        end, snapshots = n, snapshot.folder(self._journal)
        for key in self._store.list(self._journal, self._key(n)):
            slot = slot_of(key.removeprefix(self._folder)) if key.startswith(self._folder) else None
            end = end if slot is None else max(end, slot)
            if key.startswith(snapshots) and (number := snapshot.number_of(key.removeprefix(snapshots))) is not None:
                return max(end, number)
        return end

    def leads(self, n: int) -> bool:
        """Return whether this process may propose for slot `n` without reading it first: never on one store."""
        return False

    def _numbers(self, after: int) -> Iterator[int]:
        for key in self._store.list(self._folder, self._key(after)):
            slot = slot_of(key.removeprefix(self._folder))
            if slot is not None:
                yield slot

    def confirm(self, n: int) -> None:
        """Make the entry in slot `n`, and so all before it, durable. Does nothing for 0."""
        data = self.read(n) if n > 0 else None
        if data is not None:
            self._store.create(self._key(n), data)

    def propose(self, n: int, data: bytes) -> bytes:
        """Return the bytes that are decided for slot `n`: `data`, or those of another process that was faster.

        After a doubtful answer the same bytes are created again until the slot is occupied; `data` contains a nonce,
        so equal bytes are this process's own. A read would not do: only `create` promises that an existing object is
        durable. Raises `OutcomeUnknown` if the store did not answer within the patience, and `CorruptObject` or another
        `StoreError` if nothing can have been written.
        """
        environment = self._environment
        deadline = environment.monotonic() + self._patience_ms / 1000
        backoff, doubtful = 0.01, False
        taken_since: float | None = None
        self.may_have_written = False
        while True:
            try:
                if self._store.create(self._key(n), data):
                    return data
                found = self.read(n)
                if found is not None:
                    return found
                # The existing entry was trimmed in between: this process was suspended, maybe for longer than its
                # patience. So only what is there as long after that is no entry.
                now = environment.monotonic()
                taken_since = now if taken_since is None else taken_since
                if now + backoff > taken_since + self._patience_ms / 1000:
                    raise CorruptObject(
                        self.name(n), "its place is taken by something that cannot be read, such as a folder; remove it"
                    )
            except LogError as error:
                if (not error.retriable or isinstance(error, NodeMissing)) and not doubtful:
                    raise
                doubtful = self.may_have_written = True
                if environment.monotonic() + backoff > deadline:
                    message = f"{self.name(n)} may or may not have been written: {error}"
                    raise OutcomeUnknown(message) from error
            environment.sleep(environment.uniform(backoff / 2, backoff))
            backoff = min(backoff * 2, _BACKOFF_SECONDS_MAX)

    def _key(self, n: int) -> str:
        return f"{self._folder}{digits(n)}"
