"""The Delta tables of the topic, as seen by a reader that knows Delta's protocol and nothing of the product.

A version that is published has exactly the rows of the topic's Parquet segments at the entry that it names: of each
partition those from the first segment on, up to the first that is no Parquet or that the node does not hold. What the
newest version names is never deleted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication import replicas
from tests.simulator.invariants import Rows, require

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
        checkpoint = pq.read_table(pa.BufferReader(data[f"{log}{newest:020d}.checkpoint.parquet"]))
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


def expected_files(state: Topic, node: str) -> dict[str, tuple[int, int, int]]:
    """Return the paths that a node's table must have at a state, with partition, first offset and end."""
    found = {}
    for number, partition in enumerate(state.partitions):
        for segment in partition.segments:
            if not segment.name.endswith(".parquet") or not replicas.is_held(segment.holders, node):
                break
            found[f"{number}/{segment.name}"] = number, segment.base_offset, segment.end_offset
    return found


class Tables:
    """The tables of all nodes, and what was published."""

    def __init__(self) -> None:
        self.published = 0
        self._newest: dict[str, tuple[int, int]] = {}
        """The version that was published last, and its entry, by node."""

    def created(self, rows: Rows, node: str, data: Mapping[str, bytes], key: str, *, was_wiped: bool = False) -> None:
        """Hold that a version that was published is what the topic was at its entry."""
        if not key.endswith(".json"):
            return
        table = table_of(data, rows.topic_folder)
        if table.lack:  # who publishes has read a table, which was wiped before the next version came
            require(was_wiped, f"node {node}: {table.lack}")
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
        wanted = expected_files(rows.states[entry], node)
        where = f"version {version} of the table on node {node}, of entry {entry},"
        require(table.files.keys() == wanted.keys(), f"{where} has {sorted(table.files)}, and not {sorted(wanted)}")
        for path, (_, start, end) in wanted.items():
            stats = json.loads(table.files[path]["stats"])
            bounds = stats["minValues"]["offset"], stats["maxValues"]["offset"] + 1, stats["numRecords"]
            require(bounds == (start, end, end - start), f"{where} says that {path} has {bounds}")
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
    return sum(end - start for _, start, end in wanted.values())
