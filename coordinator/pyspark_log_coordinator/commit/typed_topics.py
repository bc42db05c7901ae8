"""Typed topics from a writer's point of view: created with columns, and evolved to hold others.

Before anybody writes rows of a new schema, the nodes have it in the topic's description: the rows of a chunk cannot be
read without, and nothing else on a node tells it if all journals are lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log_coordinator.maintenance import checkpoint_files
from pyspark_log_coordinator.topic.columns import EvolveSchema
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage.columns import schema

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_log_coordinator.log.log import TopicHandle


def set_key(handle: TopicHandle, column: str) -> None:
    """Make a column the topic's key.column unless it is. Raises `InvalidOption` if another one is."""
    if handle.journal.state.config.key_column.lower() != column.lower():
        handle.submit(AlterConfig({"key.column": column}))


def evolve(handle: TopicHandle, columns: pa.Schema, *, relax: bool = False) -> bool:
    """Let the topic hold rows with these columns; return whether it had to change. See `topic.columns`.

    Raises `InvalidRecord`, which names the topic and the column.
    """
    before = handle.journal.state.schemas
    after = handle.submit(EvolveSchema(schema.encode(columns), relax)).state.schemas
    if after == before:
        return False
    checkpoint_files.write_on_nodes(handle)
    return True
