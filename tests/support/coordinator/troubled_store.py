"""A store in memory that notes what it is asked, and goes wrong where a test tells it to."""

from collections.abc import Callable, Iterator

import msgspec

from pyspark_log_storage.errors import StoreError, StoreRefused, StoreUnavailable
from tests.support.memory_store import MemoryStore, MemoryWriter

ALWAYS = 10**9


class Trouble(msgspec.Struct):
    """What happens to the next `times` creates below `folder`."""

    folder: str
    error: type[StoreError] | None
    times: int
    writes: bool = False
    """Whether the object is written before the error comes."""
    meanwhile: Callable[[], object] | None = None
    """What another process does before the answer comes."""


class TroubledStore(MemoryStore):
    """Has the objects of a `MemoryStore`, which several of these may share."""

    def __init__(self, inner: MemoryStore | None = None) -> None:
        self.inner = inner or MemoryStore()
        super().__init__(self.inner.url)
        self._objects, self._lock = self.inner._objects, self.inner._lock
        self.reads: list[str] = []
        self.lists: list[str] = []
        self.creates: list[str] = []
        self.troubles: list[Trouble] = []
        self._before_read: list[tuple[str, Callable[[], object]]] = []

    def lose_answers(self, folder: str, times: int = 1, meanwhile: Callable[[], object] | None = None) -> None:
        """Write what is created, and say that it failed; `meanwhile`, before that is said, others may act."""
        self.troubles.append(Trouble(folder, StoreUnavailable, times, writes=True, meanwhile=meanwhile))

    def be_silent(self, folder: str, times: int = ALWAYS) -> None:
        """Write nothing, and do not say so."""
        self.troubles.append(Trouble(folder, StoreUnavailable, times))

    def be_slow(self, folder: str, meanwhile: Callable[[], object]) -> None:
        """Let another process act before the next object is written."""
        self.troubles.append(Trouble(folder, None, 1, meanwhile=meanwhile))

    def be_slow_to_read(self, folder: str, meanwhile: Callable[[], object]) -> None:
        """Let another process act before the next object is read."""
        self._before_read.append((folder, meanwhile))

    def refuse(self, folder: str, times: int = ALWAYS) -> None:
        """Write nothing, and say so."""
        self.troubles.append(Trouble(folder, StoreRefused, times))

    def keys(self) -> list[str]:
        """Return all keys."""
        return list(self.inner.list(""))

    def forget_troubles(self) -> None:
        """Do again what one is told."""
        self.troubles.clear()

    def create(self, key: str, data: bytes) -> bool:
        self.creates.append(key)
        for trouble in self.troubles:
            if key.startswith(trouble.folder) and trouble.times > 0:
                trouble.times -= 1
                if trouble.writes:
                    self.inner.create(key, data)
                if trouble.meanwhile is not None:
                    trouble.meanwhile()
                if trouble.error is not None:
                    raise trouble.error(self.url, key, "the test made this up")
        return self.inner.create(key, data)

    def exists(self, key: str) -> bool:
        self.reads.append(key)
        return self.inner.exists(key)

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self.reads.append(key)
        for trouble in [each for each in self._before_read if key.startswith(each[0])]:
            self._before_read.remove(trouble)
            trouble[1]()
        return self.inner.read(key, start, length)

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        self.lists.append(prefix)
        return self.inner.list(prefix, after)

    def open_write(self, key: str, *, durable: bool = True, replace: bool = False) -> MemoryWriter:
        return self.inner.open_write(key, durable=durable, replace=replace)
