import random

import pytest

from pyspark_log.client.read.limits import share_out, waits


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


def test_a_backlog_below_the_limit_is_taken_whole():
    assert share_out(10, {"a": 0, "b": 5}, {"a": 4, "b": 11}) == {"a": 4, "b": 11}


def test_partitions_share_the_limit_by_what_they_have_waiting():
    assert share_out(10, {"a": 0, "b": 100}, {"a": 80, "b": 120}) == {"a": 8, "b": 102}


def test_a_large_partition_does_not_starve_a_small_one():
    assert share_out(10, {"a": 0, "b": 0}, {"a": 1_000_000, "b": 1}) == {"a": 9, "b": 1}


def test_a_partition_without_backlog_stays_where_it_is():
    assert share_out(2, {"a": 7, "b": 0}, {"a": 7, "b": 9}) == {"a": 7, "b": 2}


def test_every_backlog_advances_even_if_the_limit_is_below_their_number():
    assert share_out(1, dict.fromkeys("abc", 0), dict.fromkeys("abc", 5)) == dict.fromkeys("abc", 1)


def test_a_part_of_a_row_is_left_for_later():
    assert share_out(10, {"a": 0, "b": 0}, {"a": 20, "b": 10}) == {"a": 6, "b": 3}


@pytest.mark.parametrize("seed", range(50))
def test_the_shares_are_those_of_sparks_kafka_source(seed):
    dice = random.Random(seed)
    begin = {key: dice.randrange(2**40) for key in range(dice.randrange(1, 40))}
    until = {key: at + dice.choice([0, 1, 2, dice.randrange(10**6)]) for key, at in begin.items()}
    limit = dice.choice([1, 7, 100, 10**5, 10**9])
    assert share_out(limit, begin, until) == kafka_rate_limit(limit, begin, until)


def test_a_small_backlog_waits():
    assert waits(9, 10, now=100.0, last_batch=99.0, delay_ms=5000)


def test_a_backlog_of_the_minimum_does_not_wait():
    assert not waits(10, 10, now=100.0, last_batch=99.0, delay_ms=5000)


def test_a_small_backlog_waits_no_longer_than_the_delay():
    assert waits(9, 10, now=103.999, last_batch=99.0, delay_ms=5000)
    assert not waits(9, 10, now=104.0, last_batch=99.0, delay_ms=5000)


def test_the_first_batch_of_a_run_does_not_wait():
    assert not waits(0, 10, now=100.0, last_batch=None, delay_ms=5000)
