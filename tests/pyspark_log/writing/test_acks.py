"""What acks=1, acks=all and a replayed batch wait for when followers are unreachable."""

import pytest

from pyspark_log_coordinator.commit import commit_catch_up
from pyspark_log_coordinator.commit.commit import commit_staged
from pyspark_log_coordinator.commit.isr_recovery import INLINE_EVERY_SECONDS
from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.replication.election import ElectPreferred
from pyspark_log_coordinator.replication.reassignment import AlterReplicas, PartitionReassignment
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_coordinator.sync import catch_up
from pyspark_log_coordinator.sync.failure_detector import failure_detector_of
from pyspark_log_coordinator.topic.sequencing import CommitBatch
from pyspark_log_storage.errors import (
    BatchMismatch,
    NotEnoughReplicasAfterAppend,
    OutcomeUnknown,
    StoreRefused,
    StoreUnavailable,
    StoreUnwritable,
)
from tests.support.pyspark_log.three_nodes import ALL, QUICK, ThreeNodes, holders


def test_acks_one_writes_to_the_leader_and_the_commit_copies_to_the_followers():
    topic = ThreeNodes()
    [staged] = topic.stage(b"a", acks="1")
    assert [holder.node for holder in staged.file.holders] == ["0"]
    topic.commit([staged], "1")
    assert holders(topic) == [["0", "1", "2"]]
    assert topic.partition.high_watermark == 1


def test_acks_one_leaves_a_follower_to_another_process_that_copies_to_it(monkeypatch):
    topic = ThreeNodes()
    topic.commit(topic.stage(b"a", acks="1"), "1")
    with monkeypatch.context() as of_another_process:
        of_another_process.setattr(commit_catch_up, "follow_up", lambda *_: None)
        topic.commit(topic.stage(b"b", acks="1"), "1")
    catch_up.catch_up(topic.handle, "1")
    topic.commit(topic.stage(b"c", acks="1"), "1")
    assert holders(topic) == [["0", "1", "2"], ["0", "1", "2"], ["0", "2"]], "nobody copies to node 2 but this process"


def test_acks_one_copies_each_batch_to_nodes_that_lead_other_partitions_of_it():
    topic = ThreeNodes(replicas=[("0", "1"), ("1", "0")])
    for batch in range(1, 4):
        staged = [each for number in (0, 1) for each in topic.stage(b"a", partition=number, acks="1")]
        topic.commit(staged, "1")
        assert [each.high_watermark for each in topic.handle.partitions] == [batch, batch]


def test_acks_one_copies_the_batch_after_a_change_of_leaders():
    topic = ThreeNodes(replicas=[("0", "1"), ("1", "0")])
    staged = [each for number in (0, 1) for each in topic.stage(b"a", partition=number, acks="1")]
    topic.commit(staged, "1")
    incarnations = topic.handle.journal.state.incarnations
    topic.handle.submit(AlterReplicas((PartitionReassignment(0, ("1", "0")),), incarnations))
    topic.handle.submit(ElectPreferred(tuple(Holder(*each) for each in incarnations.items())))
    assert [each.leader for each in topic.handle.partitions] == ["1", "1"]
    topic.commit(topic.stage(b"b", acks="1"), "1")
    assert topic.partition.high_watermark == topic.partition.log_end == 2


def test_acks_one_copies_the_batch_after_one_with_which_a_follower_has_come_back():
    topic = ThreeNodes()
    topic.commit(topic.stage(b"a", acks="1"), "1")
    topic.disk("2").broken = StoreUnavailable
    topic.refresh()
    topic.commit(topic.stage(b"b", acks="1"), "1")
    topic.passed += QUICK.session_timeout_ms / 1000
    topic.commit(topic.stage(b"c", acks="1"), "1")
    topic.disk("2").broken = None
    topic.refresh()
    while topic.partition.isr != ALL:
        topic.passed += INLINE_EVERY_SECONDS
        topic.commit(topic.stage(b"d", acks="1"), "1")
    topic.commit(topic.stage(b"e", acks="1"), "1")
    assert topic.partition.high_watermark == topic.partition.log_end


def test_acks_one_copies_the_batch_after_one_with_acks_all():
    topic = ThreeNodes()
    for acks in ("1", "all", "1"):
        topic.commit(topic.stage(b"a", acks=acks), acks)
    assert topic.partition.high_watermark == topic.partition.log_end == 3


def test_acks_one_does_not_wait_for_an_unreachable_follower():
    topic = ThreeNodes()
    topic.disk("2").broken = StoreUnavailable
    topic.refresh()
    topic.commit(topic.stage(b"a", acks="1"), "1")
    assert (topic.partition.log_end, topic.partition.high_watermark) == (1, 0)
    assert topic.partition.isr == ALL


def test_rows_with_acks_one_become_visible_when_an_unreachable_follower_has_left_the_isr():
    topic = ThreeNodes()
    topic.disk("2").broken = StoreUnavailable
    topic.refresh()
    topic.commit(topic.stage(b"a", acks="1"), "1")
    assert (topic.partition.isr, topic.partition.high_watermark) == (ALL, 0)
    topic.passed += QUICK.session_timeout_ms / 1000
    topic.commit(topic.stage(b"b", acks="1"), "1")
    assert (topic.partition.isr, topic.partition.high_watermark) == (("0", "1"), 2)


def test_rows_with_acks_one_become_visible_when_a_follower_that_takes_no_rows_has_left_the_isr():
    topic = ThreeNodes()
    topic.disk("2").broken_writes = StoreUnwritable  # it is full, and answers
    topic.commit(topic.stage(b"a", acks="1"), "1")
    assert (topic.partition.isr, topic.partition.high_watermark) == (ALL, 0)
    topic.passed += topic.handle.journal.state.config.replica_lag_time_max_ms / 1000 + 1
    topic.commit(topic.stage(b"b", acks="1"), "1")
    assert (topic.partition.isr, topic.partition.high_watermark) == (("0", "1"), 2)


def test_a_batch_is_acknowledged_even_if_failure_detection_fails(monkeypatch, caplog):
    topic = ThreeNodes()
    topic.disk("2").broken = StoreUnavailable
    topic.refresh()

    def fails(*_):
        raise StoreUnavailable("/cluster", "key", "the test made this up")

    monkeypatch.setattr(topic.log, "probe_nodes", fails)
    topic.commit(topic.stage(b"a", acks="1"), "1", patience=RetryPolicy(retries=0))
    assert topic.partition.log_end == 1
    assert "failure detection for topic 't' failed: the test made this up" in caplog.text


def test_an_error_after_the_entry_of_a_batch_leaves_its_outcome_unknown(monkeypatch):
    def fails(*_):
        raise StoreUnavailable("/cluster", "key", "the test made this up")

    topic = ThreeNodes()
    monkeypatch.setattr(commit_catch_up, "follow_up", fails)
    with pytest.raises(OutcomeUnknown, match=r"the batch may be in the log.*the test made this up"):
        topic.commit(topic.stage(b"a", acks="1"), "1", batch=0, patience=RetryPolicy(retries=0))
    assert topic.partition.log_end == 1


def test_a_replayed_batch_with_acks_all_is_acknowledged_once_all_have_it():
    topic = ThreeNodes(min_insync_replicas=3)
    topic.disk("2").broken = StoreUnavailable
    topic.refresh()
    topic.commit(topic.stage(b"a", acks="1"), "1", batch=0)
    staged = topic.stage(b"a")
    with pytest.raises(NotEnoughReplicasAfterAppend, match="its rows from offset 0 on are not on enough"):
        topic.commit(staged, batch=0)
    topic.disk("2").broken = None
    topic.refresh()
    topic.commit(staged, batch=0)
    assert (topic.partition.log_end, topic.partition.high_watermark) == (1, 1)


def test_a_batch_that_is_replayed_under_another_name_is_acknowledged_once_all_have_it():
    topic = ThreeNodes()
    topic.disk("2").broken = StoreUnavailable
    topic.refresh()
    topic.commit(topic.stage(b"a", acks="1"), "1", batch=0)
    renamed = ProducerClaim("app", "q", "r2", 0)
    with pytest.raises(NotEnoughReplicasAfterAppend, match="its rows from offset 0 on are not on enough"):
        commit_staged(topic.log, [topic.stage(b"a")], renamed, "all", RetryPolicy(retries=0), None)


def with_rows_that_wait_for_node_2(batch=None):
    """Return a topic whose partition 1 has a row with acks=1 that the unreachable node 2 lacks.

    It is of another writer, unless a batch of the same one is given.
    """
    topic = ThreeNodes()
    topic.disk("2").broken = StoreUnavailable
    topic.refresh()
    topic.commit(topic.stage(b"another's", partition=1, acks="1"), "1", batch=batch)
    assert topic.handle.journal.state.partitions[1].high_watermark == 0
    return topic


def test_a_batch_that_all_have_does_not_wait_for_rows_of_other_partitions():
    topic = with_rows_that_wait_for_node_2()
    topic.commit(topic.stage(b"a"), batch=0, patience=RetryPolicy(retries=0))
    topic.commit(topic.stage(b"b"), patience=RetryPolicy(retries=0))
    assert topic.partition.high_watermark == 2
    assert topic.handle.journal.state.partitions[1].high_watermark == 0


def test_a_replayed_batch_waits_for_its_own_rows_only():
    topic = with_rows_that_wait_for_node_2()
    staged = topic.stage(b"a")
    topic.commit(staged, batch=0)
    topic.commit(staged, batch=0, patience=RetryPolicy(retries=0))
    empty = ProducerClaim("p", "q", "r", 1)
    commit_staged(topic.log, [], empty, "all", RetryPolicy(retries=0), "t")
    topic.commit(topic.stage(b"b", partition=1, acks="1"), "1", batch=1)
    with pytest.raises(NotEnoughReplicasAfterAppend, match="partition 1: the batch is in the log"):
        topic.commit(topic.stage(b"b", partition=1), batch=1, patience=RetryPolicy(retries=0))


def test_a_replayed_batch_does_not_wait_for_rows_of_earlier_batches_of_its_writer():
    topic = with_rows_that_wait_for_node_2(batch=0)
    staged = topic.stage(b"a")
    for _ in range(2):
        topic.commit(staged, batch=1, patience=RetryPolicy(retries=0))
    assert [each.high_watermark for each in topic.handle.journal.state.partitions] == [1, 0]


def test_with_acks_one_another_leader_is_elected_if_the_leader_stays_unreachable():
    topic = ThreeNodes(replicas=[("1", "2", "0"), ("1", "2", "0")])
    topic.commit(topic.stage(b"a", acks="1"), "1")
    topic.disk("1").broken = StoreUnavailable
    topic.refresh()
    topic.commit(topic.stage(b"b", acks="1"), "1", patience=RetryPolicy(retry_backoff_ms=20, session_timeout_ms=50))
    assert topic.partition.leader == "2"
    assert topic.partition.leader_epoch == 1
    assert (topic.partition.isr, topic.partition.high_watermark) == (("2", "0"), 2)


def only_on_the_leader():
    """Return a topic with batch 0 of acks=1 on node 1 alone, which is unreachable."""
    topic = ThreeNodes(replicas=[("1", "2", "0"), ("1", "2", "0")], min_insync_replicas=2)
    staged = topic.stage(b"a", acks="1")
    topic.disk("2").broken = StoreUnavailable
    topic.disk("0").open_write = gone
    topic.refresh()
    topic.commit(staged, "1", batch=0)
    assert topic.partition.log_end_offsets == {"0": 0, "1": 1, "2": 0}
    topic.disk("1").broken, topic.disk("2").broken = StoreUnavailable, None
    del topic.disk("0").open_write
    topic.refresh()
    return topic


def gone(key, **_):
    raise StoreUnavailable("/cluster", key, "it takes no rows")


def test_a_batch_that_an_election_cut_while_it_waited_is_not_acknowledged():
    topic = only_on_the_leader()
    staged = topic.stage(b"a")
    with pytest.raises(BatchMismatch, match="1 of its 1 rows are lost"):
        topic.commit(staged, batch=0, patience=RetryPolicy(retry_backoff_ms=20, session_timeout_ms=50))
    assert (topic.partition.leader, topic.partition.log_end) == ("2", 0)


def test_other_rows_at_the_offsets_of_cut_rows_acknowledge_nothing(monkeypatch):
    topic = only_on_the_leader()
    topic.handle.refresh()

    def meanwhile(handle, node, seconds):
        monkeypatch.setattr(commit_catch_up, "_catch_up", lambda *_: None)
        detector = failure_detector_of(handle, session_timeout_ms=0)
        detector.look(handle)
        topic.commit(topic.stage(b"b", b"c"))
        assert topic.partition.high_watermark == 2

    monkeypatch.setattr(commit_catch_up, "_catch_up", meanwhile)
    again = CommitBatch(ProducerClaim("p", "q", "r", 0), (), "all")
    with pytest.raises(NotEnoughReplicasAfterAppend, match="its rows from offset 0 on are not on enough"):
        commit_catch_up.follow_up(topic.handle, again)


def test_acks_one_copies_the_batch_after_one_whose_commit_has_copied_and_failed(monkeypatch):
    topic = ThreeNodes()
    topic.commit(topic.stage(b"a", acks="1"), "1")
    with monkeypatch.context() as failing:
        failing.setattr(topic.disk("2"), "open_write", refused)
        with pytest.raises(OutcomeUnknown):
            topic.commit(topic.stage(b"b", acks="1"), "1")
    topic.commit(topic.stage(b"c", acks="1"), "1")
    assert topic.partition.high_watermark == topic.partition.log_end == 3


def refused(key, **_):
    raise StoreRefused("/disk/2", key, "no permission")
