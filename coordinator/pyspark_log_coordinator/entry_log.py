"""Where a journal's entries are decided: write-once slots, numbered from 1.

One store decides by put-if-absent. Several stores will decide by a majority behind the same two methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_storage.errors import LogError, ObjectMissing, OutcomeUnknown
from pyspark_log_storage.layout import number as digits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_storage.store import Store

_BACKOFF_SECONDS_MAX = 1.0


class EntryLog:
    """The slots of a journal on one store."""

    def __init__(self, store: Store, folder: str, environment: Environment, patience_ms: int) -> None:
        """`folder` ends with "/". `patience_ms` bounds how long `propose` asks a silent store."""
        self._store = store
        self._folder = folder
        self._environment = environment
        self._patience_ms = patience_ms

    def name(self, n: int) -> str:
        """Return what errors call entry `n`."""
        return f"journal entry {self._store.url}/{self._folder}{digits(n)}"

    def key(self, n: int) -> str:
        """Return where entry `n` lies."""
        return f"{self._folder}{digits(n)}"

    def read(self, n: int) -> bytes | None:
        """Return the bytes decided for slot `n`, or None where none are yet."""
        try:
            return self._store.read(self.key(n))
        except ObjectMissing:
            return None

    def keys_below(self, n: int) -> Iterator[str]:
        """Yield the keys of the entries before `n`, in ascending order."""
        for key in self._store.list(self._folder):
            name = key.removeprefix(self._folder)
            if name >= digits(n):
                return
            if name.isdigit():  # a file system may leave files of its own in any folder
                yield key

    def numbers_after(self, n: int) -> Iterator[int]:
        """Yield the numbers of the entries behind `n`, in ascending order, whether or not one is missing between."""
        for key in self._store.list(self._folder, self.key(n)):
            name = key.removeprefix(self._folder)
            if name.isdigit():
                yield int(name)

    def confirm(self, n: int) -> None:
        """Return once the entry in slot `n`, and so all before it, is durable; nothing for 0, before the first."""
        data = self.read(n) if n > 0 else None
        if data is not None:
            self._store.create(self.key(n), data)

    def propose(self, n: int, data: bytes) -> bytes:
        """Return the bytes decided for slot `n`: `data`, or what another got in first.

        A doubtful answer ends only when the slot is occupied: the same bytes are tried again, and the caller
        compares what is there then. `data` holds a nonce, so equal bytes are one's own. Reading would not do:
        only `create` promises that what it finds is durable. Raises `OutcomeUnknown` where the store did not
        answer within the patience, other `StoreError`s where nothing can have been written.
        """
        key = self.key(n)
        environment = self._environment
        deadline = environment.monotonic() + self._patience_ms / 1000
        backoff, doubtful = 0.01, False
        while True:
            try:
                if self._store.create(key, data):
                    return data
                if (found := self.read(n)) is not None:
                    return found
                # Whoever was first has been trimmed since: this process slept.
            except LogError as error:
                if not error.retriable and not doubtful:
                    raise
                doubtful = True
                if environment.monotonic() + backoff > deadline:
                    message = f"{self.name(n)} may or may not have been written: {error}"
                    raise OutcomeUnknown(message) from error
            environment.sleep(environment.uniform(backoff / 2, backoff))
            backoff = min(backoff * 2, _BACKOFF_SECONDS_MAX)
