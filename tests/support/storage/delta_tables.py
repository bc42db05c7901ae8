"""A Delta table for tests of its decoders."""

from pyspark_log_storage.delta import delta_log
from pyspark_log_storage.delta.delta_actions import Action, AddFile, Metadata, Transaction
from tests.support.memory_store import MemoryStore

ACTIONS = [
    delta_log.commit_info(1, "WRITE"),
    Action(protocol=delta_log.PROTOCOL),
    Action(metadata=Metadata(id="x", schema_string="{}")),
    Action(txn=Transaction("x", 1)),
    Action(add=AddFile(path="0/a", size=1, modification_time=1, data_change=True, partition_values={})),
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
