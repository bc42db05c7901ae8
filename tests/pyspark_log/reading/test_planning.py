import itertools
import random

import pytest

from pyspark_log.reading.planning import Range, divide


def ranges(*rows):
    return [Range("t", number, 1000, 1000 + count) for number, count in enumerate(rows)]


def pieces(divided):
    """How many ranges each partition became."""
    return [len(list(group)) for _, group in itertools.groupby(divided, key=lambda each: each.partition)]


def sizes(divided):
    return [each.rows for each in divided]


def test_ranges_are_cut_by_rows_first_and_then_until_there_are_enough():
    assert divide([*ranges(5, 7), Range("t", 2, 5, 5), Range("t", 3, 5, 4)], None, None) == ranges(5, 7)
    assert sizes(divide(ranges(10, 3), None, 4)) == [3, 3, 4, 3]
    assert pieces(divide(ranges(100, 100), 8, None)) == [4, 4]
    assert pieces(divide(ranges(140, 140, 140, 280), 7, None)) == [1, 1, 1, 4]
    assert sizes(divide(ranges(8), 2, 2)) == [2, 2, 2, 2]
    assert sizes(divide(ranges(8), 8, 4)) == [1] * 8
    assert sizes(divide(ranges(2), 50, None)) == [1, 1]


@pytest.mark.parametrize("seed", range(20))
def test_the_splits_hold_every_row_once_and_in_order(seed):
    dice = random.Random(seed)
    whole = ranges(*(dice.choice([0, 1, 5, dice.randrange(10_000)]) for _ in range(dice.randrange(1, 20))))
    divided = divide(whole, dice.choice([None, 3, 64]), dice.choice([None, 10, 999]))
    for each in whole:
        mine = [part for part in divided if part.partition == each.partition]
        rows = [row for part in mine for row in range(part.start, part.end)]
        assert rows == list(range(each.start, each.end))
    assert all(part.rows > 0 for part in divided)
