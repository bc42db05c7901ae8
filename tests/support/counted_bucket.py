"""A cluster in a bucket in memory that counts requests, and a clock that the test moves on."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any

from pyspark_log import opening
from pyspark_log_coordinator.environment import Environment
from pyspark_log_storage.stores.request_counts import counts_of
from tests.support import plain_log
from tests.support.memory_store import MemoryStore
from tests.support.plain_log import PlainLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

_numbers = count(1)


class CountedBucket(MemoryStore):
    """An object store that counts its requests by their kind."""

    is_object_store = True

    def __init__(self, url: str = "bucket") -> None:
        super().__init__(url)
        self.requests: Counter[str] = Counter()
        self._counts = counts_of(url)
        self._is_counting = True

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """Count no requests meanwhile: those of another process."""
        self._is_counting = False
        yield
        self._is_counting = True

    def _count(self, kind: str) -> None:
        if not self._is_counting:
            return
        self.requests[kind] += 1
        self._counts.add(kind)

    def create(self, key: str, data: bytes) -> bool:
        self._count("PUT")
        return super().create(key, data)

    def create_unflushed(self, key: str, data: bytes) -> bool:
        self._count("PUT")
        return super().create_unflushed(key, data)

    def put(self, key: str, data: bytes) -> None:
        self._count("PUT")
        super().put(key, data)

    def exists(self, key: str) -> bool:
        self._count("HEAD")
        return super().exists(key)

    def size(self, key: str) -> int:
        self._count("HEAD")
        return super().size(key)

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self._count("GET")
        return super().read(key, start, length)

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        self._count("LIST")
        return super().list(prefix, after)

    def delete(self, key: str) -> None:
        self._count("DELETE")
        super().delete(key)


class CountedCluster:
    """A cluster in such a bucket, at `path` for everything that opens logs by their address."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_object_store: bool = True) -> None:
        self.bucket = CountedBucket()
        self.bucket.is_object_store = is_object_store
        self.path = f"/bucket-{next(_numbers)}"
        self.now = 1000.0
        self._began_ms = time.time_ns() // 10**6  # rows get the time of the real clock
        self._nonces = count(1)
        monkeypatch.setattr(opening, "open_store", lambda *_, **__: self.bucket)
        monkeypatch.setattr(opening, "real_environment", self.environment)
        monkeypatch.setattr(plain_log, "real_environment", self.environment)
        opening.forget_logs()
        self.log = PlainLog(store=self.bucket)

    def environment(self) -> Environment:
        return Environment(
            now_ms=lambda: self._began_ms + int(self.now * 1000),
            monotonic=lambda: self.now,
            sleep=self.sleep,
            uniform=lambda low, high: (low + high) / 2,
            nonce=lambda: f"{next(self._nonces):032x}",
        )

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def counted(self) -> dict[str, int]:
        """Return the requests by kind since the last call."""
        found = dict(self.bucket.requests)
        self.bucket.requests.clear()
        return found

    def in_a_minute(self, act: Any, every: float) -> dict[str, int]:
        """Return the requests of a minute in which `act` is called again and again, `every` seconds apart."""
        self.counted()
        until = self.now + 60
        while self.now < until:
            act()
            self.now += every
        return self.counted()
