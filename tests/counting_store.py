"""A store in memory that counts what is read from it."""

from tests.memory_store import MemoryStore


class CountingStore(MemoryStore):
    """Counts reads, and the bytes that they gave."""

    def __init__(self) -> None:
        super().__init__("the url")
        self.reads = 0
        self.bytes = 0

    def forget(self) -> None:
        """Count from nothing again."""
        self.reads = self.bytes = 0

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        data = super().read(key, start, length)
        self.reads += 1
        self.bytes += len(data)
        return data
