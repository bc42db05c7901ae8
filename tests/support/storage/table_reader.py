"""Tables read by the words of Delta's protocol: no line of the product is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from tests.support.storage.parquet_bytes import read_parquet

LOG = "_delta_log/"


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
            assert not action["add"].get("deletionVector"), "other engines may not read it"
            self.files[action["add"]["path"]] = action["add"]
        elif action.get("remove"):
            self.files.pop(action["remove"]["path"], None)
        elif action.get("txn"):
            self.entries[action["txn"]["appId"]] = action["txn"]["version"]


def table_of(data: Mapping[str, bytes], folder: str) -> Table:
    """Return the table in a topic's folder of a store."""
    log = f"{folder}{LOG}"
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


def rows_in(objects: Mapping[str, bytes], folder: str, columns: list[str]) -> list[tuple[Any, ...]]:
    """Return the rows of the table in a folder, which ends with "/", in the order of its files."""
    found = []
    for path, added in sorted(table_of(objects, folder).files.items()):
        rows = read_parquet(objects[f"{folder}{path}"], columns=columns)
        assert json.loads(added["stats"])["numRecords"] == rows.num_rows
        found += [tuple(row.values()) for row in rows.to_pylist()]
    return found
