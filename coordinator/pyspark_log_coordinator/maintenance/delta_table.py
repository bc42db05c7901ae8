"""The Delta table of a topic: on each node, over the Parquet segments that the node holds, without a copy of the rows.

    topics/<topic>/<topic id>/_delta_log/       see `delta_log`; paths are relative, so each node has a complete table

The table is derived from the journal. Each cleanup of the topic publishes the changes. The table records the number of
the journal's entry that it was derived from, as a transaction of the topic's id, so a process with an older state never
sets it back, and publishing again changes nothing.

Before a Parquet file is deleted, a version records an entry by which the segment is no longer in the log. So no version
names a file that is gone: a process that was suspended with an older state finds the newer entry, and gives up.

Of each partition the table has the rows from the first segment on up to the first that is not a Parquet segment, or
that the node does not hold: so there are no gaps and no duplicates. Rows below the log start stay visible until their
segment is deleted.

The table of a compacted topic is the head of each partition instead: at most one row of a key, as of the compacted end.
Rows that delete their key are among them until delete.retention.ms has passed. A partition of which the node lacks a
segment of the head is not in it: a newer row of some key might be missing.

A table that another program has changed, or that is damaged, is published anew: the next version has a checkpoint. It
does not say reliably which entry it has noted, so the journal is read after it, and the newest entry is published.
The same applies if there is no table: it may have been lost with its disk.
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from itertools import takewhile
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import structs

from pyspark_log_coordinator.replication import replicas
from pyspark_log_storage import layout, logs
from pyspark_log_storage.columns import column_types, schema
from pyspark_log_storage.delta import delta_log
from pyspark_log_storage.delta.delta_actions import Action, AddFile, Metadata, Transaction
from pyspark_log_storage.delta.delta_log import DeltaTable
from pyspark_log_storage.errors import CorruptObject, StoreUnavailable, StoreUnwritable
from pyspark_log_storage.objects.node import require_marker
from pyspark_log_storage.parquet.parquet_segment import file_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.log.reachable_stores import ReachableStores
    from pyspark_log_coordinator.model.partition import NodeId, Partition, SegmentRef
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_storage.stores.store import Store

ATTEMPTS = 64
"""How often a version is tried that other processes publish at the same time."""
_TABLES = uuid.UUID("5b0f4a0e-4f0c-4c57-9c0e-7b9f6f1f9a41")
"""The namespace of the tables' ids."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def publish_on_nodes(handle: TopicHandle, nodes: ReachableStores) -> None:
    """Publish what has changed on each node, by the known state, if the topic has Parquet segments or will have."""
    state = handle.journal.state
    has_some = any(each.is_parquet for partition in state.partitions for each in partition.segments)
    if has_some or state.config.segment_format == "parquet":
        entry, now = handle.journal.number, handle.now_ms()
        nodes.each(lambda name, store: publish(store, handle, state, name, entry=entry, now=now))


def publish_before_deletion(handle: TopicHandle, nodes: ReachableStores, keys: Mapping[NodeId, Sequence[str]]) -> None:
    """Publish, where Parquet files are among the `keys` that are to be deleted, what the topic is without them.

    On a disk that takes no writes the deletion may free space, so it continues, and the table is corrected afterwards.
    """
    state, entry, now = handle.journal.state, handle.journal.number, handle.now_ms()
    members = handle.log.cluster.state.nodes

    def look(name: NodeId, store: Store) -> None:
        if len(members) > 1 and name in members:  # else it was removed since the reachable ones were found
            require_marker(store, name, members[name].incarnation)

    def act(name: NodeId, store: Store) -> None:
        parquet = [key for key in keys.get(name, ()) if layout.is_parquet(key)]
        if not parquet:
            return
        look(name, store)  # files of a disk that is not mounted seem to be gone, and would go later when it is
        if not any(store.exists(key) for key in parquet):
            return
        with suppress(StoreUnwritable):
            while publish(store, handle, state, name, entry=entry, now=now, is_noted=True):
                if len(members) == 1:
                    break
                look(name, store)  # a version that was written while the disk was not mounted is hidden now: look again

    nodes.each(act)


def publish(  # noqa: PLR0913 -- what is published, where, and as of when
    store: Store, handle: TopicHandle, state: Topic, node: NodeId, *, entry: int, now: int, is_noted: bool = False
) -> bool:
    """Make a node's table that of the topic's state at a journal entry, at `now` (ms). Return whether it was changed.

    With `is_noted` the table notes the entry even if nothing else changes. A table that is missing or must be published
    anew becomes that of the newest state, whatever `state` is. Raises `StoreError`, and `UnknownTopic` if the topic was
    deleted.
    """
    topic_id = handle.topic_id
    folder = layout.topic_folder(state.name, topic_id)
    for _ in range(ATTEMPTS):
        table, is_sound = _read(store, folder, state.name, node)
        if not is_sound or table.version < 0:
            # Read after the table: what any of its versions has noted is in this state.
            state, entry = handle.refresh(), handle.journal.number
        metadata = metadata_of(state, topic_id)
        known = table.transactions.get(topic_id, 0)
        if is_sound and known > entry:
            return False
        wanted = content(state, node, now)
        actions = changes(table, wanted, metadata, now)
        if is_sound and not actions and (known == entry or not is_noted):
            return False
        noted = [delta_log.commit_info(now, "WRITE"), Action(txn=Transaction(topic_id, entry)), *actions]
        if delta_log.publish(store, folder, table.version + 1, noted):
            table.apply(noted)
            if not is_sound or table.version - table.checkpoint >= delta_log.CHECKPOINT_EVERY:
                delta_log.write_checkpoint(store, folder, table)
                delta_log.delete_versions(store, folder, table.checkpoint if is_sound else table.version)
            return True
    raise StoreUnavailable(store.url, folder, "other processes publish its Delta table all the time; try again")


def content(state: Topic, node: NodeId, now: int) -> dict[str, AddFile]:
    """Return the files of a node's table, by path."""
    shown = _head if state.config.is_compacted else _parquet
    found = ((number, each) for number, partition in enumerate(state.partitions) for each in shown(partition, node))
    return {f"{number}/{each.name}": _file(number, each, now) for number, each in found}


def _parquet(partition: Partition, node: NodeId) -> Iterator[SegmentRef]:
    return takewhile(lambda each: each.is_parquet and replicas.is_held(each.holders, node), partition.segments)


def _head(partition: Partition, node: NodeId) -> Iterator[SegmentRef]:
    head = partition.keyed_segments
    if all(replicas.is_held(each.holders, node) for each in head):
        yield from (each for each in head if each.keyed is not None and each.keyed.placeholder is None)


def _file(number: int, segment: SegmentRef, now: int) -> AddFile:
    """Return what adds a segment of a partition to the table."""
    return AddFile(
        path=f"{number}/{segment.name}",
        size=segment.log_bytes,
        modification_time=now,
        data_change=True,
        partition_values={},
        stats=_stats(number, segment),
    )


def metadata_of(state: Topic, topic_id: str) -> Metadata:
    """Return what the table is: the columns of the newest schema's files."""
    newest = schema.decode_all(state.schemas, f"topic {state.name!r}")[-1]
    return Metadata(
        id=str(uuid.uuid5(_TABLES, topic_id)),
        name=state.name,
        schema_string=json.dumps(column_types.to_json(pa.schema(list(file_schema(newest))))),
    )


def changes(table: DeltaTable, wanted: Mapping[str, AddFile], metadata: Metadata, now: int) -> list[Action]:
    """Return what makes a table the wanted one; nothing if it is that already."""
    found = []
    protocol = delta_log.protocol_of(metadata)
    if table.protocol != protocol:
        found.append(Action(protocol=protocol))
    if table.metadata != metadata:
        found.append(Action(metadata=metadata))
    found += [delta_log.removal(path, now) for path in table.files if path not in wanted]
    return found + [Action(add=each) for path, each in wanted.items() if not _is_same(table.files.get(path), each)]


def _is_same(known: AddFile | None, wanted: AddFile) -> bool:
    """Return whether a table has a file as it is wanted; when it was added makes no difference."""
    return known is not None and structs.replace(known, modification_time=wanted.modification_time) == wanted


def _read(store: Store, folder: str, topic: str, node: NodeId) -> tuple[DeltaTable, bool]:
    """Return the table and True, or False if it must be published anew: then only its files and newest version count.

    The files of a damaged table are not known: readers may see some of them until the next version has its checkpoint.
    """
    try:
        try:
            found = delta_log.read(store, folder)
        except CorruptObject:  # a part seems to be missing if its disk was unmounted meanwhile
            found = delta_log.read(store, folder)
    except CorruptObject as error:
        logs.warning(
            "the Delta table of topic %(topic)r on node %(node)r is damaged, and is published again: %(error)s",
            topic=topic,
            node=node,
            error=error,
        )
        return DeltaTable(delta_log.newest_version(store, folder)), False
    if not found.foreign:
        return found, True
    logs.warning(
        "the Delta table of topic %(topic)r on node %(node)r was changed by another program, in its versions "
        "%(versions)s; the log is unchanged, and the table is corrected",
        topic=topic,
        node=node,
        versions=", ".join(map(str, found.foreign)),
    )
    return DeltaTable(max(found.version, delta_log.newest_version(store, folder)), files=found.files), False


def _stats(partition: int, segment: SegmentRef) -> str:
    """Return a file's statistics: the number of rows, and the smallest and largest values, JSON."""
    low: dict[str, int | str] = {"partition": partition}
    high: dict[str, int | str] = {"partition": partition}
    if segment.keyed is None:  # else its first and last offset need not be there
        low["offset"], high["offset"] = segment.base_offset, segment.end_offset - 1
    with suppress(OverflowError):  # before the year 1, or after 9999: then the file is read for each time
        times = _time(segment.min_timestamp), _time(segment.max_timestamp + 999)
        low["timestamp"], high["timestamp"] = times
    nulls = dict.fromkeys(low, 0)
    found: dict[str, object] = {"numRecords": segment.rows, "minValues": low, "maxValues": high, "nullCount": nulls}
    return json.dumps(found)


def _time(microseconds: int) -> str:
    """Return a time in ms, rounded down, as statistics have it."""
    return (_EPOCH + timedelta(microseconds=microseconds)).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
