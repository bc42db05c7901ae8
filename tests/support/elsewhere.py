"""Where the stores of tests are: in folders and in memory, unless the environment says otherwise.

    PYSPARK_LOG_STORE=s3        below prefixes of a bucket of Ceph's S3 server
    PYSPARK_LOG_STORE=chaos     stores with faults, those of `PYSPARK_LOG_FAULTS` or else `FAULTS`

`make prove STORE=s3 RING=` sets it. A test gets a place for its stores from the fixture `root`, or makes a
`PlainStore`. What looks into folders itself is `on_disk`, and is skipped elsewhere. What counts calls, or makes so many
that each of its runs meets a fault, has `no_faults`: its stores are elsewhere, and have none.
"""

from __future__ import annotations

import fnmatch
import os
import uuid
import zlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark_log_storage.stores.addresses import absolute_url, inner_url, open_store
from pyspark_log_storage.stores.chaos import ChaosStore
from pyspark_log_storage.stores.faults import RandomFaults, parse_options
from tests.support.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_log_storage.stores.store import Store
    from tests.servers.running import Server

KIND = os.environ.get("PYSPARK_LOG_STORE", "") or "local"
KINDS = ("local", "s3", "chaos")
assert KIND in KINDS, f"PYSPARK_LOG_STORE is {KIND!r}; choose from {KINDS}"
FAULTS = "unavailable=0.0001&slow_down=0.0001&lost_answers=0.0002"
"""Faults that a store may always make. Without a seed: if it is opened again, other calls fail."""
MADE_ON_PURPOSE = "a fault made on purpose"
"""What an error of such a fault says."""
FAULTS_OF_STORES = "PYSPARK_LOG_FAULTS"
_BUCKET = "PYSPARK_LOG_TEST_BUCKET"
calls: Counter[str] = Counter()
"""The calls that this process has made to stores elsewhere."""


_stores: Counter[str] = Counter()
"""How many `PlainStore`s each test has made."""


def faults() -> str:
    """Return the options of stores with faults."""
    return os.environ.get(FAULTS_OF_STORES, FAULTS)


class Address:
    """The address of a store, or of objects in it, used like a `Path`. Faults do not concern who looks with it."""

    def __init__(self, url: str) -> None:
        self._url, _, self._options = url.partition("?")

    def __str__(self) -> str:
        return f"{self._url}?{self._options}" if self._options else self._url

    def __fspath__(self) -> str:
        """Return the address: clients take a `Path` and this alike. Nothing can be opened by it."""
        return str(self)

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    def __truediv__(self, name: object) -> Address:
        whole = f"{self._url}/{str(name).strip('/')}"
        return Address(f"{whole}?{self._options}" if self._options else whole)

    def __lt__(self, other: Address) -> bool:
        return str(self) < str(other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def name(self) -> str:
        return self._url.rpartition("/")[2]

    @property
    def parent(self) -> Address:
        folder = self._url.rpartition("/")[0]
        return Address(f"{folder}?{self._options}" if self._options else folder)

    @property
    def _folder(self) -> Path | None:
        """The path, if the store is a folder with faults: tests may do to it what a disk does."""
        inner = inner_url(str(self))
        return Path(inner) if inner.startswith("/") else None

    def _store(self) -> Store:
        return open_store(inner_url(str(self.parent)))

    def exists(self) -> bool:
        if self._folder:
            return self._folder.exists()
        return self.is_file() or any(True for _ in self.rglob("*"))

    def is_file(self) -> bool:
        return self._folder.is_file() if self._folder else self._store().exists(self.name)

    def read_bytes(self) -> bytes:
        return self._folder.read_bytes() if self._folder else self._store().read(self.name)

    def write_bytes(self, data: bytes) -> None:
        if self._folder:
            self._folder.write_bytes(data)
        else:
            self._store().put(self.name, data)

    def unlink(self) -> None:
        if self._folder:
            self._folder.unlink()
        else:
            self._store().delete(self.name)

    def iterdir(self) -> Iterator[Address]:
        """Yield what is in the folder: objects, and folders that have some."""
        keys = open_store(inner_url(str(self))).list("")
        yield from (self / name for name in sorted({key.partition("/")[0] for key in keys}))

    def rglob(self, pattern: str) -> Iterator[Address]:
        """Yield the objects whose names match: unlike in a folder, there is nothing else."""
        for key in open_store(inner_url(str(self))).list(""):
            if fnmatch.fnmatchcase(key.rpartition("/")[2], pattern):
                yield self / key


Root: TypeAlias = Path | Address


def new_root(folder: Path) -> Root:
    """Return a new place for stores: the folder, or one elsewhere."""
    if KIND == "s3":
        return Address(_new_prefix())
    return Address(absolute_url(f"chaos+{folder}?{faults()}".rstrip("?"))) if KIND == "chaos" else folder


def _new_prefix() -> str:
    return f"s3://{os.environ[_BUCKET]}/{uuid.uuid4().hex[:12]}"


def _seeded_faults() -> str:
    """Return the options of a store that nobody opens again: each of a test has a seed of its own."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
    _stores[test] += 1
    return f"{faults()}&seed={zlib.crc32(f'{test} {_stores[test]}'.encode())}".lstrip("&")


class StoreElsewhere(ChaosStore):
    """What takes the place of a `MemoryStore`: a new prefix of the bucket, or a store in memory with faults.

    It has the address that the test says.
    """

    def __init__(self, url: str = "memory") -> None:
        inner: Store = open_store(_new_prefix()) if KIND == "s3" else MemoryStore(url)
        super().__init__(inner, RandomFaults(parse_options("" if KIND == "s3" else _seeded_faults())), url)


if TYPE_CHECKING or KIND == "local":  # noqa: SIM108 -- mypy takes it for a type
    PlainStore = MemoryStore
else:
    PlainStore = StoreElsewhere


def address_in_errors(store: Store) -> str:
    """Return the address that a store has in errors: one elsewhere has another than the test says."""
    return str(getattr(store, "_inner", store).url)


def is_fault(error: Exception) -> bool:
    """Return whether an error tells of a fault that a store made on purpose."""
    return MADE_ON_PURPOSE in str(error) or (KIND == "chaos" and "has no marker" in str(error))


def lose(address: Address) -> None:
    """Delete all that is below an address, as if its disk or bucket were lost; somebody may write meanwhile."""
    store = open_store(inner_url(str(address)))
    while keys := list(store.list("")):
        for key in keys:
            store.delete(key)


def wipe(store: PlainStore) -> None:
    """Delete all that a store has, whatever a subclass does when it is asked."""
    for key in list(PlainStore.list(store, "")):
        PlainStore.delete(store, key)


def has_bucket() -> bool:
    """Return whether whoever started this process has said which bucket it is to use."""
    return _BUCKET in os.environ


def access_to(server: Server) -> dict[str, str]:
    """Return the environment of processes that use a new bucket of a server."""
    return {
        "AWS_ACCESS_KEY_ID": server.key,
        "AWS_SECRET_ACCESS_KEY": server.secret,
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_DEFAULT_REGION": "us-east-1",
        _BUCKET: server.new_bucket(),
    }


def use(server: Server | None) -> None:
    """Let this process, and those that it starts, reach the stores; and count the calls from now on."""
    from pyspark_log_storage.stores.s3_client import S3Client

    if server is not None:
        os.environ |= access_to(server)
    if KIND == "s3":
        _count(S3Client, "start")
    else:
        _count(RandomFaults, "at")


def _count(of: type, method: str) -> None:
    original = getattr(of, method)

    def counted(self: Any, *arguments: Any, **named: Any) -> Any:
        calls[KIND] += 1
        return original(self, *arguments, **named)

    setattr(of, method, counted)
