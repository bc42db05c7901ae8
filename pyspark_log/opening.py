"""Opening: the log at an address, kept warm from one call to the next of a process."""

from __future__ import annotations

import functools

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log import Log
from pyspark_log_storage.store import absolute_url, open_store


@functools.lru_cache(maxsize=16)
def log_at(url: str) -> Log:
    """Return the log at `url`, which `absolute_url` made, as far as this process has opened it.

    For tasks, which were told what to read and write: to open the log again would cost each of them its price.
    """
    return Log(open_store(url), real_environment())


def open_log(path: str, *, create: bool = False) -> Log:
    """Return the log at `path`, opened. The same address gives the same object, whose journals stay read.

    Raises `NoCluster` where there is none and `create` is not set; `InvalidOption`, `NodeMissing`, `StoreError`.
    """
    log = log_at(absolute_url(path))
    log.open(create=create)
    return log
