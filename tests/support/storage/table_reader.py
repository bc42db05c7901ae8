"""Tables read by the words of Delta's protocol: no line of the product is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.support.storage.parquet_bytes import read_parquet


def live_files(objects: Mapping[str, bytes], folder: str) -> dict[str, dict[str, Any]]:
    """Return the actions that add the table's files, by path."""
    log = f"{folder}_delta_log/"
    names = [key.removeprefix(log) for key in objects if key.startswith(log)]
    newest = max((int(name[:20]) for name in names if name.endswith(".checkpoint.parquet")), default=-1)
    actions: list[dict[str, Any]] = []
    if newest >= 0:
        actions += read_parquet(objects[f"{log}{newest:020d}.checkpoint.parquet"]).to_pylist()
    for version in sorted(int(name[:20]) for name in names if name.endswith(".json")):
        if version > newest:
            actions += map(json.loads, objects[f"{log}{version:020d}.json"].splitlines())
    found: dict[str, dict[str, Any]] = {}
    for action in actions:
        for kind in ("add", "remove"):
            if file := action.get(kind):
                assert not file.get("deletionVector"), "other engines may not read it"
                found.pop(file["path"], None)
                if kind == "add":
                    found[file["path"]] = file
    return found


def rows_in(objects: Mapping[str, bytes], folder: str, columns: list[str]) -> list[tuple[Any, ...]]:
    """Return the rows of the table in a folder, which ends with "/", in the order of its files."""
    found = []
    for path, added in sorted(live_files(objects, folder).items()):
        rows = read_parquet(objects[f"{folder}{path}"], columns=columns)
        assert json.loads(added["stats"])["numRecords"] == rows.num_rows
        found += [tuple(row.values()) for row in rows.to_pylist()]
    return found
