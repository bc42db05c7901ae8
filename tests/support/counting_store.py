"""A store in memory that counts what is read from it."""

from pyspark_log_storage.stores.request_counts import RequestCounts
from tests.support.memory_store import MemoryStore


class CountingStore(MemoryStore):
    """Counts reads, and the bytes that they gave."""

    def __init__(self) -> None:
        super().__init__("the url")
        self._counts = RequestCounts()

    @property
    def reads(self) -> int:
        """The number of reads."""
        return self._counts.total().number

    @property
    def received(self) -> int:
        """The bytes that they gave."""
        return self._counts.total().received

    def forget(self) -> None:
        """Count from nothing again."""
        self._counts.clear()

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        data = super().read(key, start, length)
        self._counts.add("read", received=len(data))
        return data
