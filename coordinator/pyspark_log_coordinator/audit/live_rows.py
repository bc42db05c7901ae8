"""The live rows of a compacted partition: those of its head, of which a key has one.

Readers of the newest rows get both of a key that has two. So it is if a compaction did not find the older one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyspark_log_storage.columns.keys import matched, newest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    Keys = tuple[pa.Array, NDArray[np.int64]]

KEYS_AT_ONCE = 2**24
"""About how many keys are compared with all later ones at once."""


def of_one_key(keys: Callable[[], Iterable[Keys]], at_once: int = KEYS_AT_ONCE) -> list[int]:
    """Return the offsets of rows that have the key of a later row, some of those at least of each such key.

    `keys()` yields the keys of the head and their offsets, in order. It is called once for every `at_once` keys.
    """
    found: list[int] = []
    reached = -1
    while True:
        some: list[Keys] = []
        count = 0
        later = _after(keys(), reached)
        for each in later:
            some.append(each)
            count += len(each[1])
            if count >= at_once:
                break
        if not some:
            return sorted(set(found))
        of_each = newest(some)
        offsets = np.concatenate([each for _, each in some])
        with_key = np.concatenate([np.asarray(each.is_valid()) for each, _ in some])
        found += np.setdiff1d(offsets[with_key], of_each.offsets).tolist()
        found += [each for some, _, is_known in matched(later, of_each.keys) for each in some[is_known].tolist()]
        reached = int(offsets[-1])


def _after(keys: Iterable[Keys], offset: int) -> Iterator[Keys]:
    for some, offsets in keys:
        first = int(np.searchsorted(offsets, offset, side="right"))
        if first < len(offsets):
            yield some[first:], offsets[first:]
