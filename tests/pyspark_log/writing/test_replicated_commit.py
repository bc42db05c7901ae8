"""Writing to several nodes: which hold a batch, which leave the ISR, and what each promise of acks waits for."""

import msgspec
import pytest

from pyspark_log.writing.destination import destination_of
from pyspark_log_coordinator.commit.commit import commit_staged
from pyspark_log_coordinator.journal.history import history
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_coordinator.sync import catch_up
from pyspark_log_storage.errors import (
    BatchMismatch,
    NotEnoughReplicasAfterAppend,
    StoreRefused,
    StoreUnavailable,
    StoreUnwritable,
)
from tests.support.memory_store import wipe
from tests.support.pyspark_log.three_nodes import ALL, QUICK, ThreeNodes, holders


@pytest.mark.parametrize(("lost", "error"), [("1", StoreUnavailable), ("0", StoreUnavailable), ("2", StoreUnwritable)])
def test_a_node_that_fails_or_is_full_in_the_middle_of_a_batch_costs_no_retry(lost, error):
    topic = ThreeNodes(replicas=[("0", "1", "2"), ("1", "2", "0")])
    destination = destination_of(topic.handle, None, 1000)
    before = topic.handle.journal.number
    topic.disk(lost).broken_writes = error  # node 0 holds the journal: of it only rows are kept out
    staged = topic.write(destination, b"a")
    topic.disk(lost).broken_writes = None
    topic.commit(staged, patience=RetryPolicy(retries=0))
    left = tuple(node for node in ALL if node != lost)
    assert topic.handle.journal.number == before + 1
    assert topic.partition.isr == left
    assert topic.partition.leader == left[0]
    assert topic.partition.high_watermark == 1
    assert holders(topic) == [list(left)]


def test_a_writer_logs_once_which_node_left_the_isr_and_which_leads_now(caplog):
    topic = ThreeNodes(replicas=[("1", "0", "2"), ("1", "0", "2")])
    caplog.clear()
    caplog.set_level("INFO", "pyspark_log")
    destination = destination_of(topic.handle, None, 1000)
    topic.disk("1").broken_writes = StoreUnavailable
    for row in (b"a", b"b"):
        topic.commit(topic.write(destination, row), patience=RetryPolicy(retries=0))
    assert caplog.messages == [
        "topic 't', partition 0: node '0' leads from epoch 1 on",
        "topic 't': node '1' left the ISR of 1 of 2 partitions",
    ]


def test_missing_rights_that_are_noticed_before_a_batch_fail_it_and_shrink_no_isr():
    topic = ThreeNodes()
    topic.commit(topic.stage(b"a"))
    topic.disk("2").broken = StoreRefused
    topic.refresh()
    assert list(topic.log.missing_nodes) == ["2"]
    with pytest.raises(StoreRefused, match="/disk/2 was taken away"):
        topic.stage(b"b")
    topic.disk("2").broken = None
    staged = topic.stage(b"b")
    topic.disk("2").broken = StoreRefused  # what a task may, the process that commits may not
    with pytest.raises(StoreRefused, match="/disk/2 was taken away"):
        topic.commit(staged)
    assert topic.refresh().partitions[0].isr == ALL


@pytest.mark.parametrize("acks", ["all", "1"])
def test_a_damaged_copy_of_a_refused_batch_is_replaced(acks):
    topic = ThreeNodes(replicas=[("2", "1", "0")] * 2, min_insync_replicas=3)
    destination = destination_of(topic.handle, None, 1000)
    topic.disk("2").broken_writes = StoreUnavailable
    [staged] = topic.write(destination, b"b")
    topic.disk("2").broken_writes = None
    key = topic.handle.append_file(staged.file.name)
    topic.disk("2").put(key, b"?")
    topic.commit([staged], acks, patience=RetryPolicy(retries=0))
    assert topic.disk("2").read(key) == topic.disk("1").read(key)
    assert (holders(topic), topic.partition.isr) == ([["0", "1", "2"]], ("2", "1", "0"))


def test_a_node_that_was_wiped_after_a_file_was_written_and_is_in_sync_again_gets_the_file():
    topic = ThreeNodes()
    topic.commit(topic.stage(b"a"))
    staged = topic.stage(b"b")
    wipe(topic.disk("2"))
    node_admin.renew(topic.log, "2")
    catch_up.catch_up(topic.handle, "2")
    topic.commit(staged)
    assert topic.partition.isr == ALL
    assert holders(topic) == [["0", "1", "2"]] * 2


@pytest.mark.parametrize("acks", ["all", "1"])
def test_a_refused_batch_brings_reachable_nodes_back(acks):
    topic = ThreeNodes(min_insync_replicas=2)
    topic.disk("2").broken = StoreUnavailable
    topic.refresh()
    topic.commit(topic.stage(b"a"))
    assert topic.partition.isr == ("0", "1")
    topic.disk("2").broken, topic.disk("1").broken = None, StoreUnavailable
    topic.refresh()
    topic.commit(topic.stage(b"b", acks=acks), acks)
    topic.commit(topic.stage(b"c"), patience=RetryPolicy(retries=1, retry_backoff_ms=1))
    assert (topic.partition.isr, topic.partition.high_watermark) == (("0", "2"), 3)


@pytest.mark.parametrize("restored", ["1", "2"])
def test_a_disk_from_a_backup_leaves_the_isr_with_the_next_batch_and_gets_its_files_back(restored):
    topic = ThreeNodes(replicas=[("1", "2", "0"), ("1", "2", "0")])
    topic.commit(topic.stage(b"a"))
    topic.commit(topic.stage(b"b"))
    topic.disk(restored).delete(topic.handle.append_file(topic.handle.journal.state.file(1).name))
    topic.commit(topic.stage(b"c"))
    left = tuple(node for node in ("1", "2", "0") if node != restored)
    steps = list(history(topic.handle.journal))
    (step,) = [each for each in steps if each.state.partitions and each.state.partitions[0].isr == left]
    assert step.state.partitions[0].leader == left[0]
    assert (topic.partition.isr, topic.partition.high_watermark) == (("1", "2", "0"), 3)
    files = [topic.handle.append_file(file.name) for file in topic.handle.journal.state.files]
    assert [topic.disk(restored).read(key) for key in files] == [topic.disk("0").read(key) for key in files]


def test_a_majority_is_enough_in_quorum_mode_and_catches_up_first():
    topic = ThreeNodes(replication_mode="quorum")
    for away in ("2", "1", "0", "2"):
        if away == "0":  # which holds the journal
            topic.disk(away).broken_writes = StoreUnavailable
            staged = topic.stage(b"row")
            topic.disk(away).broken_writes = None
            topic.commit(staged)
            continue
        topic.disk(away).broken = StoreUnavailable
        topic.refresh()
        topic.commit(topic.stage(b"row"), patience=RetryPolicy(retries=0))
        topic.disk(away).broken = None
        topic.refresh()
    assert topic.partition.high_watermark == 4
    ends = sorted(topic.partition.log_end_offsets.values())
    assert ends[1] == 4


def test_files_that_different_majorities_hold_are_copied_until_one_holds_all_of_them():
    topic = ThreeNodes(replication_mode="quorum")
    destination = destination_of(topic.handle, None, 1000)
    staged = []
    for slow in ("2", "1"):
        topic.disk(slow).broken_writes = StoreUnavailable
        staged += topic.write(destination, b"row")
        topic.disk(slow).broken_writes = None
    topic.commit([msgspec.structs.replace(each, failed=()) for each in staged], patience=RetryPolicy(retries=0))
    assert topic.partition.high_watermark == 2


def test_rows_with_acks_one_become_visible_when_an_unreachable_follower_has_left_the_isr():
    topic = ThreeNodes()
    topic.disk("2").broken = StoreUnavailable
    topic.refresh()
    topic.commit(topic.stage(b"a", acks="1"), "1")
    assert (topic.partition.isr, topic.partition.high_watermark) == (ALL, 0)
    topic.passed += QUICK.session_timeout_ms / 1000
    topic.commit(topic.stage(b"b", acks="1"), "1")
    assert (topic.partition.isr, topic.partition.high_watermark) == (("0", "1"), 2)


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


def with_rows_that_wait_for_node_2():
    """Return a topic whose partition 1 has a row of another writer, with acks=1, that the unreachable node 2 lacks."""
    topic = ThreeNodes()
    topic.disk("2").broken = StoreUnavailable
    topic.refresh()
    topic.commit(topic.stage(b"another's", partition=1, acks="1"), "1")
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
