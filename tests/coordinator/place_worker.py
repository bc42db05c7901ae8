"""A process that puts things on a shelf: `python -m tests.coordinator.place_worker <roots> <name> <count>`."""

import sys

from tests.coordinator.local_stores import open_at
from tests.coordinator.shelf import Place

if __name__ == "__main__":
    roots, name, count = sys.argv[1:]
    shelf = open_at(roots.split(","))
    for i in range(int(count)):
        shelf.submit(Place((f"{name}-{i}",)))
