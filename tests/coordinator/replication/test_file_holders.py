"""A node records the files that it has copied, and finds those that it lacks."""

import pytest

from pyspark_log_coordinator.replication.file_holders import FilesHeld, HoldFiles, held_alone, newest_held
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_coordinator.segments.swap import MaintainSegments
from pyspark_log_coordinator.sync.replica_file import missing
from pyspark_log_storage.errors import NodeMissing
from tests.support.coordinator.topics import after, commit, decide, file, incarnation, rolled, started, swap


def holds(node, *files, segments=()):
    return HoldFiles(node, incarnation(node), files, tuple(segments))


def three_files():
    """Return a topic of two partitions on A and B; B lacks files 1 and 2, the last of which is of both partitions."""
    state = after(started(2, ("A", "B")), commit(None, file({0: 2}, on=("A", "B"))))
    state = after(state, commit(None, file({0: 2})))
    return after(state, commit(None, file({0: 2, 1: 1})))


def test_what_it_holds_already_and_what_is_not_there_is_left_out():
    assert decide(three_files(), holds("B", 0, 2, 2, 99)) == [FilesHeld("B", (2,), ())]
    assert decide(three_files(), holds("B", 0, 99, segments=[(0, "gone"), (9, "gone")])) == []
    state = rolled(three_files(), 0, 4)
    assert state.first_file == 2
    assert decide(state, holds("B", 1)) == []


@pytest.mark.parametrize(("node", "named"), [("B", "another"), ("Z", incarnation("Z"))])
def test_a_report_of_an_unknown_node_is_refused(node, named):
    with pytest.raises(NodeMissing, match=f"an incarnation of node '{node}' that is not the topic's"):
        decide(three_files(), HoldFiles(node, named, (1,)))


def test_what_is_missing_is_listed_by_offset_segments_first():
    state = after(rolled(three_files(), 0, 4), MaintainSegments((swap(4, 6),)))
    *segments, file = missing(state, "B")
    assert [(each.number, each.segment.base_offset, each.segment.end_offset) for each in segments] == [
        (0, 0, 4),
        (0, 4, 6),
    ]
    assert (file.number, file.segment) == (2, None)
    assert missing(state, "A") == []


@pytest.mark.parametrize(("held", "end", "lacks"), [((), 4, [2]), ((2,), 6, [])])
def test_deleting_rows_that_a_follower_lacks_brings_it_as_far_as_it_holds_what_follows(held, end, lacks):
    state = after(after(three_files(), holds("B", *held)), DeleteRecords(0, 4))
    assert state.partitions[0].log_end_offsets["B"] == end
    assert [each.number for each in missing(state, "B")] == lacks


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 1, 0)])
def test_the_newest_of_all_partitions_files_tells_a_disk_that_was_restored_between_them(order):
    state = started(3, ("A", "B"))
    for partition in order:
        state = after(state, commit(None, file({partition: 1}, on=("A", "B"))))
    assert newest_held(state, "B") == f"append/{state.file(2).name}"
    for born, partition in enumerate(order, start=1):
        state = rolled(state, 0, 1, partition=partition, on=("A", "B"), born=born)
    assert newest_held(started(), "A") is None
    assert newest_held(state, "B") == f"{order[-1]}/{state.partitions[order[-1]].segments[0].name}.log"


def test_what_others_can_copy_from_the_leader_alone_are_its_files_above_the_high_watermark():
    state = started(1, ("A", "B"))
    for on in (("A", "B"), ("A",), ("A",)):
        state = after(state, commit(None, file({0: 2}, on=on), acks="1"))
    assert (state.partitions[0].isr, state.partitions[0].high_watermark) == (("A", "B"), 2)
    assert held_alone(state, "A") == tuple(f"append/{state.file(number).name}" for number in (1, 2))
    assert held_alone(state, "B") == ()
    assert held_alone(after(state, holds("B", 1)), "A") == (f"append/{state.file(2).name}",)
    state = after(started(1, ("A", "B")), commit(None, file({0: 2})))
    assert (state.partitions[0].isr, state.partitions[0].high_watermark) == (("A",), 2)
    assert held_alone(state, "A") == (), "nobody waits for what is committed"
