"""Catching up: a replica gets what it lacks, and the journal learns of it."""

import pytest

from pyspark_log_coordinator.cluster.machine import FenceNode
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.sync import catch_up as copying
from pyspark_log_coordinator.sync.catch_up import catch_up
from pyspark_log_coordinator.sync.replica_file import missing
from pyspark_log_coordinator.topic.machine import AlterReplicaNode, Suspect
from pyspark_log_storage import layout
from pyspark_log_storage.errors import NodeMissing, StoreUnavailable
from tests.support.coordinator.breakable_store import BreakableStore
from tests.support.coordinator.replicated_topic import ReplicatedTopic
from tests.support.coordinator.several_nodes import Stores
from tests.support.coordinator.watched_topic import Watched, copy, reads


@pytest.fixture
def topic():
    return ReplicatedTopic(Stores(Watched))


# Catching up


def test_a_node_gets_the_files_that_it_lacks_and_is_their_holder(topic):
    names = [topic.append() for _ in range(3)]
    assert [piece.number for piece in missing(topic.handle, "1")] == [0, 1, 2]
    assert topic.partition().log_end_offsets == {"0": 3, "1": 0, "2": 0}
    copied = copy(topic)
    assert (copied.objects, copied.failures) == (3, ())
    assert copied.bytes == sum(map(len, topic.content("0").values()))
    assert topic.content("1") == topic.content("0")
    assert topic.partition().log_end_offsets == {"0": 3, "1": 3, "2": 0}
    assert missing(topic.handle, "1") == []
    assert reads(topic, "0") == sorted(names)


def test_the_high_watermark_follows_when_all_have_caught_up(topic):
    topic.append()
    copy(topic, "1")
    assert topic.partition().high_watermark == 0
    copy(topic, "2")
    assert topic.partition().high_watermark == 1


def test_a_node_that_fell_out_of_the_isr_joins_it_again(topic):
    topic.append(on=("0", "2"), acks="all")
    assert topic.partition().isr == ("0", "2")
    copy(topic)
    assert topic.partition().isr == ("0", "1", "2")


def test_a_disk_from_a_backup_gets_back_its_files_before_it_is_in_sync_again(topic):
    restored = topic.append(on=("0", "1", "2"), acks="all")
    key = topic.handle.append_file(restored)
    topic.append(on=("0", "2"), acks="all")
    topic.log.node_store("1").delete(key)
    assert copy(topic).objects == 2
    assert topic.content("1") == topic.content("0")
    assert topic.partition().isr == ("0", "1", "2")


def test_a_disk_from_a_backup_stays_out_of_sync_while_no_node_has_its_files(topic):
    key = topic.handle.append_file(topic.append(on=("0", "1", "2"), acks="all"))
    topic.append(on=("0", "2"), acks="all")
    for name in ("0", "1", "2"):
        topic.log.node_store(name).delete(key)
    (failure,) = copy(topic).failures
    assert key in str(failure)
    assert topic.partition().isr == ("0", "2")


@pytest.mark.parametrize("min_insync", ["1", "2"])
def test_a_lost_file_whose_only_other_holder_is_away_keeps_no_other_partition_behind(min_insync):
    """With min.insync.replicas=2 the node has all committed rows of the lost file's partition, but for that file."""
    topic = ReplicatedTopic(Stores(BreakableStore), (("1", "2"), ("0", "2")), min_insync_replicas=min_insync)
    lost = topic.append({0: [b"a"]}, on=("1", "2"), acks="all")
    for fenced in (True, False):
        node_admin.set_fenced(topic.log, "2", fenced=fenced)
    later = topic.append({0: [b"b"]}, on=("1",))
    other = topic.append({1: [b"c"]}, on=("0",))
    topic.log.node_store("2").delete(topic.handle.append_file(lost))
    topic.stores.at["/disk/1"].broken = StoreUnavailable
    topic.handle.submit(Suspect("1", topic.handle.journal.state.incarnations["1"]))
    assert [type(each) for each in copy(topic, "2").failures] == [StoreUnavailable] * 2
    assert topic.keys("2") == [f"append/{other}"]
    assert [topic.partition(number).isr for number in (0, 1)] == [("1",), ("0", "2")]
    topic.stores.at["/disk/1"].broken = None
    assert copy(topic, "2").objects == 2
    assert topic.keys("2") == sorted(f"append/{name}" for name in (lost, later, other))
    assert [topic.partition(number).isr for number in (0, 1)] == [("1", "2"), ("0", "2")]


def test_a_lost_file_that_keeps_its_partition_in_sync_keeps_no_other_one_behind():
    topic = ReplicatedTopic(Stores(BreakableStore), (("1", "2"), ("0", "2"), ("1", "0")))
    lost = topic.append({0: [b"a"], 2: [b"a"]}, on=("1", "2"), acks="all")
    other = topic.append({1: [b"b"]}, on=("0",), acks="all")
    topic.log.node_store("2").delete(topic.handle.append_file(lost))
    topic.stores.at["/disk/1"].broken = StoreUnavailable
    topic.handle.submit(Suspect("1", topic.handle.journal.state.incarnations["1"]))
    told = []
    copied = copy(topic, "2", failed=told.append)
    assert (copied.objects, list(copied.failures), len(told)) == (1, told, 1)
    assert topic.keys("2") == [f"append/{other}"]
    assert [topic.partition(number).isr for number in (0, 1)] == [("1", "2"), ("0", "2")]
    assert [each.node for each in topic.handle.journal.state.file(0).holders] == ["1", "2"]


def test_a_node_that_has_lost_the_last_copy_of_a_file_stays_out_of_sync():
    topic = ReplicatedTopic(replicas=(("1", "2"),))
    lost = topic.append(on=("1", "2"), acks="all")
    for fenced in (True, False):
        node_admin.set_fenced(topic.log, "2", fenced=fenced)
    topic.handle.submit(AlterReplicaNode("1", "wiped"))
    topic.log.node_store("2").delete(topic.handle.append_file(lost))
    assert len(copy(topic, "2").failures) == 1
    assert "2" not in topic.partition().isr
    assert [each.node for each in topic.handle.journal.state.file(0).holders] == ["2"]


def test_a_disk_from_a_backup_stays_out_of_sync_when_the_deadline_leaves_files_that_it_has_lost(topic):
    lost = [topic.append(on=("0", "1", "2"), acks="all") for _ in range(2)]
    for fenced in (True, False):
        node_admin.set_fenced(topic.log, "1", fenced=fenced)
    for name in lost:
        topic.log.node_store("1").delete(topic.handle.append_file(name))
    clock = topic.log.environment
    assert copy(topic, deadline=clock.monotonic() + 1, moved=lambda _: clock.sleep(1)).objects == 1
    assert topic.partition().isr == ("0", "2")
    assert copy(topic).objects == 1
    assert topic.partition().isr == ("0", "1", "2")


def test_a_node_that_lacks_nothing_costs_no_write(topic):
    topic.append(on=("0", "1", "2"), acks="all")
    number = topic.handle.journal.number
    assert copy(topic).objects == 0
    assert topic.handle.journal.number == number
    assert reads(topic, "0") == []


def test_a_node_gets_only_the_partitions_of_which_it_is_a_replica():
    topic = ReplicatedTopic(replicas=(("0", "1"), ("0", "2")))
    first = topic.append({0: [b"a"]})
    second = topic.append({1: [b"b"]})
    both = topic.append({0: [b"c"], 1: [b"d"]})
    copy(topic, "1")
    copy(topic, "2")
    assert topic.keys("1") == sorted([f"append/{first}", f"append/{both}"])
    assert topic.keys("2") == sorted([f"append/{second}", f"append/{both}"])
    assert [topic.partition(number).log_end_offsets for number in (0, 1)] == [{"0": 2, "1": 2}, {"0": 2, "2": 2}]


def test_a_segment_is_copied_with_its_index_and_then_replaces_the_chunks(topic):
    for _ in range(3):
        topic.append(on=("0", "1", "2"), acks="all")
    name = topic.roll(2)
    assert topic.partition().segments == ()
    for each in ("1", "2"):
        assert [piece.key.rsplit("/", 1)[1] for piece in missing(topic.handle, each)] == [name]
        copy(topic, each)
    assert [each.name for each in topic.partition().segments] == [name]
    assert topic.content("0") == topic.content("1") == topic.content("2")
    assert f"0/{name}.index" in topic.keys("2")
    assert topic.partition().log_end_offsets == {"0": 3, "1": 3, "2": 3}


def test_a_node_gets_only_the_segment_of_rolled_chunks(topic):
    for _ in range(3):
        topic.append(on=("0", "2"), acks="all")
    name = topic.roll(2)
    copy(topic, "2")
    assert [each.name for each in topic.partition().segments] == [name]
    copied = copy(topic, "1")
    assert copied.objects == 2
    assert topic.keys("1") == [f"0/{name}.index", f"0/{name}.log", f"append/{topic.handle.journal.state.file(2).name}"]
    assert topic.partition().log_end_offsets["1"] == 3
    assert topic.partition().isr == ("0", "1", "2")


def test_a_wiped_node_gets_every_file_again(topic):
    for _ in range(2):
        topic.append(on=("0", "1", "2"), acks="all")
    topic.stores.at["/disk/1"] = Watched("/disk/1")
    log, handle = topic.open()
    with pytest.raises(NodeMissing):
        catch_up(handle, "1")
    node_admin.renew(log, "1")
    log.open(create=False)
    assert handle.refresh().partitions[0].isr == ("0", "2")
    assert handle.journal.state.partitions[0].log_end_offsets["1"] == 0
    assert catch_up(handle, "1").objects == 2
    assert handle.refresh().partitions[0].isr == ("0", "1", "2")
    assert {each.url: len(list(each.list("topics/"))) for each in topic.stores.at.values()}["/disk/1"] == 2


def test_a_catch_up_updates_a_topic_that_missed_a_renewal(topic, monkeypatch):
    topic.append(on=("0", "1", "2"), acks="all")
    topic.stores.at["/disk/1"] = Watched("/disk/1")
    log, handle = topic.open()
    with monkeypatch.context() as patch:
        patch.setattr(node_admin, "update_topics", bool_of_all)
        node_admin.renew(log, "1")
    assert handle.refresh().partitions[0].isr == ("0", "1", "2")
    assert catch_up(handle, "1").objects == 1
    assert handle.journal.state.incarnations["1"] == log.cluster.state.nodes["1"].incarnation


def test_a_process_that_has_not_read_of_a_fence_does_not_end_it(topic):
    _, handle = topic.open()
    node_admin.set_fenced(topic.log, "1", fenced=True)
    handle.refresh()
    catch_up(handle, "1")
    assert topic.handle.refresh().fenced == ("1",)
    assert topic.partition().isr == ("0", "2")


def test_a_process_that_has_not_read_of_a_new_disk_does_not_bring_back_the_former_one(topic):
    topic.append(on=("0", "1", "2"), acks="all")
    log, handle = topic.open()
    renewed, _ = node_admin.renew(topic.log, "1", "/disk/new")
    copy(topic)
    topic.append(on=("1",), acks="all")  # now only the new disk has every row
    handle.refresh()
    catch_up(handle, "1")
    assert log.node("1") == renewed
    assert topic.handle.refresh().incarnations["1"] == renewed.incarnation
    assert (topic.partition().leader, topic.partition().isr) == ("1", ("1",))
    assert topic.partition().log_end_offsets["1"] == 2


def test_a_change_of_a_node_while_a_topic_is_told_of_an_earlier_one_wins(topic, monkeypatch):
    topic.log.cluster.submit(FenceNode("1"))
    _, handle = topic.open()
    submit = handle.submit

    def late(command):
        monkeypatch.setattr(handle, "submit", submit)
        node_admin.renew(topic.log, "1", "/disk/new")
        node_admin.set_fenced(topic.log, "1", fenced=False)
        return submit(command)

    monkeypatch.setattr(handle, "submit", late)
    node_admin.update_topic(handle, "1")
    assert topic.log.node("1").url == "/disk/new"
    state = topic.handle.refresh()
    assert (state.incarnations["1"], state.fenced) == (topic.log.node("1").incarnation, ())


def bool_of_all(*_):
    return True


def test_a_fenced_node_gets_its_copies_and_is_in_no_isr_until_it_is_unfenced(topic):
    node_admin.set_fenced(topic.log, "1", fenced=True)
    topic.append(on=("0", "2"), acks="all")
    copy(topic)
    assert topic.partition().isr == ("0", "2")
    assert topic.partition().log_end_offsets["1"] == 1
    node_admin.set_fenced(topic.log, "1", fenced=False)
    assert copy(topic).objects == 0
    assert topic.partition().isr == ("0", "1", "2")


def test_a_suspected_node_that_lacks_nothing_is_no_longer_suspected(topic):
    topic.handle.submit(Suspect("1", topic.handle.journal.state.incarnations["1"]))
    assert "1" in topic.handle.refresh().suspects
    copy(topic)
    assert topic.handle.refresh().suspects == {}


# Telling the journal


def test_many_files_are_submitted_in_one_entry(topic):
    for _ in range(5):
        topic.append()
    number = topic.handle.journal.number
    copy(topic)
    assert topic.handle.journal.number == number + 1


@pytest.mark.parametrize("bound", ["SUBMIT_OBJECTS", "SUBMIT_BYTES"])
def test_a_large_catch_up_submits_several_entries(topic, monkeypatch, bound):
    for _ in range(5):
        topic.append()
    (size,) = {piece.bytes for piece in missing(topic.handle, "1")}
    monkeypatch.setattr(copying, bound, 2 if bound == "SUBMIT_OBJECTS" else 2 * size)
    number = topic.handle.journal.number
    copy(topic)
    assert topic.handle.journal.number == number + 3


def test_a_slow_catch_up_submits_in_time(topic):
    for _ in range(5):
        topic.append()
    number = topic.handle.journal.number
    copy(topic, moved=lambda _: topic.log.environment.sleep(copying.SUBMIT_SECONDS / 2))
    assert topic.handle.journal.number == number + 3


def test_the_marker_is_read_before_anything_is_written(topic):
    topic.append()
    topic.log.node_store("1").delete(layout.MARKER)
    with pytest.raises(NodeMissing):
        copy(topic)
    assert topic.keys("1") == []


def test_copies_on_a_disk_that_failed_are_not_submitted(topic):
    topic.append()
    marker = topic.log.node_store("1").read(layout.MARKER)
    with pytest.raises(NodeMissing):
        copy(topic, moved=lambda _: topic.log.node_store("1").delete(layout.MARKER))
    assert topic.partition().log_end_offsets["1"] == 0
    topic.log.node_store("1").create(layout.MARKER, marker)
    assert copy(topic).objects == 1
