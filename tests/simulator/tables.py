"""The Delta tables of the topic, as seen by a reader that knows Delta's protocol and nothing of the product.

A version that is published has exactly the rows of the topic's Parquet segments at the entry that it names: of each
partition those from the first segment on, up to the first that is no Parquet or that the node does not hold. That of a
compacted topic has the newest row of each key in the keyed segments, of partitions of which the node holds all. What
the newest version names is never deleted.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from pyspark_log_coordinator.model.partition import SegmentRef
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication import replicas
from tests.simulator.invariants import Rows, require
from tests.support.storage.parquet_bytes import read_parquet
from tests.support.storage.table_reader import LOG, Table, table_of


def is_table(key: str) -> bool:
    """Return whether an object is of a table's log."""
    return f"/{LOG}" in key


def expected_files(state: Topic, node: str) -> dict[str, SegmentRef]:
    """Return the paths that a node's table must have at a state, with their segments."""
    found = {}
    for number, partition in enumerate(state.partitions):
        held = list(itertools.takewhile(lambda each: replicas.is_held(each.holders, node), partition.segments))
        if state.config.is_compacted:
            head = [each for each in partition.segments if each.keyed is not None]
            held = [each for each in head if each.keyed.placeholder is None] if held[: len(head)] == head else []
        for segment in itertools.takewhile(lambda each: each.name.endswith(".parquet"), held):
            found[f"{number}/{segment.name}"] = segment
    return found


def hold_heads(data: Mapping[str, bytes], folder: str, table: Table, where: str) -> None:
    """Hold that a table has one row of each key in a partition, and no row without a key."""
    keys: set[Any] = set()
    for path in table.files:
        partition = path.partition("/")[0]
        for key in read_parquet(data[f"{folder}{path}"], columns=["key"]).column(0).to_pylist():
            require(key is not None, f"{where} has a row without a key")
            require((partition, key) not in keys, f"{where} has two rows of {key!r}")
            keys.add((partition, key))


class Tables:
    """The tables of all nodes, and what was published."""

    def __init__(self) -> None:
        self.published = 0
        self._newest: dict[str, tuple[int, int]] = {}
        """The version that was published last, and its entry, by node."""

    def created(
        self,
        rows: Rows,
        node: str,
        data: Mapping[str, bytes],
        key: str,
        *,
        was_away: bool = False,
    ) -> None:
        """Hold that a version that was published is what the topic was at its entry."""
        if not key.endswith(".json"):
            return
        table = table_of(data, rows.topic_folder)
        if table.lack:  # who publishes has read a table, in whose place another one, or none, is by now
            require(was_away, f"node {node}: {table.lack}")
            return
        version = int(key.rsplit("/", 1)[1][:20])
        if version != table.version:
            require(version < table.version, f"version {version} of the table on node {node} is not read by anybody")
            return  # somebody slept, and its place was free again
        (entry,) = table.entries.values()
        require(entry <= rows.number, f"version {version} is of entry {entry}, and the newest is {rows.number}")
        known, before = self._newest.get(node, (-2, 0))
        require(known + 1 != version or before <= entry, f"entry {entry} is published after entry {before}")
        self._newest[node] = version, entry
        is_compacted = rows.states[entry].config.is_compacted
        wanted = expected_files(rows.states[entry], node)
        where = f"version {version} of the table on node {node}, of entry {entry},"
        require(table.files.keys() == wanted.keys(), f"{where} has {sorted(table.files)}, and not {sorted(wanted)}")
        for path, segment in wanted.items():
            stats = json.loads(table.files[path]["stats"])
            bounds = [stats["minValues"].get("offset"), stats["maxValues"].get("offset"), stats["numRecords"]]
            first, last = (None, None) if segment.keyed else (segment.base_offset, segment.end_offset - 1)
            require(bounds == [first, last, segment.rows], f"{where} says that {path} has {bounds}")
        if is_compacted:
            hold_heads(rows.files.data, rows.topic_folder, table, where)
        self.published += 1

    def deleting(self, rows: Rows, node: str, data: Mapping[str, bytes], key: str) -> None:
        """Hold that a Parquet file goes only after it has left the table."""
        table, path = table_of(data, rows.topic_folder), key.removeprefix(rows.topic_folder)
        require(table.lack or path not in table.files, f"{key} goes, and the table of {node} names it")


def hold_finished(rows: Rows, node: str, data: Mapping[str, bytes]) -> int:
    """Hold that a node's table has all rows that it may have, and return how many these are.

    That a file has the rows of its segment was held when that was swapped in.
    """
    table, wanted = table_of(data, rows.topic_folder), expected_files(rows.states[-1], node)
    require(not table.lack, f"node {node}: {table.lack}")
    require(table.files.keys() == wanted.keys(), f"node {node}: {sorted(table.files)} are published, not {wanted}")
    for key in (f"{rows.topic_folder}{path}" for path in wanted):
        require(data[key] == rows.files.data[key], f"{key} is not what was written")
    return sum(each.rows for each in wanted.values())
