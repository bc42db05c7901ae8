"""A process that trims a shelf's journal until it is told to end: `python -m tests.coordinator.trim_worker <root>`.

With a name and a count behind the root it puts things on the shelf instead. Snapshots are close together.
"""

import sys

from pyspark_log_coordinator import journal
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_storage.errors import ObjectMissing
from pyspark_log_storage.local import LocalStore
from tests.coordinator.shelf import Place, open_shelf

STOP = "stop"
"""The object that ends the trimming."""


def is_told_to_end(store: LocalStore) -> bool:
    try:
        return store.size(STOP) >= 0
    except ObjectMissing:
        return False


if __name__ == "__main__":
    journal.SNAPSHOT_EVERY = 8
    root, *words = sys.argv[1:]
    store = LocalStore(root)
    shelf = open_shelf(store, real_environment())
    if words:
        name, count = words
        for i in range(int(count)):
            shelf.submit(Place((f"{name}-{i}",)))
    else:
        trimmed = 0
        while not is_told_to_end(store):
            trimmed += shelf.trim()
        print(trimmed)
