"""Opening: the log at an address, kept warm from one call to the next of a process."""

from __future__ import annotations

import functools

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log import Log
from pyspark_log_storage.store import absolute_urls, open_store


def canonical(path: str) -> str:
    """Return the address in its one form, which means the same on every machine. Raises `InvalidOption`.

    Several addresses have commas between them: any journal nodes of one cluster.
    """
    return ",".join(absolute_urls(path))


@functools.lru_cache(maxsize=16)
def log_at(address: str) -> Log:
    """Return the log at `address`, which `canonical` made, as far as this process has opened it.

    For tasks, which were told what to read and write: to open the log again would cost each of them its price.
    Raises `InvalidOption`, `StoreError`.
    """
    log = Log([open_store(url) for url in address.split(",")], real_environment())
    log.locate()
    return log


def own_log(path: str) -> Log:
    """Return a log at `path` that nobody else has, for a thread of its own; not opened. Raises `InvalidOption`."""
    return Log([open_store(url) for url in canonical(path).split(",")], real_environment())


def open_log(path: str, *, create: bool = False) -> Log:
    """Return the log at `path`, opened. The same address gives the same object, whose journals stay read.

    Raises `NoCluster` where there is none and `create` is not set; `InvalidOption`, `NodeMissing`, `StoreError`.
    """
    log = log_at(canonical(path))
    log.open(create=create)
    return log
