"""The inbox of a journal: commands that wait for the next entry, because another process was first.

    <journal>/inbox/<born>-<nonce>       envelope b"PLIB", version 1, body: msgpack of the command
    <journal>/answers/<born>-<nonce>     envelope b"PLIA", version 1, body: msgpack of the `Answer`

Each commit is an entry, so of N processes that commit at once N - 1 lose. A process that loses puts its command here.
One that knows the newest entry adds the commands of all others to the entry that it proposes (flat combining: Hendler,
Incze, Shavit and Tzafrir, SPAA 2010). It tells each of them the outcome in an answer, which is all that they read: a
process that waits reads no entries. A process without competitors never uses the inbox.

The inbox only makes commits faster. A command from it is decided against the newest state like every other, so one that
is found late, or twice, has the same effect as one that a suspended process submits late, or repeats. Only a command
whose repetition changes nothing may be put here. If a store fails, the process continues without the inbox; so it does
if the store hangs and the journal is on others, too.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from pyspark_log_coordinator.journal.place import ANSWER_SECONDS
from pyspark_log_storage import decoding, layout
from pyspark_log_storage.errors import LogError, ObjectMissing, StoreUnavailable
from pyspark_log_storage.objects.envelope import HEADER_BYTES, seal, unseal
from pyspark_log_storage.stored_fields import Count, Ordinal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark_log_coordinator.journal.place import JournalPlace
    from pyspark_log_storage.stores.store import Store
    from pyspark_log_storage.stores.store_threads import Answer as Answered
    from pyspark_log_storage.stores.store_threads import StoreThreads

COMMANDS_MAX = 128
"""How many commands of others an entry takes."""
BYTES_MAX = 32 * 1024
"""How many bytes of commands of others an entry takes, and how large a command in the inbox may be."""
WRITERS = 2
"""How many processes propose an entry if none that knows the newest one does: the second, if the first has died."""
ANSWER_BYTES_MAX = 2 * BYTES_MAX
"""An answer has less for a partition than the command, whose size is limited, and its own key."""
KEPT_ENTRIES = 256
"""A command that its process has not removed, and an answer that it has not read, are deleted after so many entries."""
_LANES = 16
"""Threads that read at once."""
_POLL_SECONDS = 0.002
_PATIENCE_SECONDS = 0.05
_PATIENCE_REQUESTS = 10
_PATIENCE_SECONDS_MAX = 5.0
_EXPECTING_SECONDS = 300.0
_MAGIC, _MAGIC_OF_ANSWER = b"PLIB", b"PLIA"
_VERSION = 1

C = TypeVar("C")
T = TypeVar("T")


class Answer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The outcome of a command that another process has carried out, in a durable entry."""

    number: Count
    """An entry: that one or a later one."""
    outcome: dict[Count, tuple[Ordinal, Ordinal]]
    """See `Machine.answer`."""


_answer_decoder = msgspec.msgpack.Decoder(Answer)


def encode_answer(answer: Answer, key: str) -> bytes:
    return seal(_MAGIC_OF_ANSWER, _VERSION, msgspec.msgpack.encode(answer), key)


def decode_answer(data: bytes, key: str) -> Answer:
    """Return the answer that is stored under a key. Raises `CorruptObject`, `NewerFormat`."""
    return decoding.decode(_answer_decoder.decode, unseal(_MAGIC_OF_ANSWER, _VERSION, data, key, key), key)


class Inbox(Generic[C]):
    """The inbox of a journal, as one process sees it, which puts one command at a time into it. Used by one thread."""

    def __init__(self, place: JournalPlace, folder: str, decode: Callable[[bytes | msgspec.Raw], C]) -> None:
        """`folder` is that of the journal, and `decode` returns an encoded command. Reads nothing yet."""
        self._place = place
        self._folder, self._answers = layout.inbox(folder), layout.answers(folder)
        self._decode = decode
        self._environment = place.environment
        self._key = ""
        """That of the own command; empty if there is none."""
        self._is_answered = False
        """Whether the answer to it was read."""
        self._listed: list[str] = []
        self._known: dict[str, tuple[C, int]] = {}
        """The commands that were read, and their bytes, by key."""
        self._settled: set[str] = set()
        """The commands that have been carried out or were refused."""
        self._threads: StoreThreads | None = None
        self._request_seconds = 0.0
        self._put_at = 0.0
        """When the own command was put into the inbox."""
        self.heard_of = 0
        """The newest entry that an answer has named, which this process need not have read."""
        self._answered = -float("inf")
        """When the last answer came."""
        self._waited = 0.0
        """How long it took."""

    @property
    def is_used(self) -> bool:
        """Whether the own command was put into the inbox: from then on any process may carry it out."""
        return self._key != ""

    @property
    def has_others(self) -> bool:
        """Whether other commands were waiting at the last look."""
        return any(key != self._key for key in self._listed)

    @property
    def oldest(self) -> str:
        """The key of the command that had waited longest at the last look; empty if there was none."""
        return self._listed[0] if self._listed else ""

    def must_wait(self, vain: int) -> bool:
        """Return whether, at the last look, others were to carry out the own command with theirs, which are older.

        After each time that this process has waited in vain these are half as many: they may have died.
        """
        return self._key in self._listed[WRITERS << vain :]

    @property
    def expects_answer(self) -> bool:
        """Whether another process has carried out a command a while ago, so that one is likely to do so again."""
        return self._environment.monotonic() - self._answered < _EXPECTING_SECONDS

    @property
    def poll_seconds(self) -> float:
        """How often to look for the answer at first: eight times in as long as the last one took."""
        return max(_POLL_SECONDS, self._waited / 8)

    def patience(self, vain: int) -> float:
        """Return how many seconds to wait for others after `vain` times in vain.

        At first twice as long as the last time that was not in vain. A process that catches up before it proposes an
        entry needs more time.
        """
        least = _PATIENCE_SECONDS + _PATIENCE_REQUESTS * self._request_seconds
        return min(max(least, 2 * self._waited) * (1 << vain), _PATIENCE_SECONDS_MAX)

    def put(self, number: int, command: C) -> None:
        """Put a command into the inbox, unless it is there. `number` is the newest entry that the process knows."""
        if self.is_used:
            return
        body = msgspec.msgpack.encode(command)
        if len(body) > BYTES_MAX:
            return
        self._key = self._folder + layout.born_name(max(number, self.heard_of), self._environment.nonce())
        self._put_at = self._environment.monotonic()
        key, data = self._key, seal(_MAGIC, _VERSION, body)
        with contextlib.suppress(LogError):  # it counts as put all the same: the answer of the store may be lost
            self._ask(lambda store: store.create_unflushed(key, data))

    def look(self) -> None:
        """List the commands that wait, the oldest first. None if the store fails."""
        begin = self._environment.monotonic()
        self._listed = []
        with contextlib.suppress(LogError):
            listed = self._ask(partial(_listed, self._folder))
            self._settled.intersection_update(listed)
            self._listed = [key for key in listed if key not in self._settled]
        self._known = {key: self._known[key] for key in self._listed if key in self._known}
        self._request_seconds = self._environment.monotonic() - begin

    def others(self) -> list[tuple[str, C]]:
        """Return keys and commands of other processes: of those of the last look as many as an entry takes."""
        keys = [key for key in self._listed if key != self._key][:COMMANDS_MAX]
        self._read([key for key in keys if key not in self._known])
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
        self._settled.add(key)

    def reply(self, answers: Mapping[str, Answer]) -> None:
        """Answer commands of other processes, which were carried out in durable entries, by their keys."""

        def answer_of(key: str) -> Callable[[], object]:
            there = self._answer_to(key)
            return partial(self._store.create_unflushed, there, encode_answer(answers[key], there))

        self._at_once({key: answer_of(key) for key in answers})
        for key in answers:
            self.settle(key)

    def answer(self) -> Answer | None:
        """Return the answer to the own command, or None if there is none, or the store fails."""
        assert self.is_used
        key = self._answer_to(self._key)

        def read(store: Store) -> bytes | None:
            return store.read(key, 0, ANSWER_BYTES_MAX) if store.exists(key) else None

        try:
            data = self._ask(read)
            if data is None:
                return None
            found = decode_answer(data, key)
        except LogError:
            return None
        self._is_answered, self._answered = True, self._environment.monotonic()
        self._waited = self._answered - self._put_at
        self.heard_of = max(self.heard_of, found.number)
        return found

    def withdraw(self) -> None:
        """Remove the own command and the answer that was read, if it was put into the inbox."""
        if self.is_used:
            self._remove(self._key)
            if self._is_answered:
                self._remove(self._answer_to(self._key))
        self._key, self._is_answered = "", False

    def delete_old(self, number: int) -> int:
        """Delete what nobody has removed for hundreds of entries; return how many objects. Raises `StoreError`.

        `number` is the newest entry. A process that waits all the same finds the outcome itself.
        """
        count = 0
        for folder in (self._folder, self._answers):
            keys = self._ask(partial(_listed, folder))
            for key in keys:  # each in a call of its own: a store that is slow but answers has time for all of them
                if layout.born_of(key.removeprefix(folder)) < number - KEPT_ENTRIES:
                    self._delete_one(key)
                    count += 1
        return count

    def _remove(self, key: str) -> None:
        with contextlib.suppress(LogError):
            self._delete_one(key)

    def _delete_one(self, key: str) -> None:
        self._ask(lambda store: store.delete(key))

    def _answer_to(self, key: str) -> str:
        return self._answers + key.removeprefix(self._folder)

    def _read(self, keys: Sequence[str]) -> None:
        def read(keys: Sequence[str]) -> dict[str, tuple[C, int] | None]:
            return self._at_once({key: partial(self._command, self._store, key) for key in keys})

        found = read(keys)
        found |= read([key for key, command in found.items() if command is None])  # they may have been half written
        for key, command in found.items():
            if command is None:
                self.settle(key)  # or all would wait for its process, as for one whose turn it is
            else:
                self._known[key] = command

    @property
    def _store(self) -> Store:
        """The store that the inbox is on."""
        return self._place.stores[0]

    def _ask(self, act: Callable[[Store], T]) -> T:
        """Return the result of a call to the store that the inbox is on. Raises what it raises, and `StoreError`."""
        if len(self._place.stores) == 1:
            return act(self._store)
        answer = self._call({"": partial(act, self._store)}).get("")
        if answer is None:
            raise StoreUnavailable(self._store.url, self._folder, f"no answer within {ANSWER_SECONDS:g} s")
        if answer.error is not None:
            raise answer.error
        result: T = answer.result
        return result

    def _at_once(self, calls: Mapping[str, Callable[[], T]]) -> dict[str, T]:
        """Make calls at once, because the store is slow; return the results of those that do not fail."""
        return {key: each.result for key, each in self._call(calls).items() if each.error is None}

    def _call(self, calls: Mapping[str, Callable[[], object]]) -> dict[str, Answered]:
        """Make calls in threads, and return their answers.

        If the journal is on several stores nobody waits long for the one that the inbox is on, and as long as it has
        not answered there are no other calls.
        """
        threads = self._threads = self._threads or self._environment.store_threads("inbox")
        while threads.next(0) is not None:
            pass  # answers that came too late
        if any(threads.pending(f"{lane}") for lane in range(_LANES)):
            return {}
        asked = object()
        found: dict[str, Answered] = {}
        for index, (key, call) in enumerate(calls.items()):
            threads.start(f"{index % _LANES}", call, (asked, key))
        seconds = None if len(self._place.stores) == 1 else ANSWER_SECONDS
        while len(found) < len(calls) and (answer := threads.next(seconds)) is not None:
            if answer.tag[0] is asked:
                found[answer.tag[1]] = answer
        return found

    def _command(self, store: Store, key: str) -> tuple[C, int] | None:
        """Return a command and its bytes, or None if that is no whole command: a power failure may tear it.

        Raises `StoreUnavailable`: the command may be read later. Raises `ObjectMissing` if it was removed.
        """
        try:
            body = unseal(_MAGIC, _VERSION, store.read(key, 0, HEADER_BYTES + BYTES_MAX), key)
            return decoding.decode(self._decode, body, key), len(body)
        except (ObjectMissing, StoreUnavailable):
            raise
        except LogError:
            return None


def _listed(folder: str, store: Store) -> list[str]:
    """Return the keys in a folder, without foreign files."""
    return [key for key in store.list(folder) if layout.is_born_name(key.removeprefix(folder))]
