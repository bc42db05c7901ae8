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

import msgspec

from pyspark_log_coordinator.model.partition import SegmentRef
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication import replicas
from tests.simulator.invariants import Rows, require
from tests.support.storage.parquet_bytes import read_parquet

_LOG = "_delta_log/"


class Table(msgspec.Struct):
    """A table as of its newest version."""

    version: int = -1
    files: dict[str, Any] = {}
    """The actions that have added files, by path."""
    entries: dict[str, int] = {}
    """The newest entry that was noted, by the topic's id."""
    lack: str = ""
    """What is missing, where nobody can read the table."""

    def apply(self, action: Mapping[str, Any]) -> None:
        if action.get("add"):
            self.files[action["add"]["path"]] = action["add"]
        elif action.get("remove"):
            self.files.pop(action["remove"]["path"], None)
        elif action.get("txn"):
            self.entries[action["txn"]["appId"]] = action["txn"]["version"]


def is_table(key: str) -> bool:
    """Return whether an object is of a table's log."""
    return f"/{_LOG}" in key


def table_of(data: Mapping[str, bytes], folder: str) -> Table:
    """Return the table in a topic's folder of a store."""
    log = f"{folder}{_LOG}"
    names = [key.removeprefix(log) for key in data if key.startswith(log)]
    versions = sorted(int(name[:20]) for name in names if name.endswith(".json"))
    newest = max((int(name[:20]) for name in names if name.endswith(".checkpoint.parquet")), default=-1)
    found = Table(newest)
    if "_last_checkpoint" in names:
        hint = json.loads(data[f"{log}_last_checkpoint"])["version"]
        if hint > newest:
            found.lack = f"_last_checkpoint names {hint}, and {newest} is the newest checkpoint"
    if newest >= 0:
        checkpoint = read_parquet(data[f"{log}{newest:020d}.checkpoint.parquet"])
        for action in checkpoint.to_pylist():
            found.apply(action)
    for version in versions:
        if version > newest:
            if version != found.version + 1:
                found.lack = f"version {version} of the table comes after {found.version}"
            found.version = version
            for line in data[f"{log}{version:020d}.json"].splitlines():
                found.apply(json.loads(line))
    return found


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
