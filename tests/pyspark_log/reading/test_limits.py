import itertools
import random

import pytest

from pyspark_log.reading import limits
from pyspark_log.reading.limits import Piece, bytes_read, pieces_between, rows_within, share_out, waits
from pyspark_log_coordinator.maintenance import topic_roll
from tests.support.plain_log import PlainLog


def kafka_rate_limit(limit, begin, until):
    """What Spark's KafkaMicroBatchStream.rateLimit returns, in exact arithmetic."""
    sizes = {key: until[key] - begin[key] for key in until if until[key] > begin[key]}
    total = sum(sizes.values())
    if total < 1:
        return until
    ends = dict(until)
    for key, size in sizes.items():
        share = limit * size
        whole = -(-share // total) if share < total else share // total
        ends[key] = min(until[key], begin[key] + whole)
    return ends


@pytest.mark.parametrize("seed", range(20))
def test_the_shares_are_those_of_sparks_kafka_source(seed):
    dice = random.Random(seed)
    begin = {key: dice.randrange(2**40) for key in range(dice.randrange(1, 40))}
    until = {key: at + dice.choice([0, 1, 2, dice.randrange(10**6)]) for key, at in begin.items()}
    limit = dice.choice([1, 7, 100, 10**5, 10**9])
    assert share_out(limit, begin, until) == kafka_rate_limit(limit, begin, until)


def test_a_backlog_below_the_minimum_waits_for_the_delay_unless_it_is_the_first_of_a_run():
    assert waits(9, 10, now=100.0, last_batch=99.0, delay_ms=5000)
    assert not waits(10, 10, now=100.0, last_batch=99.0, delay_ms=5000)
    assert waits(9, 10, now=103.999, last_batch=99.0, delay_ms=5000)
    assert not waits(9, 10, now=104.0, last_batch=99.0, delay_ms=5000)
    assert not waits(0, 10, now=100.0, last_batch=None, delay_ms=5000)


def rows_that_fit(limit, *partitions):
    """`rows_within` for partitions that are given as lists of (rows, bytes)."""
    pieces = [[Piece(*each) for each in partition] for partition in partitions]
    return rows_within(limit, pieces, [sum(piece.rows for piece in partition) for partition in pieces])


def test_no_more_pieces_are_looked_at_than_fit():
    seen = 0

    def endless():
        nonlocal seen
        for _ in itertools.count():
            seen += 1
            yield Piece(10, 100)

    assert rows_within(1000, [endless()], [10**9]) == pytest.approx(100, abs=1)
    assert seen <= 11


def exactly_within(limit, partitions):
    """The rows of the largest fraction of 1,000 that has `limit` bytes, found by trying all."""
    total = sum(rows for pieces in partitions for rows, _ in pieces)
    for part in range(1000, -1, -1):
        size = 0
        for pieces in partitions:
            left = sum(rows for rows, _ in pieces) * part / 1000
            for rows, stored in pieces:
                size += stored * min(1, max(0, left) / rows)
                left -= rows
        if size <= limit:
            return total * part / 1000
    raise AssertionError


@pytest.mark.parametrize("seed", range(10))
def test_the_rows_are_those_of_the_largest_fraction_that_fits(seed):
    dice = random.Random(seed)
    partitions = [
        [(dice.randrange(1, 50), dice.randrange(1, 5000)) for _ in range(dice.randrange(5))]
        for _ in range(dice.randrange(1, 6))
    ]
    limit = dice.randrange(1, 20_000)
    total = sum(rows for pieces in partitions for rows, _ in pieces)
    assert rows_that_fit(limit, *partitions) == pytest.approx(exactly_within(limit, partitions), abs=1 + total / 1000)


def test_the_pieces_of_a_range_are_its_chunks_in_proportion():
    log = PlainLog()
    log.create("t")
    for rows in (4, 10, 2):
        log.append("t", {0: [b"x"] * rows})
    partition = log.log.topic("t").journal.state.partitions[0]
    first, second, third = (chunk.length for chunk in partition.chunks)
    assert list(pieces_between(partition, 0, 16)) == [(4, first), (10, second), (2, third)]
    assert list(pieces_between(partition, 2, 9)) == [(2, first / 2), (5, second / 2)]


def test_chunks_are_read_whole_and_of_a_segment_about_one(monkeypatch):
    log = PlainLog()
    handle = log.create("t")
    for _ in range(3):
        log.append("t", {0: [b"x"] * 4})
    handle.alter_config({"flush.messages": "1"})
    topic_roll.roll_and_merge(handle)
    log.append("t", {0: [b"y"] * 4})
    partition = handle.refresh().partitions[0]
    [segment], [chunk] = partition.segments, partition.chunks
    assert bytes_read(partition, 5, 13) == segment.length + chunk.length
    monkeypatch.setattr(limits, "CHUNK_BYTES", 10)
    assert bytes_read(partition, 5, 13) == 10 + 10
