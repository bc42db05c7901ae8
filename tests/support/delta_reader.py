"""The Delta table of a topic as other engines see it: read by delta-rs and pyarrow, without a line of the product."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import deltalake
import pyarrow.dataset as ds

Rows = dict[int, dict[int, bytes]]
"""Values by partition and offset."""


class DeltaFolder:
    """A folder on a disk with a copy of what a store in memory has of a table."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stored: dict[str, bytes] = {}

    def take(self, objects: Mapping[str, bytes], folder: str) -> None:
        """Make the folder what the store has in `folder`: the table's log, and all Parquet files."""
        new = {
            key.removeprefix(folder): data
            for key, data in objects.items()
            if key.startswith(folder) and ("/_delta_log/" in f"/{key}" or key.endswith(".parquet"))
        }
        for name in self._stored.keys() - new.keys():
            (self._path / name).unlink()
        for name, data in new.items():
            if self._stored.get(name) != data:
                path = self._path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        self._stored = new

    def read(self) -> tuple[int, Rows] | None:
        """Return the newest version of the table and its rows, each once, or None if there is no table yet."""
        if not any(name.startswith("_delta_log/") for name in self._stored):
            return None
        table = deltalake.DeltaTable(str(self._path))
        return table.version(), rows_of(table)


def rows_of(table: deltalake.DeltaTable) -> Rows:
    """Return a table's rows by partition and offset, which no two rows may share."""
    found: Rows = {}
    files = table.file_uris()
    if not files:
        return found
    columns = ["partition", "offset", "value"]
    rows = ds.dataset(files).to_table(columns=columns)
    for partition, offset, value in zip(*(rows.column(each).to_pylist() for each in columns), strict=True):
        of_partition = found.setdefault(partition, {})
        assert offset not in of_partition, f"partition {partition} has offset {offset} twice"
        of_partition[offset] = value
    return found
