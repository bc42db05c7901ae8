"""Deletion vectors, and tables with them, read by the words of Delta's protocol: no line of the product is used."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from tests.support.storage.parquet_bytes import read_parquet

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def rows_of(vector: Mapping[str, Any]) -> list[int]:
    """Return the rows of a vector, by PROTOCOL.md, RFC 32 (Z85) and Roaring's specification of its format."""
    assert vector["storageType"] == "i"
    assert vector.get("offset") is None
    data, text = b"", vector["pathOrInlineDv"]
    for start in range(0, len(text), 5):
        number = 0
        for digit in text[start : start + 5]:
            number = number * 85 + DIGITS.index(digit)
        data += struct.pack(">I", number)
    assert 0 <= len(data) - vector["sizeInBytes"] < 4
    data = data[: vector["sizeInBytes"]]
    assert struct.unpack_from("<IqI", data) == (1681511377, 1, 0)
    bitmap = data[16:]
    cookie, count = struct.unpack_from("<II", bitmap)
    assert cookie == 12346
    rows: list[int] = []
    end = 0
    for number in range(count):
        key, last = struct.unpack_from("<HH", bitmap, 8 + 4 * number)
        (position,) = struct.unpack_from("<I", bitmap, 8 + 4 * count + 4 * number)
        if last < 4096:
            lows = list(struct.unpack_from(f"<{last + 1}H", bitmap, position))
            end = position + 2 * (last + 1)
        else:
            words = struct.unpack_from("<1024Q", bitmap, position)
            lows = [64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1]
            end = position + 8192
            assert len(lows) == last + 1
        rows += [key << 16 | low for low in lows]
    assert end == len(bitmap)
    assert len(rows) == vector["cardinality"]
    return rows


def live_files(objects: Mapping[str, bytes], folder: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the actions that add the table's files, by path and text of the vector: the key of a logical file."""
    log = f"{folder}_delta_log/"
    names = [key.removeprefix(log) for key in objects if key.startswith(log)]
    newest = max((int(name[:20]) for name in names if name.endswith(".checkpoint.parquet")), default=-1)
    actions: list[dict[str, Any]] = []
    if newest >= 0:
        data = objects[f"{log}{newest:020d}.checkpoint.parquet"]
        actions += read_parquet(data).to_pylist()
    for version in sorted(int(name[:20]) for name in names if name.endswith(".json")):
        if version > newest:
            actions += map(json.loads, objects[f"{log}{version:020d}.json"].splitlines())
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for action in actions:
        for kind in ("add", "remove"):
            if file := action.get(kind):
                vector = file.get("deletionVector")
                key = file["path"], vector["pathOrInlineDv"] if vector else ""
                found.pop(key, None)
                if kind == "add":
                    found[key] = file
    return found


def rows_in(objects: Mapping[str, bytes], folder: str, columns: list[str]) -> list[tuple[Any, ...]]:
    """Return the rows of the table in a folder, which ends with "/", in the order of its files."""
    found = []
    for (path, _), added in sorted(live_files(objects, folder).items()):
        rows = read_parquet(objects[f"{folder}{path}"], columns=columns)
        assert json.loads(added["stats"])["numRecords"] == rows.num_rows
        vector = added.get("deletionVector")
        dead = set(rows_of(vector)) if vector else set()
        assert all(row < rows.num_rows for row in dead)
        found += [tuple(row.values()) for number, row in enumerate(rows.to_pylist()) if number not in dead]
    return found
