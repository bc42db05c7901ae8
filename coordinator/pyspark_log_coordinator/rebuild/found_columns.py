"""The schemas of a topic: those of its description or, if every copy of it is lost, those of its Parquet segments.

A chunk names its schema by number, and nothing else in it names the columns. A Parquet segment has those of the topic's
newest schema when it was written, and each of its row groups names the schema as which it is read, whose columns are
among them. An evolution only adds columns and makes types wider. So the smallest columns of all files with rows of a
schema, or of later ones, hold these rows; they may have more than the schema had, which are null.

Chunks can be read with these columns only if they are exactly theirs. Arrow notices other ones, except for a decimal's
digits. A topic of which chunks cannot be read is not rebuilt, since its journal could never be corrected.

Two columns of text or bytes in chunks alone look like key and value, and are taken for these.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_log_coordinator.rebuild import topic_plan
from pyspark_log_storage import layout
from pyspark_log_storage.columns import schema, schema_evolution
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.parquet import parquet_footer
from pyspark_log_storage.segments import segment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.rebuild.folder_scan import FolderContents, TopicFolder
    from pyspark_log_storage.stores.store import Store

NONE = (
    "its description is lost on every node, and its segments do not tell their columns; put the file `description` of "
    "a backup into its folder, and look again"
)
"""Why a topic is not rebuilt."""


def schemas_of(
    stores: Mapping[NodeId, Store], folder: TopicFolder, found: Mapping[NodeId, FolderContents]
) -> tuple[bytes, ...] | None:
    """Return the stored schemas of a topic; None if rows in whole segments could not be read.

    Reads footers and chunks, if there is no description. Raises `NewerFormat`, `StoreError`.
    """
    description = topic_plan.newest_description(found)
    if description is not None:
        return description.topic.schemas
    copies = {
        f"{folder.prefix}{each.partition}/{each.file.name}": stores[node]
        for node, contents in found.items()
        for each in contents.segments
        if each.why is None
    }
    chunks = [(store, key) for key, store in copies.items() if not layout.is_parquet(key)]
    try:
        files = [_columns(store, key) for key, store in copies.items() if layout.is_parquet(key)]
    except CorruptObject:
        return None
    typed = [(numbers, columns) for numbers, columns in files if columns is not None]
    if len(typed) != len(files) and typed:
        return None
    schemas = _schemas(typed, _newest_in(chunks)) if typed else schema.RECORD_SCHEMAS
    if not schemas or not _can_read(chunks, schemas):
        return None
    return tuple(map(schema.encode, schemas))


def _columns(store: Store, key: str) -> tuple[set[int], pa.Schema | None]:
    """Return the numbers of the schemas in a file, and the columns of a typed topic, or None for records."""
    footer = parquet_footer.read(store, layout.segment_file(key))
    return {each.schema_id for each in footer.entries}, parquet_footer.typed_columns(footer, f"segment {key}")


def _schemas(files: Sequence[tuple[set[int], pa.Schema]], newest: int) -> tuple[pa.Schema, ...]:
    """Return the schemas from 0 on, or none if their order, or which is the newest, is not known."""
    last = max(newest, *(number for numbers, _ in files for number in numbers))
    found: list[pa.Schema] = []
    for number in range(last, -1, -1):
        here = [*found[-1:], *(columns for numbers, columns in files if number in numbers)]
        if not here:
            return ()
        smallest = [one for one in here if all(_becomes(one, each) for each in here)]
        if not smallest:
            return ()
        found.append(smallest[0])
    return tuple(reversed(found))


def _becomes(old: pa.Schema, new: pa.Schema) -> bool:
    return schema_evolution.why_incompatible(schema.columns_of(old), schema.columns_of(new)) is None


def _newest_in(chunks: Sequence[tuple[Store, str]]) -> int:
    return max((each.schema_id for store, key in chunks for each in segment.entries(store, key)), default=0)


def _can_read(chunks: Sequence[tuple[Store, str]], schemas: Sequence[pa.Schema]) -> bool:
    """Return whether chunks can be read with these schemas: all of a typed topic, the first of each segment of records.

    Those of a typed topic that may have decimals cannot: nothing would notice other digits.
    """
    is_typed = schema.is_typed(schemas[0])
    if is_typed and chunks and any("decimal" in str(field.type) for field in schemas[-1]):
        return False
    try:
        for store, key in chunks:
            for _ in itertools.islice(segment.entries(store, key, schemas), None if is_typed else 1):
                pass
    except CorruptObject:
        return False
    return True
