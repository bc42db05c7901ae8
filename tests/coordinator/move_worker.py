"""A process that puts things on a shelf whose journal moves, or moves it: `python -m tests.coordinator.move_worker`.

Its words are the folders of each generation, with commas between folders and semicolons between generations, and a name
and a count; or the number of the generation to which the journal moves.
"""

import sys

from pyspark_log_coordinator.journal import journal
from tests.coordinator.local_stores import open_moving
from tests.coordinator.shelf import Move, Place

if __name__ == "__main__":
    journal.SNAPSHOT_EVERY = 8
    roots, *words = sys.argv[1:]
    shelf = open_moving([each.split(",") for each in roots.split(";")])
    if len(words) == 1:
        shelf.submit(Move(int(words[0])))
        shelf.refresh()
    else:
        name, count = words
        for i in range(int(count)):
            shelf.submit(Place((f"{name}-{i}",)))
            if i % 10 == 0:
                shelf.trim()
