"""The plan of a rebuild, from the contents of folders that are made by hand."""

import msgspec
import pytest

from pyspark_log_coordinator.maintenance.topic_description import Description
from pyspark_log_coordinator.model.topic_state import with_partition
from pyspark_log_coordinator.rebuild.execute import TopicRebuild
from pyspark_log_coordinator.rebuild.folder_scan import FolderContents, FoundSegment, TopicFolder
from pyspark_log_coordinator.rebuild.topic_plan import EPOCH_MARGIN, NUMBER_MARGIN, next_number, plan_topic
from pyspark_log_coordinator.topic.machine import DeleteRecords
from pyspark_log_storage.files.row_files import SegmentFile
from pyspark_log_storage.layout import segment_name
from tests.support.coordinator.topics import SCHEMAS, after, claim, commit, file, filled, started
from tests.support.memory_store import MemoryStore

FOLDER = TopicFolder("t", "1")


def found(start, end, *epochs, why=None, nonce=0):
    """A segment of rows `[start, end)` in a folder."""
    name = segment_name(start, 1, f"{nonce:032x}")
    return FoundSegment(0, SegmentFile(name, start, end, 1, 100, 0, 0), epochs or ((0, 0),), why)


def contents(*segments, state=None, number=1, high_watermark=None, epochs=(), files=()):
    """What a node has of the topic, `state` as its description."""
    return FolderContents(
        segments=segments,
        append_files=tuple(files),
        high_watermarks={} if high_watermark is None else {0: high_watermark},
        epochs={0: epochs} if epochs else {},
        description=None if state is None else Description(number, 1, (), state),
        newest=number,
        damaged=(),
    )


def plan(good=None, **folders):
    """The plan for nodes that are given as node0, node1 and so on; `good` are the whole chunks of each, by offset."""
    nodes = {name[-1]: each for name, each in folders.items()}
    whole = {node: frozenset((0, offset) for offset in some) for node, some in (good or {}).items()}
    return plan_topic(FOLDER, nodes, whole, tuple(nodes), (), SCHEMAS)


def names(state):
    """The names of a topic's append files, oldest first."""
    return [each.name for each in state.files]


def test_a_new_journal_begins_above_every_number_that_the_lost_one_can_have_had():
    for newest in (0, 1, NUMBER_MARGIN - 1, NUMBER_MARGIN, 10 * NUMBER_MARGIN + 5):
        assert next_number(newest) > newest + NUMBER_MARGIN
    assert plan(node0=contents(number=7), node1=contents(number=3 * NUMBER_MARGIN)).entry == 5 * NUMBER_MARGIN


def test_leader_epochs_are_kept_from_the_log_start_to_its_end_and_a_new_one_begins():
    epochs = ((0, 0), (2, 4), (5, 8), (6, 20))
    [one] = plan(node0=contents(found(0, 6, *epochs), found(6, 10, *epochs), epochs=epochs)).partitions
    assert one.epoch_starts == ((0, 0), (2, 4), (5, 8), (6 + EPOCH_MARGIN, 10))
    [one] = plan(node0=contents(found(6, 10, *epochs), epochs=epochs)).partitions
    assert (one.log_start, one.epoch_starts) == (6, ((2, 6), (5, 8), (6 + EPOCH_MARGIN, 10)))


def test_the_lineage_is_that_of_the_newest_leader_epoch_on_any_node():
    """Row 5 of node 0 is of epoch 0, and was cut: epoch 3 begins at 5."""
    old, new = found(0, 6, (0, 0), nonce=1), found(0, 7, (0, 0), (3, 5), nonce=2)
    made = plan(node0=contents(old, epochs=((0, 0),)), node1=contents(new, epochs=((0, 0), (3, 5))))
    [one] = made.partitions
    assert [each.file.name for each in one.segments] == [new.file.name]
    assert made.segments_aside == {"0": (f"0/{old.file.name}",), "1": ()}


def test_chunks_that_were_cut_after_the_description_are_left_out():
    """A checkpoint has epoch 3, which begins at 10: the described rows from there on were cut."""
    state = filled(3)
    made = plan(
        {"0": (0, 10, 20)}, node0=contents(state=state, files=names(state)), node1=contents(epochs=((0, 0), (3, 10)))
    )
    [one] = made.partitions
    assert [each.base_offset for each in one.chunks] == [0]


def test_a_rebuilt_log_begins_at_the_furthest_log_start_that_any_node_knows():
    state = after(filled(3), DeleteRecords(0, 10))
    made = plan(node0=contents(found(0, 10), found(10, 30, nonce=1)), node1=contents(state=state))
    [one] = made.partitions
    assert (one.log_start, one.lost) == (10, 0)
    assert [each.base_offset for each in one.segments] == [10]


def test_rows_above_the_described_high_watermark_are_lost_if_a_checkpoint_knows_them():
    made = plan({"0": (0, 10)}, node0=contents(state=filled(2)), node1=contents(high_watermark=25))
    assert [(each.log_end, each.lost) for each in made.partitions] == [(20, 5)]


def test_an_append_file_stays_on_the_nodes_that_have_all_that_is_needed_of_it():
    state = filled(2)
    everything = contents(state=state, files=names(state))
    made = plan({"0": (0, 10), "1": (10,)}, node0=everything, node1=everything)
    first, second = names(state)
    assert made.files_aside == {"0": (), "1": (first,)}
    assert made.files == {0: (first, ("0",)), 1: (second, ("0", "1"))}
    assert made.unplaced == ()


@pytest.mark.parametrize("base_offset", [10, 0])
def test_append_files_of_rolled_rows_stay_only_while_the_log_has_all_described_rows(base_offset):
    """The first append file was rolled. Of the log's first ten rows no segment is left, or all."""
    state = filled(2)
    one = state.partitions[0]
    state = with_partition(state, 0, msgspec.structs.replace(one, chunks=type(one.chunks)(list(one.chunks)[1:])))
    made = plan({"0": (10,)}, node0=contents(found(base_offset, 20), state=state, files=names(state)))
    assert made.partitions[0].log_start == base_offset
    rolled, needless = names(state)
    # Both may have rows that are lost, or neither does.
    assert made.files_aside == {"0": (rolled, needless) if base_offset else ()}


def test_a_node_has_rows_up_to_the_first_piece_that_it_lacks():
    state = filled(4)
    one = state.partitions[0]
    state = with_partition(state, 0, msgspec.structs.replace(one, chunks=type(one.chunks)(list(one.chunks)[2:])))
    first, second = found(0, 10), found(10, 20, nonce=1)
    made = plan(
        {"0": (20, 30), "1": (30,), "2": (20, 30)},
        node0=contents(first, second, state=state, files=names(state)),
        node1=contents(first, second, files=names(state)),
        node2=contents(second, files=names(state)),
    )
    assert made.partitions[0].reached == {"0": 40, "1": 20, "2": 0}


def test_only_lost_rows_of_a_producer_s_last_batch_are_counted():
    state = started()
    for batch in range(2):
        state = after(state, commit(claim(batch), file({0: 10})))
    for good, lost in (((0, 10), 0), ((0,), 10), ((), 10)):
        [producer] = plan({"0": good}, node0=contents(state=state)).producers.values()
        assert (producer.batch_id, producer.rows_lost) == (1, lost)


def test_a_damaged_segment_and_one_that_ends_behind_the_log_are_set_aside():
    whole, merged = found(0, 10), found(0, 20, nonce=1)
    behind, damaged = found(30, 40, nonce=2), found(10, 20, nonce=3, why="a flipped bit")
    used, contained = found(10, 20, nonce=4), found(0, 5, nonce=5)
    made = plan(node0=contents(whole, used, behind, damaged, contained), node1=contents(merged))
    assert [each.file.name for each in made.partitions[0].segments] == [merged.file.name]
    assert made.segments_aside == {"0": (f"0/{behind.file.name}", f"0/{damaged.file.name}"), "1": ()}


def test_the_time_reached_by_a_row_is_that_of_the_newest_row_before_it():
    state = filled(4)
    one = state.partitions[0]
    times = [0, 0, 3, 9]
    chunks = [msgspec.structs.replace(each, max_timestamp=at) for each, at in zip(one.chunks, times, strict=True)]
    state = with_partition(state, 0, msgspec.structs.replace(one, chunks=type(one.chunks)(chunks[2:])))
    segments = [found(0, 10), found(10, 20, nonce=1)]
    segments = [
        msgspec.structs.replace(each, file=msgspec.structs.replace(each.file, max_timestamp=at))
        for each, at in zip(segments, (7, 5), strict=True)
    ]
    made = plan({"0": (20, 30)}, node0=contents(*segments, state=state, files=names(state)))
    [restored] = TopicRebuild(made, {"0": MemoryStore()}).restored({"0": "i"}, now=0).partitions
    assert [each.timestamp_reached for each in (*restored.segments, *restored.chunks)] == [7, 7, 7, 9]
    assert [each.file for each in restored.chunks] == [0, 1]
