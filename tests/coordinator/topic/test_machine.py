"""The state machine of a topic: its start and deletion, offsets, and exactly-once producers."""

import msgspec
import pytest

from pyspark_log_coordinator.journal.state_machine import Outcome
from pyspark_log_coordinator.model.producers import RETIRED_MAX
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic import sequencing
from pyspark_log_coordinator.topic.machine import (
    DeleteTopic,
    TopicDeleted,
)
from pyspark_log_coordinator.topic.sequencing import BatchSequenced
from pyspark_log_storage.errors import (
    BatchMismatch,
    InvalidRecord,
    ProducerFenced,
    UnknownTopic,
)
from pyspark_log_storage.files.row_files import StagedChunk
from tests.support.coordinator.topics import after, claim, commit, decide, file, rolled, started


def places(state, partition):
    """Return a partition's chunks as (first offset, rows, number of the file, position in it)."""
    return [(c.base_offset, c.rows, c.file, c.position) for c in state.partitions[partition].chunks]


# Beginning and end


def test_a_topic_is_deleted_once_and_keeps_no_list_of_what_it_held():
    assert topic.decide(started(), DeleteTopic(), 7) == [TopicDeleted(7)]
    state = after(started(partitions=2), commit(claim(0), file({0: 4, 1: 2})))
    state = rolled(rolled(state, 0, 4), 0, 2, partition=1)
    assert len(state.pending_deletions) > 0
    state = after(after(state, commit(claim(1), file({0: 5}))), DeleteTopic())
    assert state.deleted
    assert decide(state, DeleteTopic()) == []
    assert [len(each) for each in (state.files, state.pending_deletions, state.producers)] == [0, 0, 0]
    assert [len(each.segments) + len(each.chunks) for each in state.partitions] == [0, 0]
    assert [each.log_end for each in state.partitions] == [9, 2]
    with pytest.raises(UnknownTopic, match="deleted"):
        decide(state, commit(claim(0), file({0: 1})))


# Offsets


def test_offsets_follow_the_order_of_tasks_and_then_of_a_tasks_chunks():
    tasks = file([(0, 3), (1, 1), (0, 2)]), file([(0, 4)])
    command = commit(claim(0), *tasks)
    (event,) = decide(started(partitions=2), command)
    assert isinstance(event, BatchSequenced)
    state = after(started(partitions=2), command)
    assert places(state, 0) == [(0, 3, 0, 0), (3, 2, 0, 128), (5, 4, 1, 0)]
    assert places(state, 1) == [(0, 1, 0, 64)]
    later = after(state, commit(claim(1), file({1: 2})))
    assert places(later, 1) == [(0, 1, 0, 64), (1, 2, 2, 0)]
    assert later.partitions[0] == state.partitions[0]
    assert (places(state, 1), len(state.files)) == ([(0, 1, 0, 64)], 2), "an older state does not see it"


def test_a_chunk_says_what_time_the_log_has_reached_with_it_though_its_own_rows_are_older():
    def of(lowest, highest):
        chunk = StagedChunk(0, 0, 64, 1, lowest, highest, 0, 0)
        return msgspec.structs.replace(file({0: 1}), chunks=(chunk,))

    state = started()
    for batch, times in enumerate([(10, 50), (20, 30), (5, 60)]):
        state = after(state, commit(claim(batch), of(*times)))
    assert [each.timestamp_reached for each in state.partitions[0].chunks] == [50, 50, 60]


@pytest.mark.parametrize("partition", [-1, 2])
def test_rows_for_a_partition_that_is_not_there_are_refused(partition):
    with pytest.raises(InvalidRecord, match=f"no partition {partition}"):
        decide(started(partitions=2), commit(claim(0), file({0: 1, partition: 1})))


@pytest.mark.parametrize(
    ("after_max", "before_max", "times", "refused"),
    [
        (1000, 2**63 - 1, (0, 11_000), None),
        (1000, 2**63 - 1, (0, 11_001), "after"),
        (2**63 - 1, 2**63 - 1, (-(2**50), 2**50), None),
        (1000, 500, (9500, 10_000), None),
        (1000, 500, (9499, 10_000), "before"),
    ],
)
def test_a_batch_with_a_row_that_is_too_far_in_the_future_or_the_past_is_refused(after_max, before_max, times, refused):
    state = started(message_timestamp_after_max_ms=after_max, message_timestamp_before_max_ms=before_max)
    batch = file({0: 1})
    (chunk,) = batch.chunks
    chunk = msgspec.structs.replace(chunk, min_timestamp=times[0] * 1000, max_timestamp=times[1] * 1000)
    command = commit(claim(0), msgspec.structs.replace(batch, chunks=(chunk,)))
    if refused is None:
        assert topic.decide(state, command, 10_000)
        return
    with pytest.raises(
        InvalidRecord,
        match=rf"partition 0: .* \(message\.timestamp\.{refused}\.max\.ms\), which is 1970-01-01 00:00:10 UTC",
    ):
        topic.decide(state, command, 10_000)


# Exactly once


@pytest.mark.parametrize("expires", [True, False], ids=["a process", "a query"])
def test_a_replayed_batch_of_several_chunks_in_a_partition_tells_its_first_offsets(expires):
    """What the log remembers of a process, and the chunks of a query's files."""
    claimed = msgspec.structs.replace(claim(0), expires=expires)
    replay = commit(claimed, file([(0, 4), (1, 1), (0, 2)]), file({0: 1}))
    state = after(after(started(partitions=2), commit(None, file({0: 5}))), replay)
    assert sequencing.offsets(replay, Outcome(3, state, [])) == {0: (5, 12), 1: (0, 1)}


@pytest.mark.parametrize(
    ("batch", "files", "said"),
    [
        (4, [file({0: 2})], "again with 2 rows, but 3"),
        (4, [], "again with 0 rows, but 3"),
        (3, [file({0: 3})], "batch 3 after batch 4"),
    ],
)
def test_a_replayed_batch_with_another_number_of_rows_and_an_older_one_are_refused(batch, files, said):
    state = after(started(), commit(claim(4), file({0: 3})))
    with pytest.raises(BatchMismatch, match=said) as caught:
        decide(state, commit(claim(batch), *files))
    assert (caught.value.producer, caught.value.batch) == ("query-1", batch)


def test_a_query_that_sends_every_batch_is_refused_if_one_is_missing_and_batches_without_rows_count():
    state = started()
    for batch, files in enumerate([[file({0: 3})], [], [file({})], [file({0: 1})]]):
        state = after(state, commit(claim(batch, follows=True), *files))
        assert decide(state, commit(claim(batch, run="run-2", follows=True), *files)) == []
    assert (state.partitions[0].log_end, len(state.files), state.producers["query-1"].batch_id) == (4, 2, 3)
    for files in ([], [file({0: 1})]):
        with pytest.raises(BatchMismatch, match="sends batch 5 after batch 3: the batches between are missing"):
            decide(state, commit(claim(5, follows=True), *files))
    assert after(state, commit(claim(4, follows=True), file({0: 1}))).partitions[0].log_end == 5


def test_a_missing_batch_is_looked_for_under_all_names_of_a_query_and_a_take_over_goes_on_without_it():
    state = after(started(), commit(claim(3, run="run-1", follows=True), file({0: 3})))
    state = after(state, commit(claim(4, run="run-2", app="app", follows=True), file({0: 1})))
    assert after(state, commit(claim(5, run="run-3", follows=True), file({0: 1}))).partitions[0].log_end == 5
    with pytest.raises(BatchMismatch, match="txnTakeOver=true the query goes on"):
        decide(state, commit(claim(6, run="run-3", follows=True), file({0: 1})))
    taken = after(state, commit(claim(6, run="run-3", app="app", follows=True, take_over=True), file({0: 1})))
    assert taken.partitions[0].log_end == 5


def test_every_replaced_run_stays_fenced_up_to_a_bound():
    state = started()
    for i in range(RETIRED_MAX + 2):
        state = after(state, commit(claim(i, run=f"run-{i}"), file({0: 1})))
    fenced = tuple(f"run-{i}" for i in range(1, RETIRED_MAX + 1))
    assert state.producers["query-1"].retired_runs == fenced
    for run in fenced:
        with pytest.raises(ProducerFenced):
            decide(state, commit(claim(RETIRED_MAX + 2, run=run), file({0: 1})))


# Application ids


@pytest.mark.parametrize(("before", "after_restart"), [("", "app"), ("app", ""), ("app", "other")])
def test_a_run_is_fenced_if_a_newer_one_writes_under_another_name(before, after_restart):
    state = after(started(), commit(claim(0, run="run-1", app=before), file({0: 3})))
    state = after(state, commit(claim(1, run="run-2", app=after_restart), file({0: 1})))
    for batch in (0, 1, 2):
        with pytest.raises(
            ProducerFenced, match=r"newer run, which wrote up to batch 1 as .*: another driver runs on this"
        ):
            decide(state, commit(claim(batch, run="run-1", app=before), file({0: 3})))
    state = after(state, commit(claim(2, run="run-3", app=before), file({0: 1})))
    assert decide(state, commit(claim(2, run="run-3", app=before), file({0: 1}))) == []
    with pytest.raises(ProducerFenced, match="wrote up to batch 2"):
        decide(state, commit(claim(3, run="run-2", app=after_restart), file({0: 1})))
