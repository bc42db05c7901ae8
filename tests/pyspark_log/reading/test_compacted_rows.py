"""The rows of a compacted topic have their own offsets, for every reader, wherever it begins and ends."""

import functools

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_log import Consumer, TopicPartition
from pyspark_log.browse import rows as pages
from pyspark_log.reading import native_files
from pyspark_log.reading.failover import Failover
from pyspark_log.reading.fetch import fetch, place_in_segment, read_one
from pyspark_log.reading.planning import Range, find_again, split_of
from pyspark_log.reading.positions import Subscribed, offset_for_time
from pyspark_log.reading.rows import first_row
from pyspark_log_coordinator.maintenance import topic_cleanup, topic_roll
from pyspark_log_storage.columns.schema import RECORD_SCHEMAS
from pyspark_log_storage.errors import CorruptObject, DataLoss
from pyspark_log_storage.segments import segment
from tests.support.plain_log import NOON_MS
from tests.support.pyspark_log.compacted_log import CompactedLog

T0 = TopicPartition("t", 0)
KEYS = st.lists(st.sampled_from([b"a", b"b", b"c", None]), min_size=1, max_size=6)
STEPS = st.lists(st.tuples(KEYS, st.sampled_from(["", "clean", "clean one"])), min_size=1, max_size=5)


def made(steps, path=None):
    log = CompactedLog(path)
    for keys, then in steps:
        log.add(keys)
        if then:
            log.clean(1 if then == "clean one" else None)
    return log


def fetched(log, start, end):
    """Return offset and value of each row of a range."""
    split = split_of(log.current, Range("t", 0, start, end))
    return rows_of(fetch(log.log.store_at, split))


def rows_of(batches):
    """Return offset and value of each row."""
    return [
        each
        for offsets, batch in batches
        for each in zip(offsets.tolist(), batch.column("value").to_pylist(), strict=True)
    ]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_every_range_has_the_rows_that_are_in_it(steps):
    log = made(steps)
    for start in range(log.end):
        for end in range(start + 1, log.end + 1):
            assert fetched(log, start, end) == [(row.offset, row.value) for row in log.between(start, end)]
        following = log.between(start, log.end)[:1]
        found = first_row(log.current, 0, start)
        assert ([] if found is None else [found[0]]) == [row.offset for row in following]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_a_time_has_the_first_row_that_is_there(steps):
    log = made(steps)
    for at in range(-1, log.end + 1):
        following = log.between(at, log.end)
        found = offset_for_time(log.current, 0, NOON_MS + 1000 * at)
        assert found == (following[0].offset if following else None)


@pytest.mark.slow
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
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


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, backward=st.booleans(), limit=st.integers(1, 4), has=st.sampled_from(["", "1"]))
def test_the_pages_have_each_row_once(steps, backward, limit, has):
    log = made(steps)
    wanted = pages.Wanted(partition=0, backward=backward, filters=pages.Filters(value_has=has), limit=limit)
    expected = [row.offset for row in log.rows if has.encode() in row.value]
    assert shown(log, wanted) == (expected[::-1] if backward else expected)


def shown(log, wanted):
    """Return the offsets of the rows of all pages, in their order."""
    found, at = [], None
    while True:
        page = pages.read(log.current, msgspec.structs.replace(wanted, at=at))
        assert len(page.rows) <= wanted.limit
        found += [row.offset for row in page.rows]
        if page.at is None:
            return found
        assert page.at != at
        at = page.at


def read_while(log, start, end, compact):
    """Begin to read a range, call `compact`, and return the offsets of the rows."""
    split = split_of(log.current, Range("t", 0, start, end))
    compact()
    again = functools.partial(find_again, log.log, split)
    return [at for at, _ in rows_of(fetch(log.log.store_at, split, again))]


def test_a_read_never_mixes_rows_of_before_and_after_a_compaction():
    log = made([([b"a", b"a", b"b"], "clean"), ([b"a", b"b", b"b"], ""), ([b"c", b"c"], "")])
    with pytest.raises(DataLoss, match=r"partition 0: offsets 3 to 7 were compacted while they were read"):
        read_while(log, 3, 8, log.clean)


def test_rows_that_were_not_compacted_are_found_again():
    log = made([([b"a", b"a"], ""), ([b"b", b"c", b"b"], "")])
    split = split_of(log.current, Range("t", 0, 0, 5))
    log.clean(1)
    assert find_again(log.log, split, 2).start == 2
    with pytest.raises(DataLoss, match=r"offsets 1 to 1 were compacted while they were read"):
        find_again(log.log, split, 1)
    again = split_of(log.current, Range("t", 0, 0, 5))
    assert find_again(log.log, again, 0) == again  # the same rows, for example from another node


def test_a_read_of_compacted_rows_goes_on_when_others_have_moved():
    log = made([([b"a", b"a", b"b"], "clean"), ([b"a", b"b", b"b"], "")])

    def roll():
        log.current.alter_config({"flush.messages": "1"})
        topic_roll.roll_and_merge(log.current)
        topic_cleanup.clean_up_topic(log.current)

    log.current.alter_config({"cleanup.policy": "delete"})
    assert read_while(log, 0, 6, roll) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("shift", [-1, 1])
def test_rows_that_are_not_of_their_range_are_an_error(shift):
    log = made([([b"a", b"b"], "clean")])
    [key] = split_of(log.current, Range("t", 0, 0, 2)).segments
    [entry] = segment.scan(log.log.store, key)
    place = place_in_segment(key, entry)
    [node] = split_of(log.current, Range("t", 0, 0, 2)).holders(key)
    moved = msgspec.structs.replace(place, base_offset=place.base_offset + shift)
    read = functools.partial(read_one, Failover(log.log.store_at, "t", 0), (node,))
    assert read(place, RECORD_SCHEMAS).num_rows == 2
    with pytest.raises(CorruptObject, match=r"its rows in .* have other offsets"):
        read(moved, RECORD_SCHEMAS)


def test_a_segment_of_compacted_rows_is_read_by_the_source(tmp_path):
    """It may be rewritten at any time."""
    log = made([([b"a"] * 9, "clean")], tmp_path / "log")
    for policy in ("compact", "delete"):
        log.current.alter_config({"cleanup.policy": policy, "segment.format": "parquet", "segment.bytes": "1000"})
        whole = Range("t", 0, 0, 9)
        native, rest = native_files.divide(Subscribed({"t": log.current}, {}), [whole], in_s3=True)
        assert (native, rest) == ([], [whole])
