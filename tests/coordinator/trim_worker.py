"""A process that trims a shelf's journal until it is told to end: `python -m tests.coordinator.trim_worker <roots>`.

The roots have commas between them. With a name and a count behind them it puts things on the shelf instead. Snapshots
are close together.
"""

import sys

from pyspark_log_coordinator.journal import journal
from pyspark_log_storage.errors import ObjectMissing
from pyspark_log_storage.local import LocalStore
from tests.coordinator.local_stores import open_at
from tests.coordinator.shelf import Place

STOP = "stop"
"""The object that ends the trimming."""


def is_told_to_end(store: LocalStore) -> bool:
    try:
        return store.size(STOP) >= 0
    except ObjectMissing:
        return False


if __name__ == "__main__":
    journal.SNAPSHOT_EVERY = 8
    roots, *words = sys.argv[1:]
    store = LocalStore(roots.split(",")[0])
    shelf = open_at(roots.split(","))
    if words:
        name, count = words
        for i in range(int(count)):
            shelf.submit(Place((f"{name}-{i}",)))
    else:
        trimmed = 0
        while not is_told_to_end(store):
            trimmed += shelf.trim()
        print(trimmed)
