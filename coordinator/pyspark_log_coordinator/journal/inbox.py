"""The inbox of a journal: commands that wait for the next entry, because another process was first.

    <journal>/inbox/<born>-<nonce>     envelope b"PLIB", version 1, body: msgpack of the command

Each commit is an entry, so of N processes that commit at once N - 1 lose. A process that loses puts its command here.
The processes with the oldest commands add those of all others to the entry that they propose, and the rest wait for it
(flat combining: Hendler, Incze, Shavit and Tzafrir, SPAA 2010). A process without competitors never uses the inbox.

The inbox only makes commits faster. A command from it is decided against the newest state like every other, so one that
is found late, or twice, has the same effect as one that a suspended process submits late, or repeats. Only a command
whose repetition changes nothing may be put here. If a store fails, the process continues without the inbox.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from pyspark_log_storage import decoding, layout
from pyspark_log_storage.errors import CorruptObject, LogError, NewerFormat, ObjectMissing
from pyspark_log_storage.objects.envelope import HEADER_BYTES, seal, unseal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.journal.place import JournalPlace
    from pyspark_log_storage.stores.store import Store
    from pyspark_log_storage.stores.store_threads import StoreThreads

COMMANDS_MAX = 128
"""How many commands of others an entry takes."""
BYTES_MAX = 32 * 1024
"""How many bytes of commands of others an entry takes, and how large a command in the inbox may be."""
WRITERS = 2
"""How many processes propose an entry with all commands. One is enough; the second continues if the first has died."""
ABANDONED_SECONDS = 60.0
"""After this time a command that has been carried out is removed for its process, which must have died."""
_LANES = 16
"""Threads that read at once."""
_PATIENCE_SECONDS = 0.05
_PATIENCE_REQUESTS = 10
_PATIENCE_SECONDS_MAX = 2.0
_MAGIC = b"PLIB"
_VERSION = 1

C = TypeVar("C")


def delete_left_behind(place: JournalPlace, journal: str) -> int:
    """Delete all commands from a place that the journal, named by its folder, has left; return how many.

    A process that waits there finds that the journal has gone on elsewhere, and submits its command itself. Raises
    `StoreError`.
    """
    store, folder = place.stores[0], layout.inbox(journal)
    names = [key.removeprefix(folder) for key in store.list(folder)]
    left = [name for name in names if layout.is_born_name(name)]
    for name in left:
        store.delete(folder + name)
    return len(left)


class Inbox(Generic[C]):
    """The inbox of a journal, as one process sees it, which puts one command at a time into it. Used by one thread."""

    def __init__(self, folder: str, decode: Callable[[bytes | msgspec.Raw], C], environment: Environment) -> None:
        """`folder` is that of the journal, and `decode` returns an encoded command. Reads nothing yet."""
        self._folder = layout.inbox(folder)
        self._decode = decode
        self._environment = environment
        self._key = ""
        self._place: JournalPlace | None = None
        """Where the own command is."""
        self._listed: list[str] = []
        self._known: dict[str, tuple[C, int]] = {}
        """The commands that were read, and their bytes, by key."""
        self._settled: dict[str, float] = {}
        """The commands that have been carried out or were refused, and when this process noticed that."""
        self._threads: StoreThreads | None = None
        self._request_seconds = 0.0

    @property
    def is_used(self) -> bool:
        """Whether the own command was put into the inbox: from then on any process may carry it out."""
        return self._place is not None

    @property
    def has_others(self) -> bool:
        """Whether other commands were waiting at the last look."""
        return any(key != self._key for key in self._listed)

    @property
    def must_wait(self) -> bool:
        """Whether, at the last look, others were to carry out the own command with theirs, which are older."""
        return self._key in self._listed[WRITERS:]

    @property
    def patience(self) -> float:
        """How many seconds to wait for them. They may have died."""
        return min(_PATIENCE_SECONDS + _PATIENCE_REQUESTS * self._request_seconds, _PATIENCE_SECONDS_MAX)

    def put(self, place: JournalPlace, number: int, command: C) -> None:
        """Put a command into the inbox, unless it is there. `number` is the newest entry that the process knows."""
        if self._place is not None:
            return
        body = msgspec.msgpack.encode(command)
        if len(body) > BYTES_MAX:
            return
        self._key = self._folder + layout.born_name(number, self._environment.nonce())
        self._place = place  # before it is written: the answer of the store may be lost
        with contextlib.suppress(LogError):
            place.stores[0].create_unflushed(self._key, seal(_MAGIC, _VERSION, body))

    def look(self, place: JournalPlace) -> None:
        """List the commands that wait, the oldest first. None if the store fails."""
        begin = self._environment.monotonic()
        self._listed = []
        with contextlib.suppress(LogError):
            keys = place.stores[0].list(self._folder)
            listed = [key for key in keys if layout.is_born_name(key.removeprefix(self._folder))]
            self._settled = {key: self._settled[key] for key in listed if key in self._settled}
            self._listed = [key for key in listed if key not in self._settled]
        self._known = {key: self._known[key] for key in self._listed if key in self._known}
        self._request_seconds = self._environment.monotonic() - begin

    def others(self, place: JournalPlace) -> list[tuple[str, C]]:
        """Return keys and commands of other processes: of those of the last look as many as an entry takes."""
        keys = [key for key in self._listed if key != self._key][:COMMANDS_MAX]
        self._read(place.stores[0], [key for key in keys if key not in self._known])
        found, left = [], BYTES_MAX
        for key in keys:
            if key in self._known:
                command, size = self._known[key]
                left -= size
                if left < 0:
                    break
                found.append((key, command))
        return found

    def settle(self, key: str) -> None:
        """Take note that a command has been carried out, or was refused. Its own process is about to remove it."""
        self._settled[key] = self._environment.monotonic()

    def withdraw(self) -> None:
        """Remove the own command, if it was put into the inbox."""
        if self._place is not None:
            self._remove(self._place, self._key)
            self._remove_abandoned(self._place)
        self._key, self._place = "", None

    def delete_before(self, place: JournalPlace, floor: int) -> int:
        """Delete commands whose born is below `floor`, whoever put them; return how many. Raises `StoreError`."""
        store = place.stores[0]
        names = (key.removeprefix(self._folder) for key in store.list(self._folder))
        old = [each for each in names if layout.is_born_name(each) and layout.born_of(each) < floor]
        for name in old:
            store.delete(self._folder + name)
        return len(old)

    def _remove_abandoned(self, place: JournalPlace) -> None:
        """Remove one command whose process should have removed it long ago."""
        since = self._environment.monotonic() - ABANDONED_SECONDS
        for key in [key for key, when in self._settled.items() if when < since][:1]:
            self._remove(place, key)
            del self._settled[key]

    def _remove(self, place: JournalPlace, key: str) -> None:
        with contextlib.suppress(LogError):
            place.stores[0].delete(key)

    def _read(self, store: Store, keys: Sequence[str]) -> None:
        """Read commands at once: the store is slow."""
        threads = self._threads = self._threads or self._environment.store_threads("inbox")
        for index, key in enumerate(keys):
            threads.start(f"{index % _LANES}", lambda key=key: self._command(store, key), key)  # type: ignore[misc]
        for _ in keys:
            answer = threads.next(None)
            if answer is not None and answer.error is None:
                self._take(answer.tag, answer.result)

    def _take(self, key: str, found: tuple[C, int] | None) -> None:
        if found is not None:
            self._known[key] = found

    def _command(self, store: Store, key: str) -> tuple[C, int] | None:
        """Return a command and its bytes, or None if it is being written, was removed, or cannot be read."""
        try:
            body = unseal(_MAGIC, _VERSION, store.read(key, 0, HEADER_BYTES + BYTES_MAX), key)
            return decoding.decode(self._decode, body, key), len(body)
        except (CorruptObject, NewerFormat, ObjectMissing, LogError):
            return None
