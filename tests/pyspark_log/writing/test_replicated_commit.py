"""Writing to several nodes: which hold a batch, which leave the ISR, and when the batch is acknowledged."""

import msgspec
import pyarrow as pa
import pytest

from pyspark_log.writing.destination import destination_of
from pyspark_log.writing.rows import Rows
from pyspark_log.writing.staging import Staging
from pyspark_log_coordinator.commit import isr_recovery
from pyspark_log_coordinator.commit.commit import commit_staged
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_coordinator.sync import catch_up
from pyspark_log_coordinator.sync.failure_detector import failure_detector_of
from pyspark_log_storage.errors import (
    NotEnoughReplicas,
    StoreRefused,
    StoreUnavailable,
    StoreUnwritable,
)
from tests.support.coordinator.several_nodes import Stores
from tests.support.elsewhere import wipe
from tests.support.plain_log import record
from tests.support.pyspark_log.three_nodes import ALL, ThreeNodes, holders


def test_a_batch_is_on_all_of_the_isr_and_visible_by_one_entry():
    topic = ThreeNodes()
    before = topic.handle.journal.number
    topic.commit(topic.stage(b"a", b"b"))
    assert topic.handle.journal.number == before + 1
    assert holders(topic) == [["0", "1", "2"]]
    assert (topic.partition.high_watermark, topic.partition.isr) == (2, ALL)
    key = topic.handle.append_file(topic.handle.journal.state.file(0).name)
    assert len({topic.disk(node).read(key) for node in ALL}) == 1


@pytest.mark.parametrize("lost", ["1", "0"])
def test_a_node_that_fails_in_the_middle_of_a_batch_costs_no_retry(lost):
    topic = ThreeNodes(replicas=[("0", "1", "2"), ("1", "2", "0")])
    destination = destination_of(topic.handle, None, 1000)
    before = topic.handle.journal.number
    topic.disk(lost).broken_writes = StoreUnavailable  # node 0 holds the journal: of it only rows are kept out
    staged = topic.write(destination, b"a")
    topic.disk(lost).broken_writes = None
    topic.commit(staged, patience=RetryPolicy(retries=0))
    left = tuple(node for node in ALL if node != lost)
    assert topic.handle.journal.number == before + 1
    assert topic.partition.isr == left
    assert topic.partition.leader == left[0]
    assert topic.partition.high_watermark == 1
    assert holders(topic) == [list(left)]


def test_below_min_insync_the_batch_is_refused_and_nothing_of_it_is_in_the_log():
    topic = ThreeNodes(min_insync_replicas=3)
    destination = destination_of(topic.handle, None, 1000)
    topic.disk("2").broken = StoreUnavailable
    staged = topic.write(destination, b"a")
    with pytest.raises(NotEnoughReplicas, match="2 in-sync replicas hold the batch and min"):
        topic.commit(staged)
    assert (topic.partition.log_end, topic.partition.isr) == (0, ALL)
    topic.disk("2").broken = None
    topic.refresh()
    topic.commit(topic.stage(b"a"))
    assert topic.partition.high_watermark == 1


def test_a_refused_batch_is_copied_to_a_node_that_failed_while_it_was_written_and_is_well_again():
    topic = ThreeNodes(min_insync_replicas=3)
    destination = destination_of(topic.handle, None, 1000)
    topic.disk("2").broken_writes = StoreUnavailable
    staged = topic.write(destination, b"a")
    topic.disk("2").broken_writes = None
    with pytest.raises(NotEnoughReplicas):
        topic.commit(staged, patience=RetryPolicy(retries=0))
    topic.commit(staged, patience=RetryPolicy(retries=1, retry_backoff_ms=1))
    assert holders(topic) == [["0", "1", "2"]]
    assert (topic.partition.high_watermark, topic.partition.isr) == (1, ALL)


def test_missing_rights_fail_the_batch_and_shrink_no_isr():
    topic = ThreeNodes()
    topic.disk("2").broken_writes = StoreRefused
    with pytest.raises(StoreRefused, match="/disk/2 was taken away"):
        topic.stage(b"a")
    assert topic.refresh().partitions[0].isr == ALL


@pytest.mark.on_disk("a bucket is not mounted, so its marker is not read again")
def test_missing_rights_to_read_the_marker_again_fail_the_batch(monkeypatch):
    topic = ThreeNodes()
    disk = topic.disk("2")

    def refused(key, *_):
        raise StoreRefused(disk.url, key, "the test made this up")

    monkeypatch.setattr(disk, "read", refused)
    with pytest.raises(StoreRefused, match="the test made this up"):
        topic.stage(b"a")


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


def test_a_node_with_a_full_disk_leaves_the_isr():
    topic = ThreeNodes()
    topic.disk("2").broken_writes = StoreUnwritable
    topic.commit(topic.stage(b"a"))
    assert topic.partition.isr == ("0", "1")


def test_a_node_that_joined_after_the_file_was_named_gets_it():
    topic = ThreeNodes()
    topic.disk("2").broken = StoreUnavailable
    topic.refresh()
    topic.commit(topic.stage(b"a"))
    assert topic.partition.isr == ("0", "1")
    staged = topic.stage(b"b")
    topic.disk("2").broken = None
    topic.refresh()
    catch_up.catch_up(topic.handle, "2")
    assert topic.partition.isr == ALL
    topic.commit(staged)
    assert holders(topic) == [["0", "1", "2"], ["0", "1", "2"]]
    assert topic.partition.isr == ALL


def test_a_node_that_was_wiped_after_a_file_was_written_and_is_in_sync_again_gets_the_file():
    topic = ThreeNodes()
    topic.commit(topic.stage(b"a"))
    staged = topic.stage(b"b")
    wipe(topic.disk("2"))
    node_admin.renew(topic.log, "2")
    catch_up.catch_up(topic.handle, "2")
    assert topic.partition.isr == ALL
    topic.commit(staged)
    assert topic.partition.isr == ALL
    assert holders(topic) == [["0", "1", "2"]] * 2


def test_an_existing_damaged_copy_makes_no_holder():
    topic = away_for_a_batch()
    staged = topic.stage(b"b")
    catch_up.catch_up(topic.handle, "2")
    assert topic.partition.isr == ALL
    topic.disk("2").put(topic.handle.append_file(staged[0].file.name), b"?")
    topic.commit(staged)
    assert holders(topic)[-1] == ["0", "1"]
    assert topic.partition.isr == ("0", "1")


@pytest.mark.on_disk("replaces what the writer of a store in memory calls")
def test_a_copy_made_while_a_disk_was_not_mounted_is_not_counted(monkeypatch):
    topic = away_for_a_batch()
    staged = topic.stage(b"b")
    catch_up.catch_up(topic.handle, "2")
    assert topic.partition.isr == ALL
    disk = topic.disk("2")
    create = disk.create
    monkeypatch.setattr(disk, "create", lambda key, data: "/append/" in key or create(key, data))
    topic.commit(staged)
    assert holders(topic)[-1] == ["0", "1"]
    assert topic.partition.isr == ("0", "1")


def test_a_lagging_member_of_the_isr_catches_up_and_stays():
    topic = ThreeNodes()
    topic.disk("2").broken_writes = StoreUnwritable
    topic.commit(topic.stage(b"a", acks="1"), "1")
    assert topic.partition.log_end_offsets == {"0": 1, "1": 1, "2": 0}
    topic.disk("2").broken_writes = None
    before = topic.handle.journal.number
    topic.commit(topic.stage(b"b"), patience=RetryPolicy(retries=0))
    assert (topic.partition.isr, topic.partition.high_watermark) == (ALL, 2)
    assert holders(topic) == [["0", "1", "2"], ["0", "1", "2"]]
    assert topic.handle.journal.number == before + 2  # what it got, and the batch


@pytest.mark.parametrize("partitions", [1, 7, 100])
@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
def test_a_batch_is_one_entry_however_many_nodes_and_partitions_there_are(nodes, partitions):
    stores = Stores()
    log = stores.with_nodes(nodes, real_environment())
    names = [str(node) for node in range(nodes)]
    replicas = [names[n % nodes :] + names[: n % nodes] for n in range(partitions)]
    handle = log.create_topic("t", partitions, TopicConfig(min_insync_replicas=min(nodes, 2)), replicas=replicas)

    def entries():
        return sum("/journal/entries/" in key for store in stores.at.values() for key in store.list(""))

    def stage():
        destination = destination_of(handle, None, 1000)
        staging = Staging(log.store_at, lambda _: destination, "t", environment=log.environment, durable=True, sticky=0)
        staging.add(Rows(record([b"row"] * partitions), None, pa.array(range(partitions), pa.int32())))
        return staging.finish()

    for batch in range(3):
        tasks = [stage() for _ in range(3)]
        before = entries()
        commit_staged(log, tasks, ProducerClaim("p", "q", "r", batch), "all", RetryPolicy(retries=0), None)
        assert entries() == before + 1
    assert [each.high_watermark for each in handle.journal.state.partitions] == [9] * partitions


def away_for_a_batch():
    """Return a topic of which node 2 missed a batch and is reachable again, without a follower."""
    topic = ThreeNodes(min_insync_replicas=2)
    topic.disk("2").broken = StoreUnavailable
    topic.refresh()
    topic.commit(topic.stage(b"a"))
    assert topic.partition.isr == ("0", "1")
    topic.disk("2").broken = None
    topic.refresh()
    return topic


@pytest.mark.no_faults("says after which write a node is back")
def test_a_node_that_is_reachable_again_is_brought_back_by_the_next_writes(monkeypatch):
    topic = away_for_a_batch()
    topic.commit(topic.stage(b"b"))
    assert topic.partition.isr == ("0", "1")  # for a while it is left to a follower
    monkeypatch.setattr(isr_recovery, "INLINE_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(isr_recovery, "INLINE_SECONDS", 60.0)  # a busy machine copies little in its time
    topic.commit(topic.stage(b"c"))
    assert topic.handle.refresh().partitions[0].isr == ALL
    topic.commit(topic.stage(b"d"))
    assert holders(topic) == [["0", "1", "2"]] * 4


def test_a_node_that_lacks_something_large_is_left_to_a_follower(monkeypatch):
    topic = away_for_a_batch()
    monkeypatch.setattr(isr_recovery, "INLINE_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(isr_recovery, "INLINE_BYTES_MAX", 10)
    topic.commit(topic.stage(b"b"))
    assert topic.handle.refresh().partitions[0].isr == ("0", "1")


def test_a_node_that_cannot_be_brought_back_fails_no_batch(monkeypatch, caplog):
    topic = away_for_a_batch()
    topic.disk("2").broken_writes = StoreRefused
    monkeypatch.setattr(isr_recovery, "INLINE_EVERY_SECONDS", 0.0)
    topic.commit(topic.stage(b"b"), patience=RetryPolicy(retries=0))
    assert topic.partition.high_watermark == 2
    assert "node '2' stays out of sync in topic 't'" in caplog.text


@pytest.mark.parametrize("acks", ["all", "1"])
def test_a_refused_batch_brings_reachable_nodes_back(acks):
    topic = away_for_a_batch()
    topic.disk("1").broken = StoreUnavailable
    topic.refresh()
    topic.commit(topic.stage(b"b", acks=acks), acks)
    topic.commit(topic.stage(b"c"), patience=RetryPolicy(retries=1, retry_backoff_ms=1))
    assert (topic.partition.isr, topic.partition.high_watermark) == (("0", "2"), 3)


@pytest.mark.on_disk("replaces what the writer of a store in memory calls")
def test_a_file_written_while_a_disk_was_not_mounted_is_not_counted(monkeypatch):
    topic = ThreeNodes()
    disk = topic.disk("2")
    create = disk.create
    monkeypatch.setattr(disk, "create", lambda key, data: "/append/" in key or create(key, data))
    [staged] = topic.stage(b"a")
    assert [holder.node for holder in staged.file.holders] == ["0", "1"]
    assert staged.failed == ("2",)


def test_a_disk_from_a_backup_is_not_elected():
    topic = ThreeNodes(replicas=[("1", "2", "0"), ("1", "2", "0")])
    topic.commit(topic.stage(b"a"))
    key = topic.handle.append_file(topic.handle.journal.state.file(0).name)
    topic.disk("2").delete(key)
    topic.disk("1").broken = StoreUnavailable
    topic.refresh()
    detector = failure_detector_of(topic.handle, session_timeout_ms=0)
    detector.look(topic.handle)
    detector.look(topic.handle)
    assert topic.partition.leader == "0"


@pytest.mark.parametrize("restored", ["1", "2"])
def test_a_disk_from_a_backup_leaves_the_isr_with_the_next_batch(restored):
    topic = ThreeNodes(replicas=[("1", "2", "0"), ("1", "2", "0")])
    topic.commit(topic.stage(b"a"))
    topic.commit(topic.stage(b"b"))
    topic.disk(restored).delete(topic.handle.append_file(topic.handle.journal.state.file(1).name))
    topic.commit(topic.stage(b"c"))
    left = tuple(node for node in ("1", "2", "0") if node != restored)
    assert topic.partition.isr == left
    assert (topic.partition.leader, topic.partition.high_watermark) == (left[0], 3)
    assert holders(topic)[2] == sorted(left)
    catch_up.catch_up(topic.handle, restored)
    assert topic.partition.isr == ("1", "2", "0")
    files = [topic.handle.append_file(file.name) for file in topic.handle.journal.state.files]
    assert [topic.disk(restored).read(key) for key in files] == [topic.disk("0").read(key) for key in files]


def test_a_fenced_node_gets_nothing():
    topic = ThreeNodes()
    node_admin.set_fenced(topic.log, "2", fenced=True)
    topic.commit(topic.stage(b"a"))
    assert holders(topic) == [["0", "1"]]
    assert topic.partition.isr == ("0", "1")


def test_partitions_on_the_same_nodes_share_a_file_even_with_different_leaders():
    topic = ThreeNodes(replicas=[("0", "1", "2"), ("2", "0", "1")])
    destination = destination_of(topic.handle, None, 1000)
    assert len(set(destination.targets)) == 1


def test_partitions_on_different_nodes_have_files_of_their_own():
    topic = ThreeNodes(replicas=[("0", "1"), ("1", "2")])
    staged = [*topic.stage(b"a", partition=0), *topic.stage(b"b", partition=1)]
    assert [[holder.node for holder in file.file.holders] for file in staged] == [["0", "1"], ["1", "2"]]
    topic.commit(staged)
    assert [each.high_watermark for each in topic.handle.journal.state.partitions] == [1, 1]


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


def test_below_a_majority_quorum_mode_refuses():
    topic = ThreeNodes(replication_mode="quorum")
    for away in ("1", "2"):
        topic.disk(away).broken = StoreUnavailable
    topic.refresh()
    with pytest.raises(NotEnoughReplicas, match="1 in-sync replicas hold the batch and a majority is 2"):
        topic.commit(topic.stage(b"row"))


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


def test_a_node_that_was_fenced_since_it_got_a_file_is_not_part_of_the_majority():
    topic = ThreeNodes(replication_mode="quorum")
    destination = destination_of(topic.handle, None, 1000)
    topic.disk("2").broken_writes = StoreUnavailable
    staged = topic.write(destination, b"row")
    topic.disk("2").broken_writes = None
    node_admin.set_fenced(topic.log, "1", fenced=True)
    topic.commit(staged, patience=RetryPolicy(retries=1, retry_backoff_ms=1))
    assert topic.partition.high_watermark == 1
