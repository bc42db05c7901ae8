"""Rolling on several nodes: a segment is written for all of the ISR at once, and a node that fails is left out."""

import msgspec
import pytest

from pyspark_log_coordinator.commit import inline_maintenance
from pyspark_log_coordinator.maintenance import roll_task
from pyspark_log_coordinator.maintenance.roll_input import RollSource
from pyspark_log_coordinator.maintenance.roll_task import roll_task_of, run_roll
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.sync import catch_up
from pyspark_log_coordinator.topic.machine import MaintainSegments
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, NodeMissing, StoreRefused, StoreUnavailable, StoreUnwritable
from pyspark_log_storage.parquet import parquet_segment
from pyspark_log_storage.segments import segment
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic
from tests.support.coordinator.rolled_nodes import breakable, disk, fill, holders, job, roll
from tests.support.coordinator.stored_topic import StoredTopic


@pytest.fixture(params=["log", "parquet"])
def topic(request, monkeypatch):
    monkeypatch.setattr(parquet_segment, "ROW_GROUP_BYTES", 50_000)  # each row is a row group, as it is a chunk
    return breakable(retention_ms="-1", file_delete_delay_ms="0", orphan_retention_ms="0", segment_format=request.param)


pytestmark = pytest.mark.no_faults("says which nodes hold a segment: one with a fault would not")
of_logs = pytest.mark.parametrize("topic", ["log"], indirect=True)
"""Of merges: Parquet segments are not merged."""


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
    first, *others = [
        (disk(topic, name).read(layout.segment_file(key)), segment.scan(disk(topic, name), key)) for name in names
    ]
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
    monkeypatch.setattr(roll_task, "FanOutWriter", None)
    topic = StoredTopic()
    topic.fill(3)
    topic.roll()
    topic.check()


def test_a_node_without_a_replica_gets_no_segment():
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
def test_rows_that_the_leader_cannot_serve_come_from_another_node(topic, how):
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
    swap = run_roll(topic.log.store_at, work, topic.log.environment)
    assert (holders(swap.segment), swap.segment.end_offset, len(asked)) == (["1", "2"], 4, 1)


@of_logs
def test_a_segment_that_is_cut_on_one_node_is_merged_from_another(topic):
    for _ in range(2):
        fill(topic, 3)
        roll(topic)
    first, second = topic.partition().segments
    key = topic.handle.segment(0, first.name)
    last = segment.scan(disk(topic, "0"), key)[-1].position
    disk(topic, "0").put(layout.segment_file(key), disk(topic, "0").read(layout.segment_file(key))[:last])
    flip(topic, "0", f"{topic.handle.segment(0, second.name)}.log", -5)
    one = topic.partition()
    merge = roll_plan.RollJob(0, one.leader_epoch, 2, one.segments, (), one.epoch_starts)
    swap = run_roll(topic.log.store_at, roll_task_of(topic.handle, merge), topic.log.environment)
    topic.handle.submit(MaintainSegments((swap,)))
    assert [offset for offset, _ in rolled(topic, "0", "1", "2")][-1] < 6
    assert sum(rows for _, rows in rolled(topic, "0", "1", "2")) == 6


def test_rows_that_no_node_can_serve_are_an_error_that_names_the_offset(topic):
    fill(topic, 3)
    for name in ALL:
        flip(topic, name, file_key(topic, 1))
    with pytest.raises(CorruptObject, match="topic 't', partition 0, offset 1"):
        roll(topic)
    assert not any(key.startswith("0/") for name in ALL for key in topic.keys(name))


def test_a_roll_without_a_reachable_holder_says_so(topic):
    fill(topic, 1)
    work = roll_task_of(topic.handle, job(topic))
    bare = {number: RollSource(each.name, ()) for number, each in work.files.items()}
    with pytest.raises(StoreUnavailable, match=r"none of the nodes that hold .* is reachable; bring one back"):
        run_roll(topic.log.store_at, msgspec.structs.replace(work, files=bare), topic.log.environment)


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


@of_logs
def test_a_segment_of_which_no_node_has_both_files_is_an_error(topic, monkeypatch):
    fill(topic, 2, on=("0", "1"))
    real = {name: disk(topic, name).open_write for name in ("0", "1")}

    def failing(name, ending):
        def open_write(key, *, durable=True, replace=False):
            writer = real[name](key, durable=durable, replace=replace)
            if key.endswith(ending):
                writer.close = lambda: fail(key)
            return writer

        return open_write

    def fail(key):
        raise StoreUnavailable("", key, "no answer")

    for name, ending in (("0", ".index"), ("1", ".log")):
        monkeypatch.setattr(disk(topic, name), "open_write", failing(name, ending))
    with pytest.raises(StoreUnavailable, match=r"no node has all of .*: each failed at one of its two files"):
        roll(topic)


@pytest.mark.on_disk("a bucket is not mounted, so its marker is not read again")
def test_a_node_that_was_replaced_while_it_was_written_to_is_no_holder(topic):
    fill(topic, 2)
    work = roll_task_of(topic.handle, job(topic))
    disk(topic, "1").delete("node")
    swap = run_roll(topic.log.store_at, work, topic.log.environment)
    assert holders(swap.segment) == ["0", "2"]
    for name in ("0", "2"):
        disk(topic, name).delete("node")
    with pytest.raises(NodeMissing):
        run_roll(topic.log.store_at, work, topic.log.environment)


def test_a_node_that_is_missing_is_neither_read_from_nor_written_to(topic):
    fill(topic, 2)
    disk(topic, "1").broken = StoreUnavailable
    topic.log.probe_nodes()
    work = roll_task_of(topic.handle, job(topic))
    assert (work.targets, {each.nodes for each in work.files.values()}) == (("0", "2"), {("0", "2")})


def test_inline_maintenance_does_the_same(topic):
    fill(topic, roll_plan.ROLL_CHUNKS)
    [work] = inline_maintenance.plan_inline(topic.handle)
    [swap] = inline_maintenance.roll_inline(topic.stores.task().store_at, work, topic.log.environment)
    assert holders(swap.segment) == ["0", "1", "2"]
