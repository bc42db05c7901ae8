"""A process that puts things on a shelf: `python -m tests.coordinator.place_worker <root> <name> <count>`."""

import sys

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_storage.local import LocalStore
from tests.coordinator.shelf import Place, open_shelf

if __name__ == "__main__":
    root, name, count = sys.argv[1:]
    shelf = open_shelf(LocalStore(root), real_environment())
    for i in range(int(count)):
        shelf.submit(Place((f"{name}-{i}",)))
