"""A store with faults: it wraps another store, and makes some calls go wrong on purpose.

For drills, at an address like chaos+file:///data/log?seed=7&lost_answers=0.01, and for tests. What can go wrong is in
`faults`. Nothing imports this module unless such an address is opened.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pyspark_log_storage.errors import ObjectMissing, StoreError, StoreUnavailable
from pyspark_log_storage.stores.faults import Fault
from pyspark_log_storage.stores.store import is_object_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark_log_storage.stores.faults import Faults
    from pyspark_log_storage.stores.store import ObjectWriter, Store

_logger = logging.getLogger("pyspark_log")
_REASONS = {
    Fault.UNAVAILABLE: "the store did not answer",
    Fault.SLOW_DOWN: "503 SlowDown: please reduce your request rate",
    Fault.LOST_ANSWER: "the answer was lost",
}

T = TypeVar("T")


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class ChaosStore:
    """A store whose calls go wrong as `faults` says. Safe for any number of threads if the inner store is."""

    def __init__(
        self,
        inner: Store,
        faults: Faults,
        url: str | None = None,
        *,
        sleep: Callable[[float], object] = time.sleep,
        kill: Callable[[], object] = _kill,
    ) -> None:
        """`url` is the address that opens this store again, by default the inner store's. `kill` must not return."""
        self.url = inner.url if url is None else url
        self.is_object_store = is_object_store(inner)
        self._inner = inner
        self._faults = faults
        self._sleep = sleep
        self._kill = kill
        self._lock = threading.Lock()
        self._made: set[str] = set()
        """The keys that this object has created, which stale lists leave out."""
        self._listed: dict[str, list[str]] = {}
        """The keys in each folder when it was listed last."""

    def create(self, key: str, data: bytes) -> bool:
        return self._create("create", self._inner.create, key, data)

    def create_unflushed(self, key: str, data: bytes) -> bool:
        return self._create("create_unflushed", self._inner.create_unflushed, key, data)

    def exists(self, key: str) -> bool:
        return self._act("exists", key, lambda _: self._inner.exists(key))

    def put(self, key: str, data: bytes) -> None:
        self._act("put", key, lambda fault: self._inner.put(key, self.changed(fault, data)))
        self.remember(key)

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        def effect(fault: Fault | None) -> bytes:
            data = self._inner.read(key, start, length)
            return self._flipped(data) if fault is Fault.BAD_READ else data

        return self._act("read", key, effect)

    def size(self, key: str) -> int:
        return self._act("size", key, lambda _: self._inner.size(key))

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        fault = self.begin("list", prefix)
        if fault is Fault.STALE_LIST:
            yield from self._stale(prefix, after)
            return
        with self.named():
            found = self._inner.list(prefix, after)
            if fault is Fault.LOST_ANSWER:
                keys = list(found)
                yield from keys[: len(keys) // 2]
            elif after:
                yield from found
            else:
                yield from self._remembered(prefix, found)
        self.end(fault, "list", prefix)

    def folders(self, prefix: str) -> Iterator[str]:
        yield from self._act("folders", prefix, lambda _: tuple(self._inner.folders(prefix)))

    def delete(self, key: str) -> None:
        self._act("delete", key, lambda _: self._inner.delete(key))

    def remove_folders(self, prefix: str) -> None:
        self._act("remove_folders", prefix, lambda _: self._inner.remove_folders(prefix))

    def open_write(self, key: str, *, durable: bool = True, replace: bool = False) -> ObjectWriter:
        fault = self.begin("open", key)
        ignores = fault is Fault.IGNORED_CONDITION
        with self.named():
            inner = self._inner.open_write(key, durable=durable, replace=replace or ignores)
        try:
            self.end(fault, "open", key)
        except StoreUnavailable:
            inner.discard()
            raise
        return _ChaosWriter(self, key, inner, fault)

    def clock_ms(self) -> int | None:
        with self.named():
            return self._inner.clock_ms()

    def delete_unfinished(self, *, dry_run: bool = False) -> Sequence[str]:
        return self._act("delete_unfinished", "", lambda _: self._inner.delete_unfinished(dry_run=dry_run))

    def _create(self, call: str, create: Callable[[str, bytes], bool], key: str, data: bytes) -> bool:
        def effect(fault: Fault | None) -> bool:
            if fault is Fault.IGNORED_CONDITION:
                self._inner.put(key, data)
                return True
            return create(key, self.changed(fault, data))

        created = self._act(call, key, effect)
        if created:
            self.remember(key)
        return created

    def _act(self, call: str, key: str, effect: Callable[[Fault | None], T]) -> T:
        fault = self.begin(call, key)
        with self.named():
            result = effect(fault)
        self.end(fault, call, key)
        return result

    @contextmanager
    def named(self) -> Iterator[None]:
        """Give errors of the inner store the address of this one, by which callers know it."""
        try:
            yield
        except StoreError as error:
            error.url = self.url
            raise

    def begin(self, call: str, key: str) -> Fault | None:
        """Return the fault of a call that is about to be made. Raises its error if the call is not made."""
        delay = self._faults.delay()
        if delay:
            self._sleep(delay)
        fault = self._faults.at(call, key)
        if fault is None:
            return None
        _logger.info("%s: %s at %s %r", self.url, fault.value, call, key)
        if fault is Fault.KILL_BEFORE:
            self._kill()
        if fault is Fault.MISSING_MARKER:
            raise ObjectMissing(self.url, key)
        if fault in {Fault.UNAVAILABLE, Fault.SLOW_DOWN}:
            self._fail(fault, call, key)
        return fault

    def end(self, fault: Fault | None, call: str, key: str) -> None:
        """Raise the error of a call that was made."""
        if fault is Fault.KILL_AFTER:
            self._kill()
        if fault is Fault.LOST_ANSWER:
            self._fail(fault, call, key)

    def _fail(self, fault: Fault, call: str, key: str) -> NoReturn:
        message = f"cannot {call} {key!r} in {self.url}: {_REASONS[fault]} (a fault made on purpose); try again"
        raise StoreUnavailable(self.url, key, message)

    def changed(self, fault: Fault | None, data: bytes) -> bytes:
        """Return the bytes that are stored in place of `data`."""
        if fault is Fault.TORN_WRITE:
            return bytes(data)[: len(data) // 2]
        return self._flipped(data) if fault is Fault.BIT_ROT else data

    def _flipped(self, data: bytes) -> bytes:
        """Return the bytes with one bit flipped."""
        if not len(data):
            return data
        flipped = bytearray(data)
        bit = self._faults.below(8 * len(flipped))
        flipped[bit // 8] ^= 1 << bit % 8
        return bytes(flipped)

    def remember(self, key: str) -> None:
        with self._lock:
            self._made.add(key)

    def _remembered(self, prefix: str, found: Iterator[str]) -> Iterator[str]:
        """Yield the keys that are found, and remember them if the list is read to its end."""
        keys = []
        for key in found:
            keys.append(key)
            yield key
        with self._lock:
            self._listed[prefix] = keys

    def _stale(self, prefix: str, after: str) -> Iterator[str]:
        """Yield the keys of the last list of a folder; before there was one, those that others have created."""
        with self._lock:
            keys, made = self._listed.get(prefix), set(self._made)
        if keys is not None:
            yield from (key for key in keys if key > after)
        else:
            yield from (key for key in self._inner.list(prefix, after) if key not in made)


class _ChaosWriter:
    """A large object that is written to a `ChaosStore`."""

    def __init__(self, store: ChaosStore, key: str, inner: ObjectWriter, fault: Fault | None) -> None:
        """`fault` was chosen when the object was begun: what it changes is the first piece."""
        self._store = store
        self._key = key
        self._inner = inner
        self._fault = fault
        self._is_torn = False

    def write(self, *pieces: bytes) -> None:
        self._act("write", lambda: self._write(pieces))

    def _write(self, pieces: tuple[bytes, ...]) -> None:
        if self._is_torn:
            return
        if self._fault in {Fault.TORN_WRITE, Fault.BIT_ROT}:
            pieces = (self._store.changed(self._fault, b"".join(map(bytes, pieces))),)
            self._is_torn = self._fault is Fault.TORN_WRITE
            self._fault = None
        self._inner.write(*pieces)

    def close(self) -> None:
        self._act("close", self._inner.close)
        self._store.remember(self._key)

    def discard(self) -> None:
        self._inner.discard()

    def _act(self, call: str, effect: Callable[[], object]) -> None:
        try:
            fault = self._store.begin(call, self._key)
            with self._store.named():
                effect()
            self._store.end(fault, call, self._key)
        except StoreUnavailable:
            self._inner.discard()
            raise
