"""The first state of a topic that was found in the folders of its nodes."""

import msgspec
import pytest

from pyspark_log_coordinator.model.partition import Keyed, SegmentRef
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.topic import restore
from pyspark_log_coordinator.topic.machine import Topic
from pyspark_log_coordinator.topic.restore import RestoredPartition, RestoreTopic, TopicRestored
from tests.support.coordinator.topics import SCHEMAS, after, commit, file, filled, incarnation, started, swap

NODES = ("A", "B")


def found(*segments: SegmentRef, log_start: int = 0, **config: str) -> TopicRestored:
    """A topic of one partition with these segments, and after them a chunk of ten rows that both nodes hold."""
    state = after(started(replicas=NODES), commit(None, file({0: 10}, on=NODES)))
    end = segments[-1].end_offset if segments else 0
    [chunk] = state.partitions[0].chunks
    chunks = (msgspec.structs.replace(chunk, base_offset=end),)
    partition = RestoredPartition(NODES, ((0, log_start), (1000, end + 10)), log_start, end + 10, segments, chunks)
    return TopicRestored(
        entry=2_000_000,
        name="t",
        topic_id="1",
        config=TopicConfig(**config),
        schemas=SCHEMAS,
        incarnations={node: incarnation(node) for node in NODES},
        partitions=(partition,),
        files=tuple(state.files),
        producers={},
    )


def test_the_log_goes_on_at_its_end_in_a_new_leader_epoch_and_older_files_are_orphans():
    state = restore.evolve(found(swap(0, 5, on=NODES).segment, log_start=2))
    [one] = state.partitions
    assert (one.log_start, one.high_watermark, one.log_end, one.leader_epoch) == (2, 15, 15, 1000)
    assert (one.isr, one.leader, one.log_end_offsets) == (NODES, "A", {"A": 15, "B": 15})
    assert (state.orphan_floor, state.restored) == (2_000_000, 2_000_000)


@pytest.mark.parametrize(("holder", "other"), [("A", "B"), ("B", "A")])
def test_only_nodes_that_hold_all_rows_are_in_the_isr(holder, other):
    [one] = restore.evolve(found(swap(0, 5, on=NODES).segment, swap(5, 9, on=(holder,)).segment)).partitions
    assert (one.isr, one.leader, one.log_end_offsets) == ((holder,), holder, {holder: 19, other: 5})


def test_nobody_leads_a_partition_of_which_no_node_has_all_rows():
    [one] = restore.evolve(found(swap(0, 5, on=("A",)).segment, swap(5, 9, on=("B",)).segment)).partitions
    assert (one.isr, one.leader) == ((), None)


@pytest.mark.parametrize(
    ("keyed", "config", "compactions"),
    [(None, {}, 0), (None, {"cleanup_policy": "compact"}, 2_000_000), (Keyed(1, 0, 0), {}, 2_000_000)],
)
def test_no_batch_has_seen_the_compactions_of_a_topic_that_may_have_been_compacted(keyed, config, compactions):
    segment = msgspec.structs.replace(swap(0, 5, on=NODES, parquet=True).segment, keyed=keyed)
    assert restore.evolve(found(segment, **config)).partitions[0].compactions == compactions


def test_a_journal_that_has_begun_is_not_restored():
    command = RestoreTopic(found())
    assert restore.decide(Topic(), command) == [command.found]
    assert restore.decide(filled(1), command) == []
