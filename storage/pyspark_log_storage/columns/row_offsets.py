"""The offsets of the rows of a batch: that of the first row if there are no gaps between them, else those of all.

Only the rows of a keyed segment, which compaction made, have gaps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Offsets = Union[int, "NDArray[np.int64]"]


def offsets_from(offsets: Offsets, first: int) -> Offsets:
    """Return the offsets of the rows from row number `first` on."""
    return offsets + first if isinstance(offsets, int) else offsets[first:]


def first_of(offsets: Offsets) -> int:
    return offsets if isinstance(offsets, int) else int(offsets[0])


def end_of(offsets: Offsets, rows: int) -> int:
    """Return the offset after the last of the first `rows` rows, of which there is one at least."""
    return offsets + rows if isinstance(offsets, int) else int(offsets[rows - 1]) + 1


def each_of(offsets: Offsets, rows: int) -> NDArray[np.int64]:
    """Return the offset of each of the first `rows` rows."""
    return np.arange(offsets, offsets + rows, dtype=np.int64) if isinstance(offsets, int) else offsets[:rows]
