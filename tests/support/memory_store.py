"""A store in the memory of one process, for tests and for the simulator to wrap."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyspark_log_storage.errors import ObjectMissing, StoreError
from pyspark_log_storage.stores.store import check_key, check_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class MemoryStore:
    """Objects in a dict. Safe for any number of threads of one process."""

    def __init__(self, url: str = "memory") -> None:
        self.url = url
        self._objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def create(self, key: str, data: bytes) -> bool:
        check_key(self.url, key)
        with self._lock:
            if key in self._objects:
                return False
            self._objects[key] = bytes(data)
            return True

    def exists(self, key: str) -> bool:
        check_key(self.url, key)
        return key in self._objects

    def create_unflushed(self, key: str, data: bytes) -> bool:
        return MemoryStore.create(self, key, data)

    def put(self, key: str, data: bytes) -> None:
        check_key(self.url, key)
        with self._lock:
            self._objects[key] = bytes(data)

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        data = self._get(key)
        return data[start:] if length is None else data[start : start + length]

    def size(self, key: str) -> int:
        return len(self._get(key))

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        check_prefix(self.url, prefix)
        with self._lock:
            found = sorted(key for key in self._objects if key.startswith(prefix) and key > after)
        yield from found

    def folders(self, prefix: str) -> Iterator[str]:
        check_prefix(self.url, prefix)
        below = (key.removeprefix(prefix) for key in self.list(prefix))
        yield from sorted({name.partition("/")[0] for name in below if "/" in name})

    def delete(self, key: str) -> None:
        check_key(self.url, key)
        with self._lock:
            self._objects.pop(key, None)

    def remove_folders(self, prefix: str) -> None:
        check_prefix(self.url, prefix)  # folders are but parts of keys

    def open_write(self, key: str, *, durable: bool = True, replace: bool = False) -> MemoryWriter:
        del durable
        check_key(self.url, key)
        return MemoryWriter(self, key, replace=replace)

    def clock_ms(self) -> int | None:
        return None

    def delete_unfinished(self, *, dry_run: bool = False) -> Sequence[str]:
        del dry_run
        return ()  # what is half-written dies with the process

    def _get(self, key: str) -> bytes:
        check_key(self.url, key)
        try:
            return self._objects[key]
        except KeyError:
            raise ObjectMissing(self.url, key) from None


def wipe(store: MemoryStore) -> None:
    """Delete all that a store has, whatever a subclass does when it is asked."""
    for key in list(MemoryStore.list(store, "")):
        MemoryStore.delete(store, key)


class MemoryWriter:
    """Collects the pieces of one object."""

    def __init__(self, store: MemoryStore, key: str, *, replace: bool) -> None:
        self._store = store
        self._key = key
        self._replace = replace
        self._pieces: list[bytes] = []
        self._open = True

    def write(self, *pieces: bytes) -> None:
        assert self._open, "written to after its end"
        self._pieces += map(bytes, pieces)

    def close(self) -> None:
        assert self._open, "closed after its end"
        data, created = b"".join(self._pieces), True
        if self._replace:
            self._store.put(self._key, data)
        else:
            created = self._store.create(self._key, data)
        self.discard()
        if not created:
            raise StoreError(
                self._store.url,
                self._key,
                f"{self._key!r} already exists in {self._store.url}; names are never reused",
            )

    def discard(self) -> None:
        self._open = False
        self._pieces.clear()
