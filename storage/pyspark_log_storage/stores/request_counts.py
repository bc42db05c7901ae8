"""Counters of the requests to stores: how many of each operation, and the bytes that they sent and received.

The counters belong to the process: all stores at one address share them. A local store counts nothing, so that it pays
nothing. `pyspark-log metrics` shows the counters of its process.
"""

from __future__ import annotations

import os
from typing import NamedTuple


class Requests(NamedTuple):
    number: int = 0
    sent: int = 0
    received: int = 0


class RequestCounts(dict[str, Requests]):
    """The requests to one store, by operation. One thread adds to them: that of fsspec's event loop."""

    def add(self, operation: str, *, sent: int = 0, received: int = 0) -> None:
        """Count a request; an attempt that failed is one too. Sizes of the bodies are in bytes."""
        before = self.get(operation, Requests())
        self[operation] = Requests(before.number + 1, before.sent + sent, before.received + received)

    def total(self) -> Requests:
        return Requests(*(sum(numbers) for numbers in zip(*list(self.values()), strict=True)))


_counts: dict[str, RequestCounts] = {}


def counts_of(url: str) -> RequestCounts:
    """Return the process's counters for the store at a canonical address, which has no login in it."""
    return _counts.setdefault(url, RequestCounts())


def all_counts() -> dict[str, RequestCounts]:
    """Return the counters of all stores that count their requests, by address."""
    return dict(_counts)


os.register_at_fork(after_in_child=_counts.clear)  # a forked process counts its own
