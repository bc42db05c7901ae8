"""Ranges of a column share no row and leave none out, whatever is in it: the rules, without Spark's own comparisons.

With Spark's they are in `tests/spark/test_backfill.py`.
"""

import itertools
import random
from datetime import datetime, timedelta, timezone

import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructType, TimestampType

from pyspark_log.history import backfill
from tests.support.plain_frame import Frame, Functions

TIME = datetime(1969, 12, 31, 23, 59, 59, 999000, timezone.utc)
KINDS = {
    "long": (LongType(), lambda n: n - 3),
    "string": (StringType(), lambda n: f"{n} '"),
    "binary": (BinaryType(), lambda n: bytes([n])),
    "timestamp": (TimestampType(), lambda n: TIME + n * timedelta(microseconds=300)),
}


@pytest.fixture(autouse=True)
def functions_without_spark(monkeypatch):
    monkeypatch.setattr(backfill, "f", Functions())


def frame_of(kind, values):
    """A frame of the column `n`, and a column `id` with the number of each row."""
    schema = StructType().add("n", KINDS[kind][0]).add("id", LongType())
    return Frame(schema, [(value, number) for number, value in enumerate(values)])


def ranges(frame, rows_per_range, *names):
    fields = backfill.fields_of(frame, names or ["n"])
    bounds = backfill.bounds_of(frame, fields[0], rows_per_range)
    return [backfill.rows_between(frame, fields, bounds, number).collect() for number in range(len(bounds) + 1)]


def nulls_first(row):
    return (row[0] is not None, row[0] if row[0] is not None else 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_the_ranges_together_are_the_rows_in_order(kind, seed):
    chance = random.Random(seed)
    numbers = [chance.choice([None, *range(9)]) for _ in range(chance.randrange(60))]
    values = [None if number is None else KINDS[kind][1](number) for number in numbers]
    frame = frame_of(kind, values)
    for size in (1, 3, 10, 100):
        found = ranges(frame, size)
        assert [*itertools.chain.from_iterable(found)] == sorted(frame.collect(), key=nulls_first)


def test_ranges_have_about_the_rows_that_were_asked_for_and_those_without_a_value_come_first():
    numbers = random.Random(0).sample(range(100), 100)
    assert [len(rows) for rows in ranges(frame_of("long", numbers), 25)] == [25] * 4
    first, second = ranges(frame_of("long", [2, None, 1, None, 3, 4]), 3)
    assert first == [(None, 1), (None, 3), (1, 2), (2, 0)]
    assert second == [(3, 4), (4, 5)]
