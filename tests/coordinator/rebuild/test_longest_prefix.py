"""The longest prefix of a partition that segments and chunks give."""

import pytest

from pyspark_log_coordinator.rebuild.longest_prefix import longest


class Rows:
    """Rows `[base_offset, end_offset)`."""

    def __init__(self, base_offset, end_offset):
        self.base_offset = base_offset
        self.end_offset = end_offset


def chosen(segments, chunks=(), log_start=0):
    found = longest([Rows(*each) for each in segments], [Rows(*each) for each in chunks], log_start)
    return (
        (found.log_start, found.log_end),
        [(each.base_offset, each.end_offset) for each in found.segments],
        [(each.base_offset, each.end_offset) for each in found.chunks],
    )


@pytest.mark.parametrize(
    ("segments", "chunks", "log_start", "expected"),
    [
        ([], [], 7, ((7, 7), [], [])),
        ([(10, 20), (0, 10)], [], 0, ((0, 20), [(0, 10), (10, 20)], [])),
        # A merged one is taken in place of what it was made of; where it is missing, they are.
        ([(0, 10), (10, 20), (0, 20), (20, 30)], [], 0, ((0, 30), [(0, 20), (20, 30)], [])),
        ([(0, 10), (10, 20), (20, 30)], [(20, 25)], 0, ((0, 30), [(0, 10), (10, 20), (20, 30)], [])),
        # The longest one leads nowhere.
        ([(0, 15), (0, 10), (10, 20), (20, 30)], [], 0, ((0, 30), [(0, 10), (10, 20), (20, 30)], [])),
        # What lies behind a gap is not taken.
        ([(0, 10), (20, 30)], [(30, 40)], 0, ((0, 10), [(0, 10)], [])),
        ([(0, 10), (20, 30)], [(8, 12), (12, 20)], 0, ((0, 10), [(0, 10)], [])),
        ([(0, 10)], [(5, 10), (10, 12), (12, 15), (16, 20)], 0, ((0, 15), [(0, 10)], [(10, 12), (12, 15)])),
        # Chunks that segments do not end at: a shorter way in segments may lead further.
        ([(0, 10), (10, 20)], [(10, 15), (15, 25)], 0, ((0, 25), [(0, 10)], [(10, 15), (15, 25)])),
        # Of two ways to one end, the one with more rows in segments.
        ([(0, 10), (10, 20)], [(10, 15), (15, 20), (20, 25)], 0, ((0, 25), [(0, 10), (10, 20)], [(20, 25)])),
        # The log start lies within a piece, or before all that is there.
        ([(0, 10), (10, 20)], [], 5, ((5, 20), [(0, 10), (10, 20)], [])),
        ([(0, 10), (10, 20)], [], 10, ((10, 20), [(10, 20)], [])),
        ([(10, 20), (20, 30)], [], 5, ((10, 30), [(10, 20), (20, 30)], [])),
        ([(0, 5), (7, 10)], [], 5, ((7, 10), [(7, 10)], [])),
        ([], [(0, 3), (3, 6), (6, 9)], 4, ((4, 9), [], [(3, 6), (6, 9)])),
    ],
)
def test_the_longest_prefix(segments, chunks, log_start, expected):
    assert chosen(segments, chunks, log_start) == expected
