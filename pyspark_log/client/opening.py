"""Opening: the log at an address, kept warm from one call to the next of a process.

A task is told what to read and write, and only needs the stores: it imports no state machine and opens no journal.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.store import absolute_urls, open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_storage.store import Store


def canonical(path: str) -> str:
    """Return the address in its one form, which means the same on every machine. Raises `InvalidOption`.

    Several addresses have commas between them: any journal nodes of one cluster.
    """
    return ",".join(absolute_urls(path))


@functools.lru_cache(maxsize=16)
def stores_at(address: str) -> Callable[[str], Store]:
    """Return what opens the stores of the cluster at `address`, by the addresses of their nodes, once in this process.

    `canonical` made the address. Touches nothing. What is returned raises `InvalidOption`, `CorruptObject`.
    """

    @functools.cache
    def store_at(url: str) -> Store:
        if url != AT_THE_ROOT:
            return open_store(url)
        if "," in address:  # where the journals are on several nodes, no node is named by the root
            raise CorruptObject(f"the journal of the cluster at {address}", f"a node's address in it is {url!r}")
        return open_store(address)

    return store_at


@functools.lru_cache(maxsize=16)
def log_at(address: str) -> Log:
    """Return the log at `address`, which `canonical` made, as far as this process has opened it.

    Raises `InvalidOption`, `StoreError`.
    """
    from pyspark_log_coordinator.log.log import Log

    log = Log([open_store(url) for url in address.split(",")], real_environment())
    log.locate()
    return log


def own_log(path: str) -> Log:
    """Return a log at `path` that nobody else has, for a thread of its own; not opened. Raises `InvalidOption`."""
    from pyspark_log_coordinator.log.log import Log

    return Log([open_store(url) for url in canonical(path).split(",")], real_environment())


def open_log(path: str, *, create: bool = False) -> Log:
    """Return the log at `path`, opened. The same address gives the same object, whose journals stay read.

    Raises `NoCluster` where there is none and `create` is not set; `InvalidOption`, `NodeMissing`, `StoreError`.
    """
    log = log_at(canonical(path))
    log.open(create=create)
    return log
