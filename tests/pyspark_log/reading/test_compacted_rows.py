"""The rows of a compacted topic have their own offsets, for every reader, wherever it begins and ends."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_log import Consumer, TopicPartition
from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, next_row, split_of
from pyspark_log.reading.positions import offset_for_time
from pyspark_log_storage.columns.row_offsets import each_of
from tests.support.plain_log import NOON_MS
from tests.support.pyspark_log.compacted_log import CompactedLog

T0 = TopicPartition("t", 0)
KEYS = st.lists(st.sampled_from([b"a", b"b", b"c", None]), min_size=1, max_size=6)
STEPS = st.lists(st.one_of(KEYS, st.just("fold"), st.just("fold one")), min_size=1, max_size=7)


def made(steps, path=None):
    log = CompactedLog(path)
    for step in steps:
        match step:
            case "fold":
                log.fold()
            case "fold one":
                log.fold(1)
            case keys:
                log.add(keys)
    return log


def fetched(log, start, end):
    """Return offset and value of each row of a range."""
    split = split_of(log.current, Range("t", 0, start, end))
    return [
        each
        for offsets, batch in fetch(log.log.store_at, split)
        for each in zip(each_of(offsets, batch.num_rows).tolist(), batch.column("value").to_pylist(), strict=True)
    ]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_every_range_has_the_rows_that_are_in_it(steps):
    log = made(steps)
    for start in range(log.end):
        for end in range(start + 1, log.end + 1):
            assert fetched(log, start, end) == [(row.offset, row.value) for row in log.between(start, end)]
        following = log.between(start, log.end)[:1]
        found = next_row(log.log, log.current, 0, start)
        assert [] if found is None else [found[0]] == [row.offset for row in following]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_a_time_has_the_first_row_that_is_there(steps):
    log = made(steps)
    for at in range(-1, log.end + 1):
        following = log.between(at, log.end)
        found = offset_for_time(log.current, 0, NOON_MS + 1000 * at)
        assert found == (following[0].offset if following else None)


@pytest.mark.slow
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS, data=st.data())
def test_a_consumer_returns_each_row_once_and_reaches_the_end(tmp_path_factory, steps, data):
    log = made(steps, tmp_path_factory.mktemp("log") / "log")
    start = data.draw(st.integers(0, log.end))
    with Consumer(log.path, {"max.poll.records": data.draw(st.integers(1, 4))}) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, start)
        found = []
        while more := consumer.poll(0):
            found += [(each.offset, each.value) for each in more]
            assert consumer.position(T0) >= found[-1][0] + 1
        assert found == [(row.offset, row.value) for row in log.between(start, log.end)]
        assert consumer.position(T0) == log.end
