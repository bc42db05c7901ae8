"""The integrity of a topic: every gap between segments is found, although only new segments are checked."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_coordinator.model.topic_state import with_partition
from pyspark_log_coordinator.topic import integrity
from tests.support.coordinator.topics import filled, rolled

SEGMENTS = 12
TOPIC = rolled(filled(SEGMENTS), *range(0, SEGMENTS * 10 + 1, 10))
PARTITION = TOPIC.partitions[0]


@given(st.integers(0, SEGMENTS), st.integers(0, SEGMENTS), st.integers(0, SEGMENTS * 10), st.integers(1, SEGMENTS * 10))
def test_a_segment_that_does_not_fit_between_its_neighbours_is_found(first, last, start, end):
    first, last = min(first, last), max(first, last)
    new = msgspec.structs.replace(PARTITION.segments[0], base_offset=start, end_offset=end)
    segments = (*PARTITION.segments[:first], new, *PARTITION.segments[last:])
    after = with_partition(TOPIC, 0, msgspec.structs.replace(PARTITION, segments=segments))
    if (start, end) == (first * 10, last * 10) and start < end:
        integrity.check_entry(TOPIC, [None], after, 10**6)
    else:
        with pytest.raises(ValueError, match="partition 0: "):
            integrity.check_entry(TOPIC, [None], after, 10**6)


@given(st.integers(0, SEGMENTS - 1))
def test_a_segment_that_is_gone_is_found(number):
    left = (*PARTITION.segments[:number], *PARTITION.segments[number + 1 :])
    after = with_partition(TOPIC, 0, msgspec.structs.replace(PARTITION, segments=left))
    with pytest.raises(ValueError, match="partition 0: "):
        integrity.check_entry(TOPIC, [None], after, 10**6)
    with pytest.raises(ValueError, match="partition 0: "):
        integrity.check_snapshot(after, 10**6)
