"""The stores of a log that is a copy of another one: its own can only be read, the original's cannot be used at all.

Every act of a process ends in a call to a store, so here no act gets past: no write, no deletion, no election.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NoReturn

from pyspark_log_storage.errors import CopiedLog, NodeMissing
from pyspark_log_storage.layout import MARKER
from pyspark_log_storage.stores.store import is_object_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark_log_storage.errors import LogError
    from pyspark_log_storage.stores.store import ObjectWriter, Store

ORIGINALS = "original+"
"""What the address of a node of another log begins with, of which this one is a copy. The store there refuses all."""


class _RefusingStore:
    """A store whose every call raises an error."""

    is_object_store = False

    def __init__(self, url: str, refusal: Callable[[], LogError]) -> None:
        self.url = url
        self._refusal = refusal

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        del key, start, length
        self._refuse()

    def size(self, key: str) -> int:
        del key
        self._refuse()

    def exists(self, key: str) -> bool:
        del key
        self._refuse()

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        del prefix, after
        self._refuse()

    def folders(self, prefix: str) -> Iterator[str]:
        del prefix
        self._refuse()

    def create(self, key: str, data: bytes) -> bool:
        del key, data
        self._refuse()

    def create_unflushed(self, key: str, data: bytes) -> bool:
        del key, data
        self._refuse()

    def put(self, key: str, data: bytes) -> None:
        del key, data
        self._refuse()

    def delete(self, key: str) -> None:
        del key
        self._refuse()

    def remove_folders(self, prefix: str) -> None:
        del prefix
        self._refuse()

    def open_write(self, key: str, *, durable: bool = True, replace: bool = False) -> ObjectWriter:
        del key, durable, replace
        self._refuse()

    def clock_ms(self) -> int | None:
        return None  # nothing is decided here, and to find out may take a write

    def delete_unfinished(self, *, dry_run: bool = False) -> Sequence[str]:
        del dry_run
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise self._refusal()


class OriginalsStore(_RefusingStore):
    """A store of the original, of which the copy has nothing. Every call raises `NodeMissing`."""

    def __init__(self, url: str) -> None:
        """`url` is the address of the original's node, with or without `ORIGINALS`.

        The store's own begins with it, so that nobody takes it for an address to read from.
        """
        original = url.removeprefix(ORIGINALS)
        detail = (
            f"{original} belongs to the original of this copy, which does not use it; read the original, or see "
            "`pyspark-log cluster adopt`"
        )
        address = f"{ORIGINALS}{original}"
        super().__init__(address, partial(NodeMissing, address, MARKER, detail))


class ReadOnlyStore(_RefusingStore):
    """A store of a copy: it can be read, and every other call raises `CopiedLog`."""

    def __init__(self, inner: Store, refusal: str) -> None:
        """`refusal` is the message of every error."""
        super().__init__(inner.url, partial(CopiedLog, refusal))
        self.is_object_store = is_object_store(inner)
        self._inner = inner

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return self._inner.read(key, start, length)

    def size(self, key: str) -> int:
        return self._inner.size(key)

    def exists(self, key: str) -> bool:
        return self._inner.exists(key)

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        return self._inner.list(prefix, after)

    def folders(self, prefix: str) -> Iterator[str]:
        return self._inner.folders(prefix)

    def delete_unfinished(self, *, dry_run: bool = False) -> Sequence[str]:
        if not dry_run:
            self._refuse()
        return self._inner.delete_unfinished(dry_run=True)
