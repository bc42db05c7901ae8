"""Rolling on several nodes: a segment is written for all of the ISR at once, and a node that fails is left out."""

import pytest

from pyspark_log_coordinator.maintenance import isr_copies
from pyspark_log_coordinator.maintenance.roll_task import roll_task_of, run_roll
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.segments.swap import MaintainSegments
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, NodeMissing, StoreRefused, StoreUnavailable, StoreUnwritable
from pyspark_log_storage.files import index
from pyspark_log_storage.parquet import parquet_segment
from pyspark_log_storage.segments import segment
from tests.support.coordinator.replicated_topic import ALL
from tests.support.coordinator.rolled_nodes import breakable, disk, fill, holders, roll


@pytest.fixture(params=["log", "parquet"])
def topic(request, monkeypatch):
    monkeypatch.setattr(parquet_segment, "ROW_GROUP_BYTES", 50_000)  # each row is a row group, as it is a chunk
    return breakable(retention_ms="-1", file_delete_delay_ms="0", orphan_retention_ms="0", segment_format=request.param)


of_logs = pytest.mark.parametrize("topic", ["log"], indirect=True)
"""Of merges: Parquet segments are not merged."""


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
    assert all(index.is_right(disk(topic, name), key, first[1]) for name in names)
    return [(each.base_offset, each.rows) for each in first[1]]


# Rolling


def test_a_segment_is_on_every_member_of_the_isr_and_in_its_place_by_one_entry(topic):
    fill(topic, 3)
    before = topic.handle.journal.number
    assert holders(roll(topic)) == ["0", "1", "2"]
    assert topic.handle.journal.number == before + 1
    assert rolled(topic, "0", "1", "2") == [(0, 1), (1, 1), (2, 1)]
    assert topic.partition().log_end_offsets == {"0": 3, "1": 3, "2": 3}


@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_rows_that_the_leader_cannot_serve_come_from_another_node(topic, how):
    fill(topic, 4)
    if how == "damaged":
        topic.damage("0", file_key(topic, 1))
        topic.damage("1", file_key(topic, 2))
    else:
        disk(topic, "0").delete(file_key(topic, 1))
    roll(topic)
    assert rolled(topic, "0", "1", "2") == [(offset, 1) for offset in range(4)]


@of_logs
def test_a_segment_that_is_cut_on_one_node_is_merged_from_another(topic):
    for _ in range(2):
        fill(topic, 3)
        roll(topic)
    first, second = topic.partition().segments
    key = topic.handle.segment(0, first.name)
    last = segment.scan(disk(topic, "0"), key)[-1].position
    disk(topic, "0").put(layout.segment_file(key), disk(topic, "0").read(layout.segment_file(key))[:last])
    topic.damage("0", f"{topic.handle.segment(0, second.name)}.log", -5)
    one = topic.partition()
    merge = roll_plan.RollJob(0, one.leader_epoch, 2, one.segments, (), one.epoch_starts)
    swap = run_roll(topic.log.store_at, roll_task_of(topic.handle, merge), topic.log.environment)
    topic.handle.submit(MaintainSegments((swap,)))
    assert [offset for offset, _ in rolled(topic, "0", "1", "2")][-1] < 6
    assert sum(rows for _, rows in rolled(topic, "0", "1", "2")) == 6


def test_rows_that_no_node_can_serve_are_an_error_that_names_the_offset(topic):
    fill(topic, 3)
    for name in ALL:
        topic.damage(name, file_key(topic, 1))
    with pytest.raises(CorruptObject, match="topic 't', partition 0, offset 1"):
        roll(topic)
    assert not any(key.startswith("0/") for name in ALL for key in topic.keys(name))


@pytest.mark.parametrize("error", [StoreUnavailable, StoreUnwritable])
def test_a_node_that_fails_is_left_out_and_gets_a_copy_before_the_swap_is_proposed(topic, error):
    fill(topic, 2)
    disk(topic, "1").broken_writes = error
    swap = run_roll(topic.log.store_at, roll_task_of(topic.handle, topic.job()), topic.log.environment)
    assert holders(swap.segments[0]) == ["0", "2"]
    assert isr_copies.with_copies(topic.handle, [swap]) == (swap,), "it still fails"
    assert topic.handle.submit(MaintainSegments((swap,))).events == []
    disk(topic, "1").broken_writes = None
    assert isr_copies.with_copies(topic.handle, [swap], failed=["1"]) == (swap,)
    (copied,) = isr_copies.with_copies(topic.handle, [swap])
    topic.handle.submit(MaintainSegments((copied,)))
    assert rolled(topic, "0", "1", "2") == [(0, 1), (1, 1)]


def test_a_copy_does_not_count_if_its_disk_was_unmounted_meanwhile(topic, monkeypatch):
    fill(topic, 2)
    store = disk(topic, "1")
    store.broken_writes = StoreUnavailable
    swap = run_roll(topic.log.store_at, roll_task_of(topic.handle, topic.job()), topic.log.environment)
    store.broken_writes = None
    real = store.open_write

    def open_unmounted(*args, **kwargs):
        store.delete(layout.MARKER)
        return real(*args, **kwargs)

    monkeypatch.setattr(store, "open_write", open_unmounted)
    assert isr_copies.with_copies(topic.handle, [swap]) == (swap,)


def test_a_node_that_only_this_process_may_not_use_fails_the_job(topic):
    fill(topic, 2)
    disk(topic, "1").broken_writes = StoreRefused
    with pytest.raises(StoreRefused):
        roll(topic)


def test_a_node_that_was_replaced_while_it_was_written_to_is_no_holder(topic):
    fill(topic, 2)
    work = roll_task_of(topic.handle, topic.job())
    disk(topic, "1").delete("node")
    swap = run_roll(topic.log.store_at, work, topic.log.environment)
    assert holders(swap.segments[0]) == ["0", "2"]
    for name in ("0", "2"):
        disk(topic, name).delete("node")
    with pytest.raises(NodeMissing):
        run_roll(topic.log.store_at, work, topic.log.environment)
