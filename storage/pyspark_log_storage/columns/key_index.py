"""Key indexes: the keys of rows, as their hashes, with the offsets of the rows; and which rows are the newest.

Keys are compared by the 96 bits of `key_hash`. The newest row of a key has the largest offset. In a topic with
compaction.version.column it has the largest version, and of these the largest offset. A version is a whole number, the
days of a date or the microseconds of a timestamp; that of a row without one is -2^63.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log_storage.columns.key_hash import key_hashes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from pyspark_log_storage.columns.compaction_columns import CompactionColumns

    Offsets = NDArray[np.int64]

NONE = np.zeros(0, np.int64)
"""No offsets."""
NO_VERSION = -(2**63)
"""The version of a row without one."""


class Keys(NamedTuple):
    """Hash and check of the keys of rows, and the rows' offsets, in whole numbers of any width.

    `versions` are those of the rows, None if offsets alone decide which row is newer.
    """

    hashes: NDArray[np.uint64]
    checks: NDArray[np.uint32]
    offsets: NDArray[Any]
    versions: NDArray[np.int64] | None = None

    def chosen(self, which: NDArray[Any]) -> Keys:
        """Return some of the keys, by their places or a mask."""
        versions = None if self.versions is None else self.versions[which]
        return Keys(self.hashes[which], self.checks[which], self.offsets[which], versions)


class Found(NamedTuple):
    """Rows of a key index that have some of the wanted keys."""

    offsets: Offsets
    versions: NDArray[np.int64] | None
    wanted: NDArray[np.intp]
    """The place of each one's key among the wanted ones."""


def keys_in(rows: pa.RecordBatch, offsets: Offsets, columns: CompactionColumns) -> Keys:
    """Return the keys of rows with these offsets, without those that have none.

    Rows of before a column was added may lack it: they have no key, or no version.
    """
    names = rows.schema.names
    if any(each not in names for each in columns.keys):
        return joined((), is_versioned=bool(columns.version))
    versions = None
    if columns.version:
        is_there = columns.version in names
        versions = versions_of(rows.column(columns.version)) if is_there else np.full(rows.num_rows, NO_VERSION)
    return keys_of([rows.column(each) for each in columns.keys], offsets, versions)


def keys_of(columns: Sequence[pa.Array], offsets: Offsets, versions: NDArray[np.int64] | None = None) -> Keys:
    """Return the keys in columns of rows with these offsets; rows in which one of them is null are left out."""
    if any(each.null_count for each in columns):
        is_valid = np.logical_and.reduce([np.asarray(each.is_valid()) for each in columns])
        chosen = pa.array(is_valid)
        columns = [each.filter(chosen) for each in columns]
        offsets = offsets[is_valid]
        versions = None if versions is None else versions[is_valid]
    return Keys(*key_hashes(columns), offsets, versions)


def versions_of(column: pa.Array) -> NDArray[np.int64]:
    """Return the versions in a column of whole numbers, dates (in days) or timestamps (in microseconds)."""
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    return np.asarray(pc.fill_null(column.cast(pa.int64()), NO_VERSION))


def deletes(rows: pa.RecordBatch, columns: CompactionColumns) -> NDArray[np.bool_]:
    """Return which rows delete their key."""
    names = rows.schema.names
    if columns.value and columns.value in names:
        return np.asarray(rows.column(columns.value).is_null())
    if columns.delete_when and columns.delete_when in names:
        return np.asarray(pc.fill_null(rows.column(columns.delete_when), False))
    return np.zeros(rows.num_rows, bool)


def joined(keys: Iterable[Keys], *, is_versioned: bool = False) -> Keys:
    """Return keys as they are, one after the other; all of them have versions, or none."""
    empty = Keys(np.zeros(0, np.uint64), np.zeros(0, np.uint32), NONE, NONE if is_versioned else None)
    hashes, checks, offsets, versions = map(list, zip(empty, *keys, strict=True))
    return Keys(
        np.concatenate(hashes),
        np.concatenate(checks),
        np.concatenate(offsets),
        np.concatenate(versions) if is_versioned else None,
    )


def newest(keys: Keys) -> Keys:
    """Return the newest row of each key, in the order of hash and check.

    `keys` are in the order of their offsets.
    """
    hashes, checks, _, versions = keys
    order = np.argsort(hashes, kind="stable") if versions is None else np.lexsort((versions, hashes))
    sorted_hashes, sorted_checks = hashes[order], checks[order]
    is_same = sorted_hashes[1:] == sorted_hashes[:-1]
    if (is_same & (sorted_checks[1:] != sorted_checks[:-1])).any():  # two keys with one hash: next to never
        order = np.lexsort((checks, hashes) if versions is None else (versions, checks, hashes))
        sorted_hashes, sorted_checks = hashes[order], checks[order]
        is_same = (sorted_hashes[1:] == sorted_hashes[:-1]) & (sorted_checks[1:] == sorted_checks[:-1])
    is_last = np.ones(len(order), bool)
    is_last[:-1] = ~is_same
    return keys.chosen(order[is_last])


def found_in(index: Keys, wanted: Keys) -> Found:
    """Return the rows in an index, which is in order, that have one of the wanted keys."""
    places = np.searchsorted(index.hashes, wanted.hashes)
    those = np.arange(len(places))
    found, found_for = [places[:0]], [those[:0]]
    while len(places):
        is_inside = places < len(index.hashes)
        places, those = places[is_inside], those[is_inside]
        is_hash = index.hashes[places] == wanted.hashes[those]
        places, those = places[is_hash], those[is_hash]
        is_key = index.checks[places] == wanted.checks[those]
        found.append(places[is_key])
        found_for.append(those[is_key])
        places, those = places[~is_key] + 1, those[~is_key]
    at = np.concatenate(found)
    versions = None if index.versions is None else index.versions[at]
    return Found(index.offsets[at], versions, np.concatenate(found_for))


def compared(found: Found, wanted: Keys, dead: Offsets, log_start: int = 0) -> tuple[Offsets, NDArray[np.intp]]:
    """Compare found rows with the wanted ones, which have larger offsets.

    Returns the offsets of the found rows that are older, and the places of the wanted ones that are. Those of the found
    rows whose offsets are in `dead`, which ascends, are superseded already, and not compared. Those before `log_start`
    were deleted, so they are older, whatever their versions.
    """
    is_live = ~is_in(found.offsets, dead)
    if wanted.versions is None or found.versions is None:
        return found.offsets[is_live], found.wanted[:0]
    is_newer = (found.versions > wanted.versions[found.wanted]) & (found.offsets >= log_start)
    return found.offsets[is_live & ~is_newer], found.wanted[is_live & is_newer]


def union(*offsets: Offsets) -> Offsets:
    """Return offsets, each once, ascending. NumPy's `unique` takes twenty times as long."""
    found = np.sort(np.concatenate([NONE, *offsets]))
    is_new = np.ones(len(found), bool)
    is_new[1:] = found[1:] != found[:-1]
    return found[is_new]


def is_in(offsets: Offsets, ascending: Offsets) -> NDArray[np.bool_]:
    """Return which offsets are among others, which ascend."""
    if not len(ascending):
        return np.zeros(len(offsets), bool)
    places = np.searchsorted(ascending, offsets)
    return np.asarray(ascending[np.minimum(places, len(ascending) - 1)] == offsets)
