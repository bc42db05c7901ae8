"""Opens logs and stores by address, and caches them: stores in the process, logs in the thread.

Tasks get their files' names from the driver, so they only open stores: they import no state machine and no journal.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING

from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.stores.addresses import absolute_urls, open_store
from pyspark_log_storage.stores.storage_options import NO_OPTIONS, StorageOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_storage.stores.store import Store


def canonical(path: str) -> str:
    """Return the address in its canonical form, the same on every machine. Raises `InvalidOption`.

    Several addresses, of any journal nodes of one cluster, are separated by commas.
    """
    return ",".join(absolute_urls(path))


def own_stores_at(address: str, options: StorageOptions | None = None) -> Callable[[str], Store]:
    """Return a function that opens the stores of the cluster's nodes by address, each once, for one thread.

    `address` is canonical; `options` are those of the environment unless given. Does no I/O. The function raises
    `InvalidOption`, `CorruptObject`.
    """

    @functools.cache
    def store_at(url: str) -> Store:
        if url != AT_THE_ROOT:
            return open_store(url, options)
        if "," in address:  # with several journal nodes, no node is at the root
            raise CorruptObject(f"the journal of the cluster at {address}", f"a node's address in it is {url!r}")
        return open_store(address, options)

    return store_at


_shared_stores_at = functools.lru_cache(maxsize=16)(own_stores_at)


def stores_at(address: str, options: StorageOptions | None = None) -> Callable[[str], Store]:
    """As `own_stores_at`, with the same stores for the whole process."""
    return _shared_stores_at(address, StorageOptions.of_environment() if options is None else options)


class _ThreadLogs(threading.local):
    """The logs of a thread, each with its journals in memory, which two threads must not use at once."""

    def __init__(self) -> None:
        self.at = functools.lru_cache(maxsize=16)(_located)


def _located(address: str, options: StorageOptions) -> Log:
    log = own_log(address, options)
    log.locate()
    return log


_logs = _ThreadLogs()


def log_at(address: str, options: StorageOptions = NO_OPTIONS) -> Log:
    """Return this thread's log at the canonical `address`; it may not be open yet.

    Raises `InvalidOption`, `StoreError`.
    """
    return _logs.at(address, options)


def forget_logs() -> None:
    """Forget the logs of this thread, so that the next ones are read from their stores."""
    _logs.at.cache_clear()


def own_log(path: str, options: StorageOptions | None = None) -> Log:
    """Return a new log at `path`, not open and not shared. Raises `InvalidOption`."""
    from pyspark_log_coordinator.log.log import Log

    open_node = functools.partial(open_store, options=StorageOptions.of_environment() if options is None else options)
    return Log([open_node(url) for url in canonical(path).split(",")], real_environment(), open_node=open_node)


def checkpoint_store(address: str, options: StorageOptions) -> Store:
    """Return the store at a canonical address that is a checkpoint, not a node. Raises `InvalidOption`."""
    from pyspark_log_storage.stores.local import LocalStore

    return LocalStore(address) if address.startswith("/") else open_store(address, options)  # a node needs a marker


def open_log(path: str, options: StorageOptions | None = None, *, create: bool = False) -> Log:
    """Return the log at `path`, open. In a thread the same address gives the same object, which keeps its journals.

    `options` are those of the environment unless given. Raises `NoCluster` if there is none and `create` is false;
    `InvalidOption`, `NodeMissing`, `StoreError`.
    """
    log = log_at(canonical(path), StorageOptions.of_environment() if options is None else options)
    log.open(create=create)
    return log
