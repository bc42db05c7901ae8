"""One event swaps in a segment for the same rows, and a stale swap changes nothing."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_coordinator.replication.node_changes import AlterReplicaNode
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_coordinator.segments.swap import MaintainSegments, SegmentsSwapped
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.sequencing import BatchSequenced
from tests.support.coordinator.topics import (
    after,
    claim,
    commit,
    decide,
    file,
    filled,
    incarnation,
    pieces,
    rolled,
    started,
    swap,
)


def released(state):
    return [each.key for each in state.pending_deletions]


def names(state):
    """Return the append files that the state still lists."""
    return [each.name for each in state.files]


def take(state, *swaps):
    """Return the state after the swaps, and how many of them were taken."""
    events = decide(state, MaintainSegments(swaps))
    for event in events:
        state = topic.evolve(state, event)
    return state, len(events)


# What fits


def test_whole_chunks_and_segments_become_one_segment_and_no_offset_changes():
    before = filled(4, partitions=2)
    state, taken = take(before, swap(0, 10), swap(10, 20), swap(0, 20))  # they may build on one another
    assert taken == 3
    assert pieces(state) == [("segment", 0, 20), ("chunk", 20, 30), ("chunk", 30, 40)]
    assert pieces(state, 1) == pieces(before, 1)
    state = rolled(rolled(before, 0, 10, 20), 10, 40)
    assert pieces(state) == [("segment", 0, 10), ("segment", 10, 40)]
    (one, _), (old, _) = state.partitions, before.partitions
    assert (one.log_start, one.high_watermark, one.log_end, one.rolled_end) == (0, 40, 40, 40)
    assert one.log_end_offsets == old.log_end_offsets
    assert pieces(after(state, commit(None, file({0: 5}))))[-1] == ("chunk", 40, 45)


# Stale swaps


@pytest.mark.parametrize(
    ("start", "end"),
    [(0, 15), (5, 20), (10, 20), (20, 30), (0, 50), (30, 35), (-10, 10)],
    ids=["ends inside", "begins inside", "behind chunks", "behind more", "beyond", "outside", "before"],
)
def test_a_swap_whose_range_is_not_the_oldest_whole_pieces_is_dropped(start, end):
    state = filled(4)
    one = swap(max(start, 0), end)
    one = msgspec.structs.replace(one, segments=(msgspec.structs.replace(one.segments[0], base_offset=start),))
    assert take(state, one) == (state, 0)


@pytest.mark.parametrize(
    "stale", [swap(0, 20, epoch=1), swap(0, 20, born=4), swap(0, 20, -1), swap(0, 20, 1), swap(0, 20, on=())]
)
def test_a_swap_of_another_epoch_or_partition_from_before_the_floor_or_without_holders_is_dropped(stale):
    state = msgspec.structs.replace(filled(2), orphan_floor=5)
    assert take(state, stale) == (state, 0)
    assert take(state, swap(0, 20, born=5))[1] == 1


def test_one_segment_is_replaced_only_by_a_later_version_of_its_rows():
    state = rolled(filled(2), 0, 10, level=2)
    for level in (1, 2):
        assert take(state, swap(0, 10, level=level)) == (state, 0)
    state, taken = take(state, swap(0, 10, level=4, parquet=True), swap(0, 10, level=4))
    assert (taken, state.partitions[0].segments[0].is_parquet) == (1, True)


def test_a_swap_whose_first_chunk_was_cut_meanwhile_is_taken():
    state = after(filled(3), DeleteRecords(0, 5))
    gone = after(state, DeleteRecords(0, 10))
    assert take(gone, swap(0, 20)) == (gone, 0)
    state, taken = take(state, swap(0, 20))
    assert taken == 1
    assert state.partitions[0].log_start == 5
    assert pieces(state) == [("segment", 0, 20), ("chunk", 20, 30)]


# In a batch


def test_a_swap_that_rides_along_is_in_the_batchs_own_entry_and_does_not_fail_it():
    state = filled(2)
    batch = commit(claim(1), file({0: 10}))
    stale, fitting = (msgspec.structs.replace(batch, swaps=(swap(0, end),)) for end in (7, 20))
    assert [type(event) for event in decide(state, stale)] == [BatchSequenced]
    assert [type(event) for event in decide(state, fitting)] == [BatchSequenced, SegmentsSwapped]
    assert pieces(after(state, fitting)) == [("segment", 0, 20), ("chunk", 20, 30)]
    assert decide(after(state, fitting), fitting) == []
    # Beside a replay it is still taken.
    assert [type(event) for event in decide(after(state, batch), fitting)] == [SegmentsSwapped]


def test_a_batch_that_brings_a_replica_into_the_isr_does_not_swap_in_what_that_lacks():
    state = after(started(replicas=("A", "B")), commit(None, file({0: 10}, on=("A", "B"))))
    state = after(state, AlterReplicaNode("B", incarnation("B"), fenced=True))
    state = after(state, AlterReplicaNode("B", incarnation("B")))
    assert state.partitions[0].isr == ("A",)
    command = msgspec.structs.replace(commit(None, file({0: 1}, on=("A", "B"))), swaps=(swap(0, 10),))
    state = after(state, command)
    assert state.partitions[0].isr == ("A", "B")
    assert state.partitions[0].segments == ()


def test_a_replica_that_lacks_the_segment_goes_back_to_its_base_and_never_before_the_log_start():
    state = after(started(replicas=("A", "B")), commit(None, file({0: 4}, on=("A", "B"))))
    state = after(state, commit(None, file({0: 1})))
    assert state.partitions[0].log_end_offsets == {"A": 5, "B": 4}
    assert rolled(state, 0, 5).partitions[0].log_end_offsets == {"A": 5, "B": 0}
    state = after(state, DeleteRecords(0, 2))
    assert rolled(state, 0, 5).partitions[0].log_end_offsets == {"A": 5, "B": 2}


def test_a_swap_is_dropped_unless_a_majority_that_has_what_a_quorum_committed_holds_the_segment():
    state = after(started(replicas=("A", "B", "C"), replication_mode="quorum"), commit(None, file({0: 10}, on="ABC")))
    one = msgspec.structs.replace(state.partitions[0], isr=("A", "C"))
    state = msgspec.structs.replace(state, partitions=(one,))
    # A and B commit it: B is out of the ISR, for it does not have the last rows, and C lags.
    state = after(state, commit(None, file({0: 10}, on="AB"), file({0: 10}, on="A"), acks="1"))
    one = state.partitions[0]
    assert (one.isr, one.high_watermark, one.log_end) == (("A", "C"), 20, 30)
    assert take(state, swap(0, 10, on="AC")) == (state, 0)
    state, taken = take(state, swap(0, 10, on="ABC"))
    assert (taken, state.partitions[0].log_end_offsets["B"]) == (1, 20)


def test_of_two_segments_one_is_dropped_if_with_both_a_majority_would_lack_what_a_quorum_committed():
    state = after(started(replicas="ABCDE", replication_mode="quorum"), commit(None, file({0: 20}, on="ABCDE")))
    state = after(state, commit(None, file({0: 10}, on="ABCDE")))
    state = after(state, MaintainSegments((swap(0, 20, on="ABCDE"), swap(20, 30, on="ABCDE"))))
    state = after(state, commit(None, file({0: 10}, on="ABDE"), acks="1"))
    one = msgspec.structs.replace(state.partitions[0], isr=("A", "B", "C"))
    state = msgspec.structs.replace(state, partitions=(one,))
    # C, which lags, is in the ISR. D and E lack a segment each, so with both only A and B have all rows.
    state, _ = take(state, swap(0, 20, on="ABCD", level=2), swap(20, 30, on="ABCE", level=2))
    assert [each.level for each in state.partitions[0].segments] == [2, 1]


# What is released


layouts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), min_size=1, max_size=8)


@given(layouts, st.data())
def test_a_file_is_listed_as_long_as_an_unrolled_chunk_or_an_older_file_needs_it_and_released_once(batches, data):
    state = started(3)
    for partitions in batches:
        state = after(state, commit(None, file([(partition, 1) for partition in partitions])))
    every = names(state)
    while any(each.chunks for each in state.partitions):
        partition = data.draw(st.sampled_from([n for n, each in enumerate(state.partitions) if each.chunks]))
        chunks = state.partitions[partition].chunks
        last = chunks[data.draw(st.integers(0, len(chunks) - 1))]
        state = rolled(state, chunks[0].base_offset, last.end_offset, partition=partition)
        needed = {state.file(chunk.file).name for each in state.partitions for chunk in each.chunks}
        listed, gone = names(state), [key.removeprefix("append/") for key in released(state) if "append/" in key]
        assert gone + listed == every
        assert needed <= set(listed)
        assert not listed or listed[0] in needed
