"""Maintenance on several nodes: a segment is written to the whole ISR at once, and a failing node is left out."""

import random

import msgspec
import pytest

from pyspark_log_coordinator.commit import inline_maintenance
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.maintenance import checkpoint_files, cluster_cleanup, roll_job, roll_run, topic_cleanup
from pyspark_log_coordinator.maintenance.roll_job import roll_task_of
from pyspark_log_coordinator.maintenance.roll_run import run_roll
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.sync import catch_up, follower
from pyspark_log_coordinator.topic.machine import MaintainSegments, RaiseOrphanFloor
from pyspark_log_storage import checkpoints, segment
from pyspark_log_storage.errors import CorruptObject, NodeMissing, StoreRefused, StoreUnavailable, StoreUnwritable
from pyspark_log_storage.layout import born_name, topic_folder
from tests.coordinator.breakable_store import BreakableStore
from tests.coordinator.replicated_topic import ALL, ReplicatedTopic
from tests.coordinator.several_nodes import Stores
from tests.coordinator.stored_topic import StoredTopic


@pytest.fixture
def topic():
    return breakable(retention_ms="-1", file_delete_delay_ms="0", orphan_retention_ms="0")


def breakable(**settings):
    return ReplicatedTopic(Stores(BreakableStore), **settings)


def disk(topic, name):
    return topic.log.node_store(name)


def fill(topic, batches, on=ALL):
    """Append batches of rows that are copied to a segment as they are."""
    dice = random.Random(batches)
    for _ in range(batches):
        topic.append({0: [dice.randbytes(50_000)]}, on=on, acks="all")


def job(topic, chunks=None):
    one = topic.partition()
    taken = tuple(one.chunks[: len(one.chunks) if chunks is None else chunks])
    return roll_plan.RollJob(0, one.leader_epoch, 1, (), taken, one.epoch_starts)


def roll(topic, chunks=None):
    """Roll the oldest chunks as a task does, without opening the log."""
    work = roll_task_of(topic.handle, job(topic, chunks))
    task = topic.stores.task()
    swap = run_roll(task.store_at, work, topic.log.environment.nonce())
    topic.handle.submit(MaintainSegments((swap,)))
    return swap.segment


def test_a_segment_of_which_no_node_has_both_files_is_an_error_and_can_be_made_again(topic):
    fill(topic, 3)
    for name in ALL:
        half_broken(disk(topic, name), ".log" if name == "1" else ".index")
    with pytest.raises(StoreUnavailable, match="no node has all of"):
        roll(topic)
    for name in ALL:
        del disk(topic, name).open_write
    assert holders(roll(topic)) == list(ALL)


def half_broken(store, ending):
    """Let a store fail at the end of writing a file of this kind."""

    def begin(key, *, durable=True):
        writer = BreakableStore.open_write(store, key, durable=durable)
        if key.endswith(ending):
            writer.close = lambda: store_is_away(key)
        return writer

    store.open_write = begin


def store_is_away(key):
    raise StoreUnavailable("/disk", key, "it is away")


def holders(ref):
    return [each.node for each in ref.holders]


def flip(topic, name, key, position=-1):
    data = bytearray(disk(topic, name).read(key))
    data[position] ^= 1
    disk(topic, name).put(key, bytes(data))


def file_key(topic, number=0):
    return topic.handle.append_file(topic.handle.refresh().files[number].name)


def rolled(topic, *names):
    """Return the chunks of the only segment, after checking that they are the same on these nodes."""
    [ref] = topic.partition().segments
    key = topic.handle.segment(0, ref.name)
    first, *others = [(disk(topic, name).read(f"{key}.log"), segment.scan(disk(topic, name), key)) for name in names]
    assert all(other == first for other in others)
    assert all(segment.index_is_right(disk(topic, name), key, first[1]) for name in names)
    return [(each.base_offset, each.rows) for each in first[1]]


# Rolling


def test_a_segment_is_on_every_member_of_the_isr_and_in_its_place_by_one_entry(topic):
    fill(topic, 3)
    before = topic.handle.journal.number
    assert holders(roll(topic)) == ["0", "1", "2"]
    assert topic.handle.journal.number == before + 1
    assert rolled(topic, "0", "1", "2") == [(0, 1), (1, 1), (2, 1)]
    assert topic.partition().log_end_offsets == {"0": 3, "1": 3, "2": 3}


def test_one_node_is_written_to_directly(monkeypatch):
    monkeypatch.setattr(roll_run, "FanOutWriter", None)
    topic = StoredTopic()
    topic.fill(3)
    topic.roll()
    topic.check()


def test_a_node_that_is_no_replica_of_the_partition_gets_nothing():
    topic = ReplicatedTopic(replicas=(("1", "2"),))
    topic.append(on=("1", "2"), acks="all")
    assert holders(roll(topic)) == ["1", "2"]
    assert topic.keys("0") == []


def test_a_follower_that_is_out_of_the_isr_copies_the_segment_later(topic):
    fill(topic, 2, on=("0", "2"))
    assert holders(roll(topic)) == ["0", "2"]
    assert topic.keys("1") == []
    catch_up.catch_up(topic.handle, "1")
    assert rolled(topic, "0", "1", "2") == [(0, 1), (1, 1)]


@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_rows_that_the_leader_cannot_give_come_from_another_node(topic, how):
    fill(topic, 4)
    if how == "damaged":
        flip(topic, "0", file_key(topic, 1))
        flip(topic, "1", file_key(topic, 2))
    else:
        disk(topic, "0").delete(file_key(topic, 1))
    roll(topic)
    assert rolled(topic, "0", "1", "2") == [(offset, 1) for offset in range(4)]


def test_a_store_that_does_not_answer_is_asked_once_for_all_chunks(topic, monkeypatch):
    fill(topic, 4)
    work = msgspec.structs.replace(roll_task_of(topic.handle, job(topic)), targets=("1", "2"))
    asked = []

    def read(key, *_):
        asked.append(key)
        raise StoreUnavailable("", key, "no answer")

    monkeypatch.setattr(disk(topic, "0"), "read", read)
    swap = run_roll(topic.log.store_at, work, topic.log.environment.nonce())
    assert (holders(swap.segment), swap.segment.end_offset, len(asked)) == (["1", "2"], 4, 1)


def test_a_segment_that_is_cut_on_one_node_is_merged_from_another(topic):
    for _ in range(2):
        fill(topic, 3)
        roll(topic)
    first, second = topic.partition().segments
    key = topic.handle.segment(0, first.name)
    last = segment.scan(disk(topic, "0"), key)[-1].position
    disk(topic, "0").put(f"{key}.log", disk(topic, "0").read(f"{key}.log")[:last])
    flip(topic, "0", f"{topic.handle.segment(0, second.name)}.log", -5)
    one = topic.partition()
    merge = roll_plan.RollJob(0, one.leader_epoch, 2, one.segments, (), one.epoch_starts)
    swap = run_roll(topic.log.store_at, roll_task_of(topic.handle, merge), topic.log.environment.nonce())
    topic.handle.submit(MaintainSegments((swap,)))
    assert [offset for offset, _ in rolled(topic, "0", "1", "2")][-1] < 6
    assert sum(rows for _, rows in rolled(topic, "0", "1", "2")) == 6


def test_rows_that_no_node_can_give_are_an_error_that_names_the_offset(topic):
    fill(topic, 3)
    for name in ALL:
        flip(topic, name, file_key(topic, 1))
    with pytest.raises(CorruptObject, match="topic 't', partition 0, offset 1"):
        roll(topic)
    assert not any(key.startswith("0/") for name in ALL for key in topic.keys(name))


def test_where_no_holder_is_there_that_is_said(topic):
    fill(topic, 1)
    work = roll_task_of(topic.handle, job(topic))
    bare = {number: roll_job.RollSource(each.name, ()) for number, each in work.files.items()}
    with pytest.raises(StoreUnavailable, match=r"none of the nodes that hold .* is reachable; bring one back"):
        run_roll(topic.log.store_at, msgspec.structs.replace(work, files=bare), "ab" * 16)


@pytest.mark.parametrize("error", [StoreUnavailable, StoreUnwritable])
def test_a_node_that_fails_is_left_out_and_the_segment_waits_until_it_has_it(topic, error):
    fill(topic, 2)
    disk(topic, "1").broken_writes = error
    made = roll(topic)
    assert holders(made) == ["0", "2"]
    assert (topic.partition().segments, [each.name for each in topic.partition().staged]) == ((), [made.name])
    disk(topic, "1").broken_writes = None
    catch_up.catch_up(topic.handle, "1")
    assert rolled(topic, "0", "1", "2") == [(0, 1), (1, 1)]


def test_a_node_that_only_this_process_may_not_use_fails_the_job(topic):
    fill(topic, 2)
    disk(topic, "1").broken_writes = StoreRefused
    with pytest.raises(StoreRefused):
        roll(topic)


def test_a_node_whose_index_cannot_be_written_is_no_holder(topic, monkeypatch):
    fill(topic, 2)
    real = disk(topic, "2").open_write

    def open_write(key, *, durable=True, replace=False):
        if key.endswith(".index"):
            raise StoreUnavailable("", key, "no answer")
        return real(key, durable=durable, replace=replace)

    monkeypatch.setattr(disk(topic, "2"), "open_write", open_write)
    assert holders(roll(topic)) == ["0", "1"]
    monkeypatch.undo()
    catch_up.catch_up(topic.handle, "2")
    assert rolled(topic, "0", "1", "2") == [(0, 1), (1, 1)]


def test_a_node_that_was_replaced_while_it_was_written_to_is_no_holder(topic):
    fill(topic, 2)
    work = roll_task_of(topic.handle, job(topic))
    disk(topic, "1").delete("node")
    swap = run_roll(topic.log.store_at, work, topic.log.environment.nonce())
    assert holders(swap.segment) == ["0", "2"]
    for name in ("0", "2"):
        disk(topic, name).delete("node")
    with pytest.raises(NodeMissing):
        run_roll(topic.log.store_at, work, topic.log.environment.nonce())


def test_a_node_that_is_missing_is_neither_read_from_nor_written_to(topic):
    fill(topic, 2)
    disk(topic, "1").broken = StoreUnavailable
    topic.log.probe_nodes()
    work = roll_task_of(topic.handle, job(topic))
    assert (work.targets, {each.nodes for each in work.files.values()}) == (("0", "2"), {("0", "2")})


def test_maintenance_in_passing_does_the_same(topic):
    fill(topic, roll_plan.ROLL_CHUNKS)
    [work] = inline_maintenance.plan_inline(topic.handle)
    [swap] = inline_maintenance.roll_inline(topic.stores.task().store_at, work, "ab" * 16)
    assert holders(swap.segment) == ["0", "1", "2"]


# Housekeeping


def test_what_was_released_goes_from_every_node(topic):
    fill(topic, 3)
    made = roll(topic)
    assert topic_cleanup.clean_up_topic(topic.handle).deleted > 0
    for name in ALL:
        assert topic.keys(name) == [f"0/{made.name}.index", f"0/{made.name}.log"]
    assert len(topic.handle.journal.state.pending_deletions) == 0


def orphan(topic, name):
    """Leave a file on a node that no entry will ever name; return its key."""
    key = topic.handle.append_file(born_name(0, topic.log.environment.nonce()))
    disk(topic, name).create(key, b"nobody names it")
    return key


def raise_floor(topic):
    for _ in range(2):
        topic.handle.submit(RaiseOrphanFloor(topic.handle.journal.number))


def test_orphans_are_found_on_every_node(topic):
    fill(topic, 1)
    lost = {name: [orphan(topic, name)] for name in ALL}
    raise_floor(topic)
    assert topic_cleanup.all_orphans(topic.handle) == lost
    topic_cleanup.clean_up_topic(topic.handle)
    assert topic_cleanup.all_orphans(topic.handle) == {name: [] for name in ALL}
    assert all(len(topic.keys(name)) == 1 for name in ALL)


def test_every_node_gets_its_own_checkpoints(topic):
    fill(topic, 2, on=("0", "2"))
    roll(topic)
    checkpoint_files.write_on_nodes(topic.handle)
    key = f"{topic_folder('t', topic.handle.topic_id)}{checkpoints.RECOVERY_POINT}"
    points = {name: checkpoints.decode_offsets(disk(topic, name).read(key), key)["t", 0] for name in ALL}
    assert points == {"0": 2, "1": 0, "2": 2}


def test_a_missing_node_does_not_keep_the_others_from_being_cleaned_and_is_cleaned_later(topic):
    fill(topic, 3)
    made = roll(topic)
    kept = [key for key in topic.keys("1") if key.startswith("append/")]
    disk(topic, "1").broken = StoreUnavailable
    topic.log.probe_nodes()
    topic_cleanup.clean_up_topic(topic.handle)
    assert topic.keys("0") == topic.keys("2") == [f"0/{made.name}.index", f"0/{made.name}.log"]
    assert len(topic.handle.refresh().pending_deletions) == 0
    disk(topic, "1").broken = None
    topic.log.probe_nodes()
    assert [key for key in topic.keys("1") if key.startswith("append/")] == kept
    raise_floor(topic)
    assert follower.delete_unnamed_files(topic.log, "1") == 3
    assert topic.keys("1") == topic.keys("0")


def test_a_node_that_fails_meanwhile_is_told_after_the_others_were_cleaned(topic):
    fill(topic, 3)
    made = roll(topic)
    disk(topic, "1").broken_writes = StoreUnavailable
    told = []
    topic_cleanup.clean_up_topic(topic.handle, failed=lambda *each: told.append(each))
    assert [(name, type(error)) for name, error in told] == [("1", StoreUnavailable)]
    assert topic.keys("2") == [f"0/{made.name}.index", f"0/{made.name}.log"]
    assert len(topic.handle.refresh().pending_deletions) == 0
    with pytest.raises(StoreUnavailable):
        topic_cleanup.clean_up_topic(topic.handle)


def test_files_are_remembered_while_a_node_that_may_be_well_keeps_them(topic):
    fill(topic, 3)
    roll(topic)
    disk(topic, "1").broken_writes = StoreRefused
    told = []
    topic_cleanup.clean_up_topic(topic.handle, failed=lambda *each: told.append(each))
    assert [name for name, _ in told] == ["1"]
    assert len(topic.handle.refresh().pending_deletions) == 3
    disk(topic, "1").broken_writes = None
    topic_cleanup.clean_up_topic(topic.handle)
    assert topic.keys("1") == topic.keys("0")
    assert len(topic.handle.refresh().pending_deletions) == 0


def test_a_node_that_was_missing_when_the_log_was_opened_is_not_asked(topic):
    fill(topic, 2)
    roll(topic)
    before = topic.keys("1")
    topic.log.missing_nodes = {"1": StoreUnavailable("/disk/1", "", "it hangs")}
    topic_cleanup.clean_up_topic(topic.handle)
    assert topic.keys("1") == before != topic.keys("0")


def test_nothing_is_removed_from_a_disk_that_is_another(topic):
    fill(topic, 1)
    left = orphan(topic, "1")
    raise_floor(topic)
    disk(topic, "1").delete("node")
    topic_cleanup.clean_up_topic(topic.handle)
    assert disk(topic, "1").size(left) > 0


def test_in_passing_a_node_that_fails_is_logged_and_fails_no_write(topic, monkeypatch, caplog):
    monkeypatch.setattr(inline_maintenance, "CLEAN_UP_EVERY_ENTRIES", 1)
    fill(topic, 2)
    roll(topic)
    disk(topic, "2").broken_writes = StoreUnavailable
    inline_maintenance.run_inline(topic.handle)
    assert "cleanup of topic 't' on node '2' was left for later" in caplog.text


# Deleted topics


def test_a_deleted_topic_goes_from_every_node_that_is_there(topic):
    fill(topic, 2)
    folder = topic_folder("t", topic.handle.topic_id)
    topic.log.delete_topic("t")
    disk(topic, "1").broken_writes = StoreUnavailable
    told = []
    [gone] = cluster_cleanup.clean_up_cluster(topic.log, failed=lambda *each: told.append(each)).deleted_topics
    assert gone.topic == "t"
    assert [url for url, _ in told] == ["/disk/1"]
    assert list(disk(topic, "2").list(folder)) == []
    assert len(list(disk(topic, "1").list(folder))) == 2
    disk(topic, "1").broken_writes = None
    assert cluster_cleanup.clean_up_cluster(topic.log).deleted_topics[0].objects == 2
    assert list(disk(topic, "1").list(folder)) == []
    assert cluster_cleanup.clean_up_cluster(topic.log).deleted_topics == ()


@pytest.mark.parametrize("how", ["missing", "fenced"])
def test_a_node_that_is_out_of_service_keeps_nobody_from_tidying_up(topic, how):
    fill(topic, 1)
    topic.log.delete_topic("t")
    if how == "fenced":
        node_admin.set_fenced(topic.log, "1", fenced=True)
    disk(topic, "1").broken = StoreUnavailable
    topic.log.probe_nodes()
    assert len(cluster_cleanup.clean_up_cluster(topic.log).deleted_topics) == 1
