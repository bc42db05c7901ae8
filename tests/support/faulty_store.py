"""A store in which chosen calls go wrong: it wraps another store, and asks at each call what happens there.

A store may always fail to answer, lose an answer, seem to have lost its marker, or end the process. The last five are
lies, which break the promises of `Store`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from pyspark_log_storage.errors import ObjectMissing, StoreError, StoreUnavailable
from pyspark_log_storage.layout import MARKER
from pyspark_log_storage.stores.store import ObjectWriter, Store, is_object_store

T = TypeVar("T")


class Fault(enum.Enum):
    """What goes wrong at a call."""

    UNAVAILABLE = "nothing is done, and the answer is an error"
    LOST_ANSWER = "it is done, and the answer is an error; a list ends in the middle"
    MISSING_MARKER = "the node's marker seems to be missing, as on a disk that is not mounted"
    KILL_BEFORE = "the process ends before the call is done"
    KILL_AFTER = "the process ends after it"
    TORN_WRITE = "an object is stored in part, and the answer is that all is well"
    BIT_ROT = "an object is stored with one bit flipped, and the answer is that all is well"
    BAD_READ = "what is read has one bit flipped, and the stored object has not"
    STALE_LIST = "a list is the one before: new objects are not in it, and deleted ones are"
    IGNORED_CONDITION = "`create` replaces an existing object, and says that it created it"


LIES = (Fault.TORN_WRITE, Fault.BIT_ROT, Fault.BAD_READ, Fault.STALE_LIST, Fault.IGNORED_CONDITION)
"""The faults that no store may make."""
_DAMAGE = (Fault.TORN_WRITE, Fault.BIT_ROT)
_LIES_AT = {
    "create": (*_DAMAGE, Fault.IGNORED_CONDITION),
    "create_unflushed": (*_DAMAGE, Fault.IGNORED_CONDITION),
    "open": (*_DAMAGE, Fault.IGNORED_CONDITION),
    "put": _DAMAGE,
    "read": (Fault.BAD_READ,),
    "list": (Fault.STALE_LIST,),
}


def lies_at(call: str) -> tuple[Fault, ...]:
    """Return the lies that are possible at a call."""
    return _LIES_AT.get(call, ())


class Killed(BaseException):
    """The process has ended. No handler of the product may catch it."""


class FaultyStore:
    """A store that asks `at(call, key)` what goes wrong at each call, a method of `Store` or of its writer."""

    def __init__(self, inner: Store, at: Callable[[str, str], Fault | None]) -> None:
        self.url = inner.url
        self.is_object_store = is_object_store(inner)
        self._inner = inner
        self._at = at
        self._made: set[str] = set()
        """The keys that this object has created, which stale lists leave out."""
        self._listed: dict[str, list[str]] = {}
        """The keys in each folder when it was listed last."""

    def create(self, key: str, data: bytes) -> bool:
        return self._create("create", self._inner.create, key, data)

    def create_unflushed(self, key: str, data: bytes) -> bool:
        return self._create("create_unflushed", self._inner.create_unflushed, key, data)

    def exists(self, key: str) -> bool:
        return self.act("exists", key, lambda _: self._inner.exists(key))

    def put(self, key: str, data: bytes) -> None:
        self.act("put", key, lambda fault: self._inner.put(key, changed(fault, data)))
        self._made.add(key)

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        def effect(fault: Fault | None) -> bytes:
            if fault is Fault.MISSING_MARKER and key == MARKER:
                raise ObjectMissing(self.url, key)
            data = self._inner.read(key, start, length)
            return _flipped(data) if fault is Fault.BAD_READ else data

        return self.act("read", key, effect)

    def size(self, key: str) -> int:
        return self.act("size", key, lambda _: self._inner.size(key))

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        with self._call("list", prefix) as fault:
            keys = list(self._inner.list(prefix, after))
            if fault is Fault.STALE_LIST:
                keys = self._listed.get(prefix, [each for each in keys if each not in self._made])
                keys = [each for each in keys if each > after]
            elif fault is Fault.LOST_ANSWER:
                keys = keys[: len(keys) // 2]
            elif not after:
                self._listed[prefix] = keys
            yield from keys

    def folders(self, prefix: str) -> Iterator[str]:
        yield from self.act("folders", prefix, lambda _: tuple(self._inner.folders(prefix)))

    def delete(self, key: str) -> None:
        self.act("delete", key, lambda _: self._inner.delete(key))

    def remove_folders(self, prefix: str) -> None:
        self.act("remove_folders", prefix, lambda _: self._inner.remove_folders(prefix))

    def open_write(self, key: str, *, durable: bool = True, replace: bool = False) -> ObjectWriter:
        def effect(fault: Fault | None) -> _Writer:
            ignores = fault is Fault.IGNORED_CONDITION
            inner = self._inner.open_write(key, durable=durable, replace=replace or ignores)
            return _Writer(self, key, inner, fault if fault in _DAMAGE else None)

        return self.act("open", key, effect)

    def clock_ms(self) -> int | None:
        return self._inner.clock_ms()

    def delete_unfinished(self, *, dry_run: bool = False) -> Sequence[str]:
        return self.act("delete_unfinished", "", lambda _: self._inner.delete_unfinished(dry_run=dry_run))

    def _create(self, call: str, create: Callable[[str, bytes], bool], key: str, data: bytes) -> bool:
        def effect(fault: Fault | None) -> bool:
            if fault is Fault.IGNORED_CONDITION:
                self._inner.put(key, data)
                return True
            return create(key, changed(fault, data))

        created = self.act(call, key, effect)
        if created:
            self._made.add(key)
        return created

    def act(self, call: str, key: str, effect: Callable[[Fault | None], T]) -> T:
        """Make a call, and let go wrong what goes wrong there."""
        with self._call(call, key) as fault:
            return effect(fault)

    @contextmanager
    def _call(self, call: str, key: str) -> Iterator[Fault | None]:
        fault = self._at(call, key)
        if fault is Fault.KILL_BEFORE:
            raise Killed
        if fault is Fault.UNAVAILABLE:
            raise StoreUnavailable(self.url, key, f"cannot {call} {key!r} in {self.url}: no answer; try again")
        yield fault
        if fault is Fault.KILL_AFTER:
            raise Killed
        if fault is Fault.LOST_ANSWER:
            raise StoreUnavailable(self.url, key, f"{call} {key!r} in {self.url}: the answer was lost; try again")


class _Writer:
    """A large object that is written to a `FaultyStore`."""

    def __init__(self, store: FaultyStore, key: str, inner: ObjectWriter, damage: Fault | None) -> None:
        """`damage` is what happens to the first piece; nothing follows one that is torn."""
        self._store = store
        self._key = key
        self._inner = inner
        self._damage = damage
        self._is_torn = False

    def write(self, *pieces: bytes) -> None:
        data = b"" if self._is_torn else changed(self._damage, b"".join(map(bytes, pieces)))
        self._act("write", lambda: self._inner.write(data))
        self._is_torn = self._is_torn or self._damage is Fault.TORN_WRITE
        self._damage = None

    def close(self) -> None:
        self._act("close", self._inner.close)

    def discard(self) -> None:
        self._inner.discard()

    def _act(self, call: str, effect: Callable[[], object]) -> None:
        try:
            self._store.act(call, self._key, lambda _: effect())
        except StoreError:
            self._inner.discard()
            raise


def changed(fault: Fault | None, data: bytes) -> bytes:
    """Return the bytes that are stored in place of `data`."""
    if fault is Fault.TORN_WRITE:
        return bytes(data)[: len(data) // 2]
    return _flipped(data) if fault is Fault.BIT_ROT else data


def _flipped(data: bytes) -> bytes:
    """Return the bytes with one bit flipped, in the middle."""
    flipped = bytearray(data)
    if flipped:
        flipped[len(flipped) // 2] ^= 1
    return bytes(flipped)
