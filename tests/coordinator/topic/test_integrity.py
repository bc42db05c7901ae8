"""The integrity of a topic: what a forged entry or snapshot says, and cannot be, is found.

Every gap between segments is, although only new segments are checked.
"""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_coordinator.journal.state_machine import JournalEnded
from pyspark_log_coordinator.model.partition import Keyed
from pyspark_log_coordinator.model.topic_state import FloorMark, Topic, with_partition
from pyspark_log_coordinator.topic import integrity
from pyspark_log_coordinator.topic.machine import DeleteRecords, DeleteTopic
from tests.support.coordinator.topics import after, claim, commit, file, filled, rolled, started, swap

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


def segments(*ranges, parquet=True, keyed=()):
    """Segments of these offsets, the first ones with these counts of keyed rows."""
    made = [swap(start, end, parquet=parquet).segment for start, end in ranges]
    return tuple(msgspec.structs.replace(each, keyed=counts) for each, counts in itertools.zip_longest(made, keyed))


IMPOSSIBLE = {
    "no replicas": {"replicas": (), "isr": (), "leader": None, "log_end_offsets": {}},
    "a replica twice": {"replicas": ("A", "B", "A")},
    "a node that the topic does not know": {"replicas": ("A", "C"), "log_end_offsets": {"A": 10, "C": 10}},
    "the ends of other replicas": {"log_end_offsets": {"A": 10}},
    "an ISR besides the replicas": {"isr": ("A", "C")},
    "a node twice in the ISR": {"isr": ("A", "A")},
    "a leader that is no replica": {"leader": "C"},
    "a reassignment to no replica": {"adding": ("C",)},
    "an end before the log start": {"log_end_offsets": {"A": 10, "B": 3}},
    "an end behind the log": {"log_end_offsets": {"A": 10, "B": 11}},
    "epochs that fall": {"leader_epoch": 5, "epoch_starts": ((2, 4), (1, 6))},
    "one epoch twice": {"leader_epoch": 5, "epoch_starts": ((2, 4), (2, 6))},
    "epochs that begin before others": {"leader_epoch": 5, "epoch_starts": ((1, 6), (2, 4))},
    "an epoch after the newest": {"epoch_starts": ((0, 4), (1, 6))},
    "an epoch behind the log": {"leader_epoch": 5, "epoch_starts": ((0, 4), (1, 11))},
    "a high watermark below the log start": {"high_watermark": 3},
    "a high watermark behind the log": {"high_watermark": 11},
    "no offsets left": {"log_end": 2**63 - 1, "chunks": chunks((0, 2**63 - 1))},
    "a gap after the segments": {"segments": segments((0, 5)), "chunks": chunks((6, 10))},
    "no epochs left": {"leader_epoch": 2**63 - 1},
    "no compactions left": {"compactions": 2**63 - 1},
    "an end behind the rows": {"log_end": 11},
    "rows behind the end": {"chunks": chunks((0, 12))},
    "a log start before the rows": {"chunks": chunks((5, 10))},
    "a log start behind the first rows": {"chunks": chunks((0, 4), (4, 10))},
    "a gap between chunks": {"chunks": chunks((0, 5), (6, 10))},
    "chunks of an unknown file": {"chunks": chunks((0, 10), file=1)},
    "an empty segment": {"segments": segments((0, 5), (5, 5)), "chunks": chunks((5, 10))},
    "more keyed rows than offsets": {"segments": segments((0, 10), keyed=[Keyed(11, 0, 0)]), "chunks": chunks()},
    "a keyed segment without rows": {"segments": segments((0, 10), keyed=[Keyed(0, 0, 0)]), "chunks": chunks()},
    "more tombstones than rows": {"segments": segments((0, 10), keyed=[Keyed(2, 3, 0)]), "chunks": chunks()},
    "a keyed .log": {"segments": segments((0, 10), parquet=False, keyed=[Keyed(2, 0, 0)]), "chunks": chunks()},
    "a keyed segment after a dense one": {
        "segments": segments((0, 5), (5, 10), keyed=[None, Keyed(2, 0, 0)]),
        "chunks": chunks(),
    },
}
FOUND_IN_SNAPSHOTS = {"a gap between chunks"}
"""An entry only appends chunks and takes them away at the ends, whatever it says."""


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_an_impossible_partition_is_found_in_a_snapshot_and_after_an_entry(what):
    state = with_facts(**IMPOSSIBLE[what])
    with pytest.raises(ValueError, match="partition 0: "):
        integrity.check_snapshot(state, 1)
    if what not in FOUND_IN_SNAPSHOTS:
        with pytest.raises(ValueError, match="partition 0: "):
            integrity.check_entry(NEWER, [None], state, 1)


@pytest.mark.parametrize(
    "facts",
    [
        {"segments": segments((0, 10), keyed=[Keyed(10, 10, 0)]), "chunks": chunks()},
        {"segments": segments((0, 5), (5, 10), keyed=[Keyed(1, 0, 0)]), "chunks": chunks()},
        {"segments": segments((0, 5)), "chunks": chunks((5, 10))},
        {"chunks": chunks((0, 5), (5, 10))},
        {"leader_epoch": 5, "epoch_starts": ((0, 4), (2, 4), (5, 10))},
        {"high_watermark": 4, "log_end_offsets": {"A": 10, "B": 4}, "isr": ("A",)},
        {"leader": None, "isr": ()},
    ],
)
def test_what_is_at_the_limit_of_the_possible_is_none(facts):
    integrity.check_snapshot(with_facts(**facts), 1)
    integrity.check_entry(NEWER, [None], with_facts(**facts), 1)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (msgspec.structs.replace(NEWER, name="u"), "the topic becomes 'u'"),
        (msgspec.structs.replace(NEWER, topic_id="2"), "the topic becomes 't'"),
        (msgspec.structs.replace(NEWER, orphan_floor=0), "orphan_floor goes back from 1 to 0"),
        (msgspec.structs.replace(NEWER, orphan_floor=10), "the orphan floor 10 is after"),
        (msgspec.structs.replace(NEWER, floor_mark=FloorMark(10, 0)), "it marks entry 10"),
        (msgspec.structs.replace(NEWER, partitions=tuple(NEWER.partitions[:1])), "it removes partitions"),
        (msgspec.structs.replace(NEWER, schemas=()), "no schema"),
        (msgspec.structs.replace(NEWER, suspicions=2**63 - 1), "suspicions is 9223372036854775807"),
        (with_facts(leader_epoch=1, epoch_starts=((1, 4),)), "the leader epoch goes back from 2 to 1"),
        (
            with_facts(log_start=3, leader_epoch=2, epoch_starts=((0, 3), (2, 10))),
            "the log start goes back from 4 to 3",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_an_entry_that_takes_something_back_is_refused(changed, why):
    before = msgspec.structs.replace(with_facts(leader_epoch=2, epoch_starts=((0, 4), (2, 10))), orphan_floor=1)
    if "orphan_floor" not in why:
        changed = msgspec.structs.replace(changed, orphan_floor=max(1, changed.orphan_floor))
    integrity.check_entry(before, [None], before, 9)
    with pytest.raises(ValueError, match=why):
        integrity.check_entry(before, [None], changed, 9)


def test_a_first_entry_that_does_not_start_the_topic_and_a_topic_without_partitions_are_found():
    with pytest.raises(ValueError, match="the topic has not been started"):
        integrity.check_entry(Topic(), [], Topic(), 1)
    with pytest.raises(ValueError, match="the topic has no partition"):
        integrity.check_snapshot(msgspec.structs.replace(NEWER, partitions=()), 9)


def test_a_producer_that_has_lost_more_rows_than_can_be_counted_is_found():
    written = after(NEWER, commit(claim(0), file({0: 1})))
    known = {name: msgspec.structs.replace(each, rows_lost=2**63 - 1) for name, each in written.producers.items()}
    forged = msgspec.structs.replace(written, producers=known)
    with pytest.raises(ValueError, match="rows_lost is 9223372036854775807"):
        integrity.check_snapshot(forged, 9)
    with pytest.raises(ValueError, match="rows_lost is 9223372036854775807"):
        integrity.check_entry(written, [None], forged, 9)


def test_of_a_deleted_topic_only_the_journal_moves():
    deleted = after(NEWER, DeleteTopic())
    integrity.check_entry(deleted, [JournalEnded(2, ())], deleted, 9)
    with pytest.raises(ValueError, match="the topic is deleted"):
        integrity.check_entry(deleted, [JournalEnded(2, ()), None], deleted, 9)


def test_a_deleted_topic_has_no_rows():
    integrity.check_snapshot(after(NEWER, DeleteTopic()), 9)
    with pytest.raises(ValueError, match="partition 0: it has rows, but the topic is deleted"):
        integrity.check_snapshot(msgspec.structs.replace(NEWER, deleted_ms=0), 9)
