"""Key indexes: the keys of rows, as their hashes, with the offsets of the rows; and which rows are the newest.

Keys are compared by the 96 bits of `key_hash`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pyspark_log_storage.columns.key_hash import key_hashes

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from numpy.typing import NDArray

    Offsets = NDArray[np.int64]

NONE = np.zeros(0, np.int64)
"""No offsets."""


class Keys(NamedTuple):
    """Hash and check of the keys of rows, and the rows' offsets, in whole numbers of any width."""

    hashes: NDArray[np.uint64]
    checks: NDArray[np.uint32]
    offsets: NDArray[Any]


def keys_of(column: pa.Array, offsets: Offsets) -> Keys:
    """Return the keys in a column of rows with these offsets; rows whose key is null are left out."""
    if column.null_count:
        offsets = offsets[np.asarray(column.is_valid())]
        column = column.drop_null()
    return Keys(*key_hashes([column]), offsets)


def joined(keys: Iterable[Keys]) -> Keys:
    """Return keys as they are, one after the other."""
    empty = Keys(np.zeros(0, np.uint64), np.zeros(0, np.uint32), NONE)
    return Keys(*map(np.concatenate, zip(empty, *keys, strict=True)))


def newest(keys: Keys) -> Keys:
    """Return each key once, in the order of hash and check, with its largest offset.

    `keys` are in the order of their offsets.
    """
    hashes, checks, offsets = keys
    order = np.argsort(hashes, kind="stable")
    sorted_hashes, sorted_checks = hashes[order], checks[order]
    is_same = sorted_hashes[1:] == sorted_hashes[:-1]
    if (is_same & (sorted_checks[1:] != sorted_checks[:-1])).any():  # two keys with one hash: next to never
        order = np.lexsort((checks, hashes))
        sorted_hashes, sorted_checks = hashes[order], checks[order]
        is_same = (sorted_hashes[1:] == sorted_hashes[:-1]) & (sorted_checks[1:] == sorted_checks[:-1])
    is_last = np.ones(len(order), bool)
    is_last[:-1] = ~is_same
    chosen = order[is_last]
    return Keys(hashes[chosen], checks[chosen], offsets[chosen])


def found_in(index: Keys, wanted: Keys) -> NDArray[Any]:
    """Return the offsets of the rows in an index, which is in order, that have one of the wanted keys."""
    places = np.searchsorted(index.hashes, wanted.hashes)
    found = [index.offsets[:0]]
    hashes, checks = wanted.hashes, wanted.checks
    while len(places):
        is_inside = places < len(index.hashes)
        places, hashes, checks = places[is_inside], hashes[is_inside], checks[is_inside]
        is_hash = index.hashes[places] == hashes
        places, hashes, checks = places[is_hash], hashes[is_hash], checks[is_hash]
        is_key = index.checks[places] == checks
        found.append(index.offsets[places[is_key]])
        places, hashes, checks = places[~is_key] + 1, hashes[~is_key], checks[~is_key]
    return np.concatenate(found)


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
