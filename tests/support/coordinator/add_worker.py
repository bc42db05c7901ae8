"""A process that adds items: `python -m tests.support.coordinator.add_worker <roots> <name> <count>`."""

import sys

from tests.support.coordinator.item_list import AddItems
from tests.support.coordinator.local_stores import open_at

if __name__ == "__main__":
    roots, name, count = sys.argv[1:]
    journal = open_at(roots.split(","))
    for i in range(int(count)):
        journal.submit(AddItems((f"{name}-{i}",)))
