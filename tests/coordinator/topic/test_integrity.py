"""The one check of stored entries and snapshots: what a bug in a rule would lose or double is found.

`tests.support.coordinator.topics` checks each state that a test makes.
"""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_coordinator.model.topic_state import Topic, with_partition
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_coordinator.topic import integrity
from pyspark_log_coordinator.topic.machine import DeleteTopic
from tests.support.coordinator.topics import after, commit, file, filled, rolled, started, swap

SEGMENTS = 12
TOPIC = rolled(filled(SEGMENTS), *range(0, SEGMENTS * 10 + 1, 10))
PARTITION = TOPIC.partitions[0]


@given(st.integers(0, SEGMENTS), st.integers(0, SEGMENTS), st.integers(0, SEGMENTS * 10), st.integers(1, SEGMENTS * 10))
def test_a_segment_that_does_not_fit_between_its_neighbours_is_found(first, last, start, end):
    first, last = min(first, last), max(first, last)
    new = msgspec.structs.replace(PARTITION.segments[0], base_offset=start, end_offset=end)
    segments = (*PARTITION.segments[:first], new, *PARTITION.segments[last:])
    after = with_partition(TOPIC, 0, msgspec.structs.replace(PARTITION, segments=segments))
    if (start, end) == (first * 10, last * 10):
        integrity.check(TOPIC, after)
    else:
        with pytest.raises(ValueError, match="partition 0: "):
            integrity.check(TOPIC, after)


NEWER = after(after(started(2, ("A", "B")), commit(None, file({0: 10, 1: 10}, on=("A", "B")))), DeleteRecords(0, 4))
"""A topic of two partitions on two nodes with a chunk each; the first one's log starts at 4."""


def with_facts(**facts):
    """The topic with these facts of its first partition."""
    return with_partition(NEWER, 0, msgspec.structs.replace(NEWER.partitions[0], **facts))


def chunks(*ranges, file=0):
    """Chunks of these offsets, in a file."""
    [chunk] = NEWER.partitions[0].chunks
    return tuple(
        [msgspec.structs.replace(chunk, base_offset=start, rows=end - start, file=file) for start, end in ranges]
    )


def segments(*ranges):
    """Segments of these offsets."""
    return tuple(swap(start, end).segments[0] for start, end in ranges)


@pytest.mark.parametrize(
    "facts",
    [
        {"high_watermark": 3},
        {"high_watermark": 11},
        {"segments": segments((0, 5)), "chunks": chunks((6, 10))},
        {"segments": segments((0, 5), (4, 10)), "chunks": ()},
        {"log_end": 11},
        {"chunks": ()},
        {"chunks": chunks((0, 12))},
        {"chunks": chunks((5, 10))},
        {"chunks": chunks((0, 4), (4, 10))},
        {"chunks": chunks((0, 10), file=1)},
    ],
    ids=str,
)
def test_a_partition_with_a_gap_or_an_overlap_is_found_in_a_snapshot_and_after_an_entry(facts):
    for before in (Topic(), NEWER):
        with pytest.raises(ValueError, match="partition 0: "):
            integrity.check(before, with_facts(**facts))


def test_a_gap_between_chunks_is_found_in_a_snapshot():
    """An entry only appends chunks, and takes them away at the ends."""
    with pytest.raises(ValueError, match="offset 6 follows 5"):
        integrity.check(Topic(), with_facts(chunks=chunks((0, 5), (6, 10))))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (msgspec.structs.replace(NEWER, partitions=NEWER.partitions[:1]), "it removes partitions"),
        (with_facts(log_start=3), "the log start goes back from 4 to 3"),
        (with_facts(leader_epoch=1), "the leader epoch goes back from 2 to 1"),
        (with_facts(leader_epoch=2, high_watermark=9), "the high watermark goes back from 10 to 9"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_an_entry_that_takes_something_back_is_refused(changed, why):
    before = with_facts(leader_epoch=2)
    integrity.check(before, before)
    with pytest.raises(ValueError, match=why):
        integrity.check(before, changed)


def test_an_unclean_election_may_take_the_high_watermark_back():
    integrity.check(with_facts(leader_epoch=2), with_facts(leader_epoch=3, high_watermark=9))


def test_a_deleted_topic_has_no_rows_to_check():
    integrity.check(Topic(), after(NEWER, DeleteTopic()))
