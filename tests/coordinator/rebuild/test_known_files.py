"""What a topic becomes whose log begins anew: its known state, as far as its files are there."""

import msgspec
import pytest

from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.rebuild import known_files
from pyspark_log_coordinator.rebuild.known_files import EPOCH_MARGIN, NUMBER_MARGIN, Loss, anew, cut
from pyspark_log_coordinator.topic import integrity
from pyspark_log_storage.files.row_files import KeyedCounts
from tests.support.coordinator.topics import after, claim, commit, file, rolled, started

NUMBER = 2 * NUMBER_MARGIN
NODES = {node: f"new incarnation of {node}" for node in "ABC"}


def three_pieces():
    """A topic on A and B with a segment [0, 20), and chunks [20, 30) and [30, 40) of two batches of a producer."""
    state = started(replicas=("A", "B"))
    for batch in range(4):
        state = after(state, commit(claim(batch), file({0: 10}, on=("A", "B"))))
    return rolled(state, 0, 20, on=("A", "B"))


def copies_of(state, *nodes):
    """Return copies of each piece of partition 0: `nodes` has the holders of each."""
    one = state.partitions[0]
    pieces = (*one.segments, *one.chunks)
    return {known_files.key_of(state, 0, each): tuple(some) for each, some in zip(pieces, nodes, strict=True)}


def begun(state, *nodes, present=NODES):
    copies = copies_of(state, *nodes)
    found, losses = cut(state, copies)
    made = anew(found, NUMBER, copies, present)
    integrity.check(Topic(), made)
    return made, losses


def test_the_log_goes_on_at_its_end_in_a_new_leader_epoch_on_the_nodes_that_have_all_rows():
    state = three_pieces()
    one = msgspec.structs.replace(state.partitions[0], high_watermark=30, log_end_offsets={"A": 40, "B": 30})
    state = msgspec.structs.replace(state, partitions=(one, *state.partitions[1:]))
    made, losses = begun(state, "AB", "AB", "AB")
    [one] = made.partitions
    assert losses == ()
    assert (one.log_start, one.high_watermark, one.log_end) == (0, 40, 40)
    assert (one.replicas, one.isr, one.leader, one.log_end_offsets) == (("A", "B"), ("A", "B"), "A", {"A": 40, "B": 40})
    assert one.epoch_starts == ((0, 0), (EPOCH_MARGIN, 40))
    assert made.incarnations == {node: NODES[node] for node in "AB"}
    assert {holder.incarnation for each in one.segments for holder in each.holders} == set(made.incarnations.values())


def test_a_partition_ends_where_no_node_has_its_file():
    state = three_pieces()
    made, losses = begun(state, "AB", "", "AB")
    key = next(key for key, nodes in copies_of(state, "AB", "", "AB").items() if not nodes)
    assert losses == (Loss(0, 20, 20, key),)
    [one] = made.partitions
    assert (one.log_end, one.epoch_starts, list(one.chunks), len(made.files)) == (
        20,
        ((0, 0), (EPOCH_MARGIN, 20)),
        [],
        0,
    )
    assert made.producers["query-1"].rows_lost == 10, "of its newest batch, whose replay is an error"
    _, [first] = begun(state, "", "", "AB")
    assert (first.offset, first.rows) == (0, 40)


def test_leader_epochs_of_lost_rows_are_lost():
    state = three_pieces()
    one = msgspec.structs.replace(state.partitions[0], leader_epoch=4, epoch_starts=((0, 0), (2, 20), (3, 30), (4, 40)))
    state = msgspec.structs.replace(state, partitions=(one, *state.partitions[1:]))
    made, _ = begun(state, "AB", "AB", "")
    assert made.partitions[0].epoch_starts == ((0, 0), (2, 20), (4 + EPOCH_MARGIN, 30))


def test_a_replica_that_lacks_rows_is_not_in_sync_and_the_one_with_the_most_gets_what_it_lacks():
    state = three_pieces()
    made, _ = begun(state, "AB", "A", "A")
    [one] = made.partitions
    assert (one.isr, one.leader, one.log_end_offsets) == (("A",), "A", {"A": 40, "B": 20})
    copies = copies_of(state, "AB", "A", "B")
    made, _ = begun(state, "AB", "A", "B")
    assert (made.partitions[0].isr, made.partitions[0].leader) == ((), None), "nobody has all rows"
    [(key, node)] = known_files.lacking(state, copies, list(NODES))
    assert (copies[key], node) == (("B",), "A")


def test_nodes_that_have_files_replace_replicas_of_which_none_is_left():
    made, _ = begun(three_pieces(), "C", "C", "C", present={"C": "new"})
    assert (made.partitions[0].replicas, made.incarnations) == (("C",), {"C": "new"})
    empty, _ = begun(started(replicas=("A",)), present={"B": "new", "C": "new"})
    assert empty.partitions[0].replicas == ("B", "C")


@pytest.mark.parametrize(
    ("compacted", "policy", "seen"), [(0, "delete", 0), (3, "delete", NUMBER), (0, "compact", NUMBER)]
)
def test_no_batch_has_seen_the_compactions_of_a_topic_that_may_have_been_compacted(compacted, policy, seen):
    state = three_pieces()
    one = msgspec.structs.replace(state.partitions[0], compactions=compacted)
    state = msgspec.structs.replace(state, partitions=(one, *state.partitions[1:]))
    state = msgspec.structs.replace(state, config=TopicConfig(cleanup_policy=policy))
    assert begun(state, "A", "A", "A")[0].partitions[0].compactions == seen


def test_rows_of_a_keyed_segment_that_is_lost_are_counted_as_they_were():
    state = three_pieces()
    [segment], one = state.partitions[0].segments, state.partitions[0]
    keyed = msgspec.structs.replace(segment, name=f"{segment.name}.parquet", keyed=KeyedCounts(7, 0))
    one = msgspec.structs.replace(one, segments=(keyed,), compactions=1)
    state = msgspec.structs.replace(state, partitions=(one, *state.partitions[1:]))
    _, [loss] = begun(state, "", "A", "A")
    assert loss.rows == 7 + 20
