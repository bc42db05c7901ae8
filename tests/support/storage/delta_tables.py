"""A Delta table for tests of its decoders."""

import msgspec
import numpy as np

from pyspark_log_storage.delta import deletion_vector, delta_log
from pyspark_log_storage.delta.delta_actions import Action, AddFile, Metadata, Transaction
from tests.support.memory_store import MemoryStore

VECTOR_ROWS = 70_000
VECTOR = deletion_vector.encode(np.array([3, 4, 7, 65_535, 65_536, *range(66_000, VECTOR_ROWS, 2)]))
"""That of a file with so many rows."""

ACTIONS = [
    delta_log.commit_info(1, "WRITE"),
    Action(protocol=delta_log.PROTOCOL),
    Action(metadata=Metadata(id="x", schema_string="{}")),
    Action(txn=Transaction("x", 1)),
    Action(
        add=AddFile(
            path="0/a", size=1, modification_time=1, data_change=True, partition_values={}, deletion_vector=VECTOR
        )
    ),
]
_FOLDER = "topics/t/x/"


def with_last_checkpoint(data: bytes) -> delta_log.DeltaTable:
    """Read a table with a checkpoint, whose `_last_checkpoint` has these bytes."""
    store = MemoryStore()
    table = delta_log.DeltaTable()
    table.apply(ACTIONS)
    delta_log.write_checkpoint(store, _FOLDER, table)
    store.put(f"{delta_log.log_of(_FOLDER)}_last_checkpoint", data)
    return delta_log.read(store, _FOLDER)


def vector_of(data: bytes) -> object:
    """Read the text of a deletion vector."""
    vector = msgspec.structs.replace(VECTOR, path_or_inline_dv=data.decode(errors="replace"))
    return deletion_vector.decode(vector, VECTOR_ROWS, "it")
