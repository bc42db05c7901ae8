"""The live rows of a compacted partition: those of its keyed segments that no list names as superseded. A key has one.

Readers of the newest rows get both of a key that has two. So it is if a compaction did not find the older one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyspark_log_storage.columns.key_index import is_in, joined, union

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_log_coordinator.model.partition import SegmentRef
    from pyspark_log_storage.columns.key_index import Keys, Offsets

KEYS_AT_ONCE = 2**24
"""About how many keys are compared at once."""


def of_one_key(
    segments: Sequence[SegmentRef],
    superseded_by: Callable[[SegmentRef], Offsets],
    keys_of: Callable[[SegmentRef], Keys],
) -> list[tuple[int, int]]:
    """Return the offsets of live rows of keyed segments that have the key of another live row, with those of these.

    For every `KEYS_AT_ONCE` keys, each key index is read once.
    """
    dead = union(*map(superseded_by, segments))
    parts = -(-sum(each.rows for each in segments) // KEYS_AT_ONCE)
    found: list[tuple[int, int]] = []
    for part in range(parts):
        bounds = part * 2**64 // parts, (part + 1) * 2**64 // parts - 1
        keys = joined(_live(keys_of(each), dead, *bounds) for each in segments)
        order = np.lexsort((keys.checks, keys.hashes))
        hashes, checks, offsets = keys.hashes[order], keys.checks[order], keys.offsets[order]
        is_same = (hashes[1:] == hashes[:-1]) & (checks[1:] == checks[:-1])
        found += zip(offsets[:-1][is_same].tolist(), offsets[1:][is_same].tolist(), strict=True)
    return found


def _live(keys: Keys, dead: Offsets, first: int, last: int) -> Keys:
    """Return the keys, which are in order, of live rows whose hashes are between two, inclusive."""
    begin = np.searchsorted(keys.hashes, np.uint64(first))
    end = np.searchsorted(keys.hashes, np.uint64(last), side="right")
    some = keys._replace(versions=None).chosen(np.arange(begin, end))
    return some.chosen(~is_in(some.offsets, dead))
