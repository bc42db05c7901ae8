"""A process that trims a journal until it is stopped: `python -m tests.support.coordinator.trim_worker <roots>`.

The roots have commas between them. With a name and a count behind them it adds items instead. Snapshots
are close together.
"""

import sys

from pyspark_log_coordinator.journal import journal as journal_module
from pyspark_log_coordinator.journal import trimming
from pyspark_log_storage.errors import ObjectMissing
from pyspark_log_storage.stores.local import LocalStore
from tests.support.coordinator.item_list import AddItems
from tests.support.coordinator.local_stores import open_at

STOP = "stop"
"""The object that ends the trimming."""


def is_told_to_end(store: LocalStore) -> bool:
    try:
        return store.size(STOP) >= 0
    except ObjectMissing:
        return False


if __name__ == "__main__":
    journal_module.SNAPSHOT_EVERY = 8
    roots, *words = sys.argv[1:]
    store = LocalStore(roots.split(",")[0])
    journal = open_at(roots.split(","))
    if words:
        name, count = words
        for i in range(int(count)):
            journal.submit(AddItems((f"{name}-{i}",)))
    else:
        trimmed = 0
        while not is_told_to_end(store):
            trimmed += trimming.trim(journal)
        print(trimmed)
