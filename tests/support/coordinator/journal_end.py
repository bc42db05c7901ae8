"""What stays of a journal that has ended."""

from pyspark_log_coordinator.journal import snapshot
from pyspark_log_coordinator.journal.journal_entry import slot_of
from pyspark_log_storage import layout


def end_keys(journal):
    """Return the keys of the newest known entry, on any of its stores, and of its snapshot."""
    folder = layout.entries(journal.folder, journal.place.generation)
    keys = {key for store in journal.place.stores for key in store.list(folder)}
    entry = sorted(key for key in keys if slot_of(key.removeprefix(folder)) == journal.number)
    return *entry, snapshot.key(journal.folder, journal.number)
