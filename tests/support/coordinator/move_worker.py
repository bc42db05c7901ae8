"""A process that adds items while their journal is migrated, or migrates it.

    python -m tests.support.coordinator.move_worker

Its words are the folders of each generation, with commas between folders and semicolons between generations, and a name
and a count; or the number of the generation to which the journal moves.
"""

import sys

from pyspark_log_coordinator.journal import journal as journal_module
from pyspark_log_coordinator.journal import trimming
from tests.support.coordinator.item_list import AddItems, MoveJournal
from tests.support.coordinator.local_stores import open_moving

if __name__ == "__main__":
    journal_module.SNAPSHOT_EVERY = 8
    roots, *words = sys.argv[1:]
    journal = open_moving([each.split(",") for each in roots.split(";")])
    if len(words) == 1:
        journal.submit(MoveJournal(int(words[0])))
        journal.refresh()
    else:
        name, count = words
        for i in range(int(count)):
            journal.submit(AddItems((f"{name}-{i}",)))
            if i % 10 == 0:
                trimming.trim(journal)
