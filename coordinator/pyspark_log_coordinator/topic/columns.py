"""The columns of a typed topic, as its journal knows them: which change is an entry, and which is refused.

    EvolveSchema -> SchemaEvolved    the columns wanted are merged with the newest ones; nothing if these hold them
    AlterConfig  -> ConfigAltered    key.column is set once, by the first writer that names it or by an operator

A writer submits the columns that it wants to write, not the topic's new schema. So the journal orders two writers that
evolve a topic at once: the second's columns are merged with the first's result, or refused by name. The rules of
columns are in storage (`schema_evolution`), which needs Arrow: it is imported only where a schema changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model import topic_config
from pyspark_log_coordinator.model.topic_state import TopicCommand
from pyspark_log_storage.columns.compaction_columns import key_columns_of
from pyspark_log_storage.errors import InvalidOption, InvalidRecord
from pyspark_log_storage.stored_fields import Int64

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_log_coordinator.model.topic_config import TopicConfig
    from pyspark_log_coordinator.model.topic_state import Topic

SCHEMAS_MAX = 1000
"""How many schemas a topic may have. Each of them is in every snapshot."""


class EvolveSchema(TopicCommand, frozen=True):
    """Let the topic hold rows with these columns."""

    columns: bytes
    """An Arrow schema: the columns without `timestamp`."""
    relax: bool = False
    """Whether columns that exist become nullable where these are. A writer's frame says nothing of that."""


class SchemaEvolved(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """New chunks may have this schema, whose number is the next one. Older rows are read as rows of it."""

    schema: bytes
    at_ms: Int64
    """The writer's clock."""


def decide(topic: Topic, command: EvolveSchema, now: int) -> list[SchemaEvolved]:
    """Return the evolution, none if the newest schema holds such rows. Raises `InvalidRecord`."""
    from pyspark_log_storage.columns import schema, schema_evolution

    where = f"topic {topic.name!r}"
    known = schema.decode_all(topic.schemas[-1:], where)
    if not known or not schema.is_typed(known[0]):
        raise InvalidRecord(
            f"{where} holds records (key and value), and has no columns to evolve; write key and value, or create "
            "another topic with a schema"
        )
    wanted = schema.decode(command.columns, "the columns to write")
    newest = schema.columns_of(known[0])
    try:
        merged = schema.typed(schema_evolution.merge(newest, wanted, relax=command.relax))
    except InvalidRecord as error:
        raise InvalidRecord(f"{where}: {error}") from error
    if merged.equals(known[0]):
        return []
    if topic.config.key_column:
        for key in key_columns_of(topic.config.key_column):
            _check_key_type(where, key, newest, merged)
    if len(topic.schemas) >= SCHEMAS_MAX:
        raise InvalidRecord(
            f"{where} has {SCHEMAS_MAX} schemas, the maximum; create a new topic with all columns, and write there"
        )
    return [SchemaEvolved(schema.encode(merged), now)]


def _check_key_type(where: str, key: str, before: pa.Schema, after: pa.Schema) -> None:
    """Raise `InvalidRecord` if values of the key column would have other bytes, and so be in other partitions."""
    from pyspark_log_storage.columns.column_types import type_name

    old, new = before.field(key).type, after.field(key).type
    if old != new:
        raise InvalidRecord(
            f"{where}: column '{key}' is the topic's key.column, and rows of a key would be in two partitions if it "
            f"became {type_name(new)}; cast it to {type_name(old)} before the write"
        )


def with_columns(topic: Topic, changed: TopicConfig) -> TopicConfig:
    """Return a changed configuration with the columns that it names. Raises `InvalidOption` if it may not name them."""
    before, after = topic.config.key_column, changed.key_column
    if before and key_columns_of(after.lower()) != key_columns_of(before.lower()):
        raise InvalidOption(
            "key.column",
            f"topic {topic.name!r} has key.column={before}, and rows of a key would be in two partitions with "
            f"key.column={after or 'none'}; keep it, or write to another topic",
        )
    return topic_config.with_columns(topic.name, changed, topic.schemas)


def evolve(topic: Topic, event: SchemaEvolved) -> Topic:
    """Return the topic with one more schema."""
    return msgspec.structs.replace(topic, schemas=(*topic.schemas, event.schema))
