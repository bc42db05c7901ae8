"""Entries that nobody decided, whole and in the chain: what a forger, or a faulty machine, writes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from pyspark_log_coordinator.journal import journal_entry
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.journal_entry import Entry
from pyspark_log_storage.stores.store import Store


def forge(store: Store, journal: Journal[Any, Any], *events: Any) -> str:
    """Write the next entry of a journal on one store; return its name. `journal` does not know of it yet."""
    journal.refresh()
    encoded = msgspec.Raw(msgspec.msgpack.encode(events))
    entry = Entry("f" * 32, 0, journal.last_hash, encoded)
    key = journal_entry.place(journal.folder, journal.number + 1)
    store.put(key, journal_entry.encode(entry))
    return journal.entries.name(journal.number + 1)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail what has not ended in so many seconds: it would never end."""

    def fail(*_: object) -> None:
        raise AssertionError(f"it did not end in {seconds} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
