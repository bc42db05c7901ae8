"""A store in memory that a test can break, like an unplugged disk or one without access rights."""

from collections.abc import Iterator

from pyspark_log_storage.errors import StoreError
from pyspark_log_storage.stores.store import ObjectWriter
from tests.support.memory_store import MemoryStore


class BreakableStore(MemoryStore):
    """Raises `broken` from whatever it is asked, as long as that is set; `broken_writes` from what writes alone."""

    broken: type[StoreError] | None = None
    broken_writes: type[StoreError] | None = None

    def _check(self, key: str, *, writes: bool = False) -> None:
        error = self.broken or (self.broken_writes if writes else None)
        if error is not None:
            raise error(self.url, key, f"{self.url} was taken away by the test")

    def create(self, key: str, data: bytes) -> bool:
        self._check(key, writes=True)
        return super().create(key, data)

    def exists(self, key: str) -> bool:
        self._check(key)
        return super().exists(key)

    def create_unflushed(self, key: str, data: bytes) -> bool:
        self._check(key, writes=True)
        return super().create_unflushed(key, data)

    def put(self, key: str, data: bytes) -> None:
        self._check(key, writes=True)
        super().put(key, data)

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self._check(key)
        return super().read(key, start, length)

    def size(self, key: str) -> int:
        self._check(key)
        return super().size(key)

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        self._check(prefix)
        return super().list(prefix, after)

    def folders(self, prefix: str) -> Iterator[str]:
        self._check(prefix)
        return super().folders(prefix)

    def delete(self, key: str) -> None:
        self._check(key, writes=True)
        super().delete(key)

    def open_write(self, key: str, *, durable: bool = True, replace: bool = False) -> ObjectWriter:
        self._check(key, writes=True)
        return _BreakableWriter(self, key, super().open_write(key, durable=durable, replace=replace))


class _BreakableWriter:
    """Writes a large object to a store that may have been broken when it is complete."""

    def __init__(self, store: BreakableStore, key: str, inner: ObjectWriter) -> None:
        self._store = store
        self._key = key
        self._inner = inner

    def write(self, *pieces: bytes) -> None:
        self._inner.write(*pieces)

    def close(self) -> None:
        self._store._check(self._key, writes=True)
        self._inner.close()

    def discard(self) -> None:
        self._inner.discard()
