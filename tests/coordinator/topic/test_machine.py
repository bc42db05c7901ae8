"""The state machine of a topic: its start and deletion, offsets, and exactly-once producers."""

import msgspec
import pytest

from pyspark_log_coordinator.model.producers import RETIRED_MAX
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.machine import (
    DeleteTopic,
    StartTopic,
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

ABC = ("A", "B", "C")


def places(state, partition):
    """Return a partition's chunks as (first offset, rows, number of the file, position in it)."""
    return [(c.base_offset, c.rows, c.file, c.position) for c in state.partitions[partition].chunks]


# Beginning and end


def test_a_topic_begins_empty_on_its_nodes_with_the_first_as_leader():
    state = started(partitions=2, replicas=ABC)
    for partition in state.partitions:
        assert partition.replicas == partition.isr == ABC
        assert partition.leader == "A"
        assert (partition.log_start, partition.high_watermark, partition.log_end) == (0, 0, 0)


def test_a_topic_that_has_begun_does_not_begin_again():
    command = StartTopic("other", "2", TopicConfig(), (), {"A": "x"}, (("A",),) * 9)
    assert decide(started(), command) == []


def test_a_deleted_topic_takes_no_more_batches():
    state = after(started(), DeleteTopic())
    with pytest.raises(UnknownTopic, match="deleted"):
        decide(state, commit(claim(0), file({0: 1})))


def test_a_topic_is_deleted_once():
    assert topic.decide(started(), DeleteTopic(), 7) == [TopicDeleted(7)]
    assert decide(after(started(), DeleteTopic()), DeleteTopic()) == []


def test_a_deleted_topic_keeps_no_list_of_what_it_held():
    state = after(started(partitions=2), commit(claim(0), file({0: 4, 1: 2})))
    state = rolled(rolled(state, 0, 4), 0, 2, partition=1)
    assert len(state.pending_deletions) > 0
    state = after(after(state, commit(claim(1), file({0: 5}))), DeleteTopic())
    assert state.deleted
    assert [len(each) for each in (state.files, state.pending_deletions, state.producers)] == [0, 0, 0]
    assert [len(each.segments) + len(each.chunks) for each in state.partitions] == [0, 0]
    assert [each.log_end for each in state.partitions] == [9, 2]


def test_a_deleted_topic_does_not_begin_again():
    state = after(started(), DeleteTopic())
    assert decide(state, StartTopic("t", "1", TopicConfig(), (), {"A": "x"}, (("A",),))) == []


def test_a_batch_before_the_journal_has_begun_is_a_bug():
    with pytest.raises(AssertionError):
        decide(topic.Topic(), commit(claim(0), file({0: 1})))


# Offsets


def test_offsets_follow_the_order_of_tasks_and_then_of_a_tasks_chunks():
    tasks = file([(0, 3), (1, 1), (0, 2)]), file([(0, 4)])
    state = after(started(partitions=2), commit(claim(0), *tasks))
    assert places(state, 0) == [(0, 3, 0, 0), (3, 2, 0, 128), (5, 4, 1, 0)]
    assert places(state, 1) == [(0, 1, 0, 64)]


def test_the_next_batch_begins_where_the_last_one_ended():
    state = after(started(), commit(claim(0), file({0: 3})))
    state = after(state, commit(claim(1), file({0: 2})))
    assert places(state, 0) == [(0, 3, 0, 0), (3, 2, 1, 0)]
    assert state.partitions[0].log_end == state.partitions[0].high_watermark == 5


def test_a_chunk_says_what_time_the_log_has_reached_with_it_though_its_own_rows_are_older():
    def of(lowest, highest):
        chunk = StagedChunk(0, 0, 64, 1, lowest, highest, 0, 0)
        return msgspec.structs.replace(file({0: 1}), chunks=(chunk,))

    state = started()
    for batch, times in enumerate([(10, 50), (20, 30), (5, 60)]):
        state = after(state, commit(claim(batch), of(*times)))
    assert [each.timestamp_reached for each in state.partitions[0].chunks] == [50, 50, 60]


def test_a_partition_without_rows_in_the_batch_stays_as_it_was():
    state = started(partitions=2)
    assert after(state, commit(claim(0), file({0: 3}))).partitions[1] == state.partitions[1]


def test_a_batch_for_several_partitions_is_one_event():
    (event,) = decide(started(partitions=3), commit(claim(0), file({0: 1, 1: 1, 2: 1})))
    assert isinstance(event, BatchSequenced)


@pytest.mark.parametrize("partition", [-1, 2])
def test_rows_for_a_partition_that_is_not_there_are_refused(partition):
    with pytest.raises(InvalidRecord, match=f"no partition {partition}"):
        decide(started(partitions=2), commit(claim(0), file({0: 1, partition: 1})))


def test_a_decision_leaves_the_state_as_it_was():
    state = after(started(), commit(claim(0), file({0: 3})))
    before = topic.MACHINE.encode_state(state)
    decide(state, commit(claim(1), file({0: 2})))
    assert topic.MACHINE.encode_state(state) == before


def test_an_older_state_does_not_see_the_rows_of_a_newer_one():
    old = after(started(), commit(claim(0), file({0: 3})))
    after(old, commit(claim(1), file({0: 2})))
    assert places(old, 0) == [(0, 3, 0, 0)]
    assert len(old.files) == 1


# Exactly once


def test_a_replayed_batch_changes_nothing():
    state = after(started(), commit(claim(0), file({0: 3})))
    assert decide(state, commit(claim(0), file({0: 3}))) == []


def test_a_batch_that_a_new_run_replays_changes_nothing():
    state = after(started(), commit(claim(0, run="run-1"), file({0: 3})))
    assert decide(state, commit(claim(0, run="run-2"), file({0: 3}))) == []


def test_a_replayed_batch_may_be_split_otherwise():
    state = after(started(partitions=2), commit(claim(0), file({0: 3, 1: 1})))
    assert decide(state, commit(claim(0), file({0: 1}), file({1: 3}))) == []


def test_a_replayed_batch_with_another_number_of_rows_is_refused():
    state = after(started(), commit(claim(4), file({0: 3})))
    with pytest.raises(BatchMismatch, match="again with 2 rows, but 3") as caught:
        decide(state, commit(claim(4), file({0: 2})))
    assert (caught.value.producer, caught.value.batch) == ("query-1", 4)


def test_a_replayed_batch_that_has_become_empty_is_refused():
    state = after(started(), commit(claim(4), file({0: 3})))
    with pytest.raises(BatchMismatch):
        decide(state, commit(claim(4)))


def test_a_batch_number_that_goes_backwards_is_refused():
    state = after(started(), commit(claim(4), file({0: 3})))
    with pytest.raises(BatchMismatch, match="batch 3 after batch 4"):
        decide(state, commit(claim(3), file({0: 3})))


def test_batch_numbers_may_leave_some_out():
    state = after(started(), commit(claim(4), file({0: 3})))
    assert after(state, commit(claim(9), file({0: 1}))).partitions[0].log_end == 4


def test_a_batch_without_rows_is_not_remembered():
    state = started()
    assert decide(state, commit(claim(0))) == []
    assert decide(state, commit(claim(0), file({}))) == []


def test_a_batch_that_was_empty_may_have_rows_when_it_is_replayed():
    state = after(started(), commit(claim(0), file({0: 3})))
    state = after(state, commit(claim(1)))
    assert after(state, commit(claim(1), file({0: 2}))).partitions[0].log_end == 5


def test_two_producers_do_not_disturb_each_other():
    state = after(started(), commit(claim(7, query="one"), file({0: 3})))
    state = after(state, commit(claim(0, query="two"), file({0: 2})))
    assert decide(state, commit(claim(7, query="one"), file({0: 3}))) == []
    assert state.partitions[0].log_end == 5


def test_a_batch_without_a_producer_is_appended_every_time():
    state = after(started(), commit(None, file({0: 3})))
    assert after(state, commit(None, file({0: 3}))).partitions[0].log_end == 6


def test_a_run_that_a_newer_one_replaced_is_fenced():
    state = after(started(), commit(claim(0, run="run-1"), file({0: 3})))
    state = after(state, commit(claim(1, run="run-2"), file({0: 1})))
    for batch in (0, 1, 2):
        with pytest.raises(ProducerFenced, match="replaced by a newer run"):
            decide(state, commit(claim(batch, run="run-1"), file({0: 1})))


def test_a_replaced_run_is_fenced_without_rows_too():
    state = after(started(), commit(claim(0, run="run-1"), file({0: 3})))
    state = after(state, commit(claim(1, run="run-2"), file({0: 1})))
    with pytest.raises(ProducerFenced):
        decide(state, commit(claim(2, run="run-1")))


def test_every_replaced_run_stays_fenced_up_to_a_bound():
    state = started()
    for i in range(RETIRED_MAX + 1):
        state = after(state, commit(claim(i, run=f"run-{i}"), file({0: 1})))
    for i in range(RETIRED_MAX):
        with pytest.raises(ProducerFenced):
            decide(state, commit(claim(RETIRED_MAX + 1, run=f"run-{i}"), file({0: 1})))
    assert len(state.producers["query-1"].retired_runs) == RETIRED_MAX


def test_past_the_bound_the_run_that_was_replaced_first_is_forgotten():
    state = started()
    for i in range(RETIRED_MAX + 2):
        state = after(state, commit(claim(i, run=f"run-{i}"), file({0: 1})))
    assert state.producers["query-1"].retired_runs == tuple(f"run-{i}" for i in range(1, RETIRED_MAX + 1))


# Application ids


def owned():
    """Return a topic in which query-1 has written batches up to 9 as application app."""
    return after(started(), commit(claim(9, query="query-1", run="run-1", app="app"), file({0: 3})))


def test_an_application_id_of_another_query_is_refused():
    with pytest.raises(ProducerFenced, match="belongs to query query-1"):
        decide(owned(), commit(claim(10, query="query-2", run="run-2", app="app"), file({0: 1})))


def test_a_batch_write_does_not_pass_for_the_query_that_owns_the_id():
    with pytest.raises(ProducerFenced, match="this is a batch write"):
        decide(owned(), commit(claim(10, query="", run="", app="app"), file({0: 1})))


def taken_over():
    """Return the topic after query-2 took app over from query-1 with its batch 0."""
    claimed = claim(0, query="query-2", run="run-2", app="app", take_over=True)
    return after(owned(), commit(claimed, file({0: 2})))


def test_a_query_takes_an_application_id_over_and_counts_from_its_own_batches():
    assert taken_over().partitions[0].log_end == 5
    assert taken_over().producers["app"].batch_id == 0


def test_a_replay_of_the_batch_that_took_over_changes_nothing():
    claimed = claim(0, query="query-2", run="run-3", app="app", take_over=True)
    assert decide(taken_over(), commit(claimed, file({0: 2}))) == []


def test_the_former_owner_is_fenced():
    with pytest.raises(ProducerFenced):
        decide(taken_over(), commit(claim(10, query="query-1", run="run-1", app="app"), file({0: 1})))


def test_the_restarted_former_owner_is_fenced():
    with pytest.raises(ProducerFenced):
        decide(taken_over(), commit(claim(10, query="query-1", run="run-9", app="app"), file({0: 1})))


def test_the_former_owner_cannot_take_the_id_back_for_its_batches_are_forgotten():
    claimed = claim(9, query="query-1", run="run-9", app="app", take_over=True)
    with pytest.raises(ProducerFenced, match="taken over from query query-1 by query query-2"):
        decide(taken_over(), commit(claimed, file({0: 3})))


@pytest.mark.parametrize(("before", "after_restart"), [("", "app"), ("app", ""), ("app", "other")])
def test_a_run_is_fenced_if_a_newer_one_writes_under_another_name(before, after_restart):
    state = after(started(), commit(claim(0, run="run-1", app=before), file({0: 3})))
    state = after(state, commit(claim(1, run="run-2", app=after_restart), file({0: 1})))
    for batch in (0, 1, 2):
        with pytest.raises(ProducerFenced, match="replaced by a newer run, which wrote up to batch 1 as"):
            decide(state, commit(claim(batch, run="run-1", app=before), file({0: 3})))
    state = after(state, commit(claim(2, run="run-3", app=before), file({0: 1})))
    assert decide(state, commit(claim(2, run="run-3", app=before), file({0: 1}))) == []
    with pytest.raises(ProducerFenced, match="wrote up to batch 2"):
        decide(state, commit(claim(3, run="run-2", app=after_restart), file({0: 1})))


@pytest.mark.parametrize(("before", "after_restart"), [("", "app"), ("app", ""), ("app", "other")])
def test_a_query_that_gets_another_name_at_a_restart_repeats_its_batch(before, after_restart):
    state = after(started(), commit(claim(9, run="run-1", app=before), file({0: 3})))
    assert decide(state, commit(claim(9, run="run-2", app=after_restart), file({0: 3}))) == []
    with pytest.raises(BatchMismatch, match="batch 8 after batch 9"):
        decide(state, commit(claim(8, run="run-2", app=after_restart), file({0: 3})))
    state = after(state, commit(claim(10, run="run-2", app=after_restart), file({0: 2})))
    assert decide(state, commit(claim(10, run="run-3", app=before), file({0: 2}))) == []
    assert state.partitions[0].log_end == 5


def test_a_third_query_may_take_over_again():
    claimed = claim(0, query="query-3", run="run-3", app="app", take_over=True)
    state = after(taken_over(), commit(claimed, file({0: 4})))
    assert state.producers["app"].retired_queries == ("query-1", "query-2")
    assert state.partitions[0].log_end == 9


def test_taking_over_ones_own_id_still_tells_replays():
    claimed = claim(9, query="query-1", run="run-1", app="app", take_over=True)
    assert decide(owned(), commit(claimed, file({0: 3}))) == []
