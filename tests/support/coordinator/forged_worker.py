"""A process that folds impossible entries: `python [-O] -m tests.support.coordinator.forged_worker`.

Prints a line for each: what it is, and the error that it was, or "folded". Its stores are in memory, wherever those of
the tests are: nobody runs it again if one of its calls fails.
"""

from collections.abc import Callable
from typing import Any

from pyspark_log_coordinator.cluster import journal_generations, nodes
from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.machine import TopicCreated, TopicRemoved
from pyspark_log_coordinator.journal.state_machine import JournalMoved
from pyspark_log_coordinator.model.partition import ChunkRef, SegmentRef
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.model.topic_state import FloorMark
from pyspark_log_coordinator.replication.damage import CopiesDamaged
from pyspark_log_coordinator.replication.election import LeaderElected
from pyspark_log_coordinator.replication.file_holders import FilesHeld
from pyspark_log_coordinator.replication.isr_shrink import IsrShrunk
from pyspark_log_coordinator.replication.reassignment import PartitionsAdded, ReplicasAltered
from pyspark_log_coordinator.replication.row_loss import RowsLost
from pyspark_log_coordinator.segments import orphans
from pyspark_log_coordinator.segments.first_offsets import FirstOffsetsSet
from pyspark_log_coordinator.segments.retention import LogStartMoved
from pyspark_log_coordinator.segments.swap import SegmentsSwapped, SegmentStaged
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.machine import SequencedFile, TopicStarted
from pyspark_log_coordinator.topic.restore import RestoredPartition, TopicRestored
from pyspark_log_coordinator.topic.sequencing import BatchSequenced
from pyspark_log_storage.errors import CorruptObject, NewerFormat
from pyspark_log_storage.files.row_files import StagedChunk
from pyspark_log_storage.layout import born_name, segment_name
from tests.support.coordinator.forged import forge
from tests.support.coordinator.stored_topic import StoredTopic
from tests.support.memory_store import MemoryStore

FILE = born_name(0, "f" * 32)
BATCHES, ROWS = 6, 3
END = BATCHES * ROWS
"""Topic t has one partition of so many rows, in a chunk and a file for each batch. The first 3 are rolled."""


def chunk(partition: int = 0, **fields: int) -> StagedChunk:
    facts = {"position": 0, "length": 64, "rows": 1, "min_timestamp": 0, "max_timestamp": 0, "schema_id": 0, "crc": 0}
    return StagedChunk(partition, **(facts | fields))


def batch(*chunks: StagedChunk) -> BatchSequenced:
    return BatchSequenced(None, 1, "all", (SequencedFile(FILE, (), chunks),), 0)


def segment(start: int, end: int, name: str = "") -> SegmentRef:
    return SegmentRef(name or segment_name(0, 0, "f" * 32), (), start, end, 1, 100, 1, 0, 0, 0)


def restored(**fields: Any) -> TopicRestored:
    found = {"replicas": ("0",), "epoch_starts": ((1, 0),), "log_start": 0, "log_end": 0, "segments": (), "chunks": ()}
    partition = RestoredPartition(**(found | fields))
    return TopicRestored(1, "t", "1", TopicConfig(), (), {"0": "i"}, (partition,), (), {})


class Entries(list[Any]):
    """Events, each in an entry of its own; it is the last of them that cannot be."""


OF_A_TOPIC: dict[str, Any] = {
    "rows of a partition that there is not": batch(chunk(1)),
    "rows of partition -1": batch(chunk(-1)),
    "-1 rows": batch(chunk(rows=-1)),
    "more rows than a chunk can have": batch(chunk(rows=2**33)),
    "a chunk at byte -1": batch(chunk(position=-1)),
    "the ISR of a partition that there is not": IsrShrunk(1, ("0",)),
    "the ISR of partition -1": IsrShrunk(-1, ("0",)),
    "an ISR with a node that is no replica": IsrShrunk(0, ("0", "9")),
    "an ISR with a node twice": IsrShrunk(0, ("0", "0")),
    "a segment of a partition that there is not": SegmentsSwapped(1, segment(0, ROWS), 0),
    "a segment that ends inside a chunk": SegmentsSwapped(0, segment(3 * ROWS, 4 * ROWS + 1), 0),
    "a segment in the midst of the chunks": SegmentsSwapped(0, segment(4 * ROWS, 5 * ROWS), 0),
    "a segment that leaves out the oldest rows": SegmentsSwapped(0, segment(ROWS, 3 * ROWS), 0),
    "a segment behind the log's end": SegmentsSwapped(0, segment(END, END + 5), 0),
    "a segment whose name is a path": SegmentsSwapped(0, segment(0, 3 * ROWS, "../../../../x"), 0),
    "a staged segment of a partition that there is not": SegmentStaged(1, segment(0, ROWS)),
    "a staged segment that ends before it begins": SegmentStaged(0, segment(ROWS, 0)),
    "a leader of a partition that there is not": LeaderElected(1, "0", 1, END, ("0",)),
    "a leader that is no replica": LeaderElected(0, "9", 1, END, ("9",)),
    "a leader epoch that begins inside the log": LeaderElected(0, "0", 1, 1, ("0",)),
    "a leader epoch that begins behind the log's end": LeaderElected(0, "0", 1, END + 1, ("0",)),
    "a leader epoch that was before": Entries(
        [LeaderElected(0, "0", 5, END, ("0",)), LeaderElected(0, "0", 3, END, ("0",))]
    ),
    "replicas of a partition that there is not": ReplicasAltered(1, ("0",), (), (), {}),
    "no replicas": ReplicasAltered(0, (), (), (), {}),
    "a replica on a node whose incarnation nobody knows": ReplicasAltered(0, ("0", "9"), (), (), {}),
    "a partition on no node": PartitionsAdded(((),), {}),
    "a partition on a node whose incarnation nobody knows": PartitionsAdded((("9",),), {}),
    "the log start of a partition that there is not": LogStartMoved(1, 1, 0),
    "the log start of partition -1": LogStartMoved(-1, 1, 0),
    "a log start behind the log's end": LogStartMoved(0, END + 1, 0),
    "a log start that goes back": Entries([LogStartMoved(0, 4 * ROWS, 0), LogStartMoved(0, 0, 0)]),
    "the first offset of a partition that there is not": FirstOffsetsSet({1: 7}),
    "the first offset of partition -1": FirstOffsetsSet({-1: 7}),
    "a first offset of a partition that has rows": FirstOffsetsSet({0: END + 1}),
    "a first offset that no row can have": FirstOffsetsSet({0: 2**63}),
    "rows lost of a partition that there is not": RowsLost(1, 0, 1, ()),
    "rows lost from inside a chunk on": RowsLost(0, END - 1, END, ()),
    "rows lost from behind the log's end on": RowsLost(0, END + 1, END + 2, ()),
    "files held by a node that the topic does not know": FilesHeld("9", (), ()),
    "a file held that there is not": FilesHeld("0", (99,), ()),
    "a file held that was rolled": FilesHeld("0", (0,), ()),
    "a segment held of a partition that there is not": FilesHeld("0", (), ((1, "x"),)),
    "a damaged segment of partition -1": CopiesDamaged("0", (), ((-1, "x", 0),)),
    "more released files forgotten than there are": orphans.DeletionsConfirmed(99),
    "-1 released files forgotten": orphans.DeletionsConfirmed(-1),
    "an orphan floor behind the journal's end": orphans.OrphanFloorRaised(10**18),
    "an orphan floor that goes back": Entries([orphans.OrphanFloorRaised(3), orphans.OrphanFloorRaised(0)]),
    "a mark behind the journal's end": orphans.FloorMarked(FloorMark(10**18, 0)),
    "a generation that was before": JournalMoved(0),
    "a setting that nobody can set": topic.ConfigAltered(TopicConfig(segment_bytes=-5)),
    "a topic that starts a second time": TopicStarted("t", "1", TopicConfig(), (), {"0": "i"}, (("0",),)),
    "a topic that is restored though it is there": restored(),
    "rows of a topic that is deleted": Entries([topic.TopicDeleted(0), LogStartMoved(0, 1, 0)]),
    "an event that no version knows": ["Nonsense", 1],
    "an event that is none": 1,
}

OF_A_NEW_TOPIC: dict[str, Any] = {
    "rows of a topic that was not started": batch(chunk()),
    "partitions of a topic that was not started": PartitionsAdded((("0",),), {"0": "i"}),
    "a partition that is restored without a leader epoch": restored(epoch_starts=()),
    "a partition that is restored on no node": restored(replicas=()),
    "a partition that is restored with a gap": restored(log_end=5, segments=(segment(0, 2), segment(3, 5))),
    "a partition that is restored with a file that there is not": restored(
        log_end=5, chunks=(ChunkRef(0, 5, 7, 0, 64, 0, 0, 0, 1, 0, 0),), epoch_starts=((1, 0),)
    ),
    "a partition that is restored with rows that it lacks": restored(log_end=5),
    "a topic of which a partition is on no node": TopicStarted("t", "1", TopicConfig(), (), {}, ((),)),
    "a topic on a node whose incarnation nobody knows": TopicStarted("t", "1", TopicConfig(), (), {}, (("0",),)),
}


def record(name: str = "u", topic_id: str = "1", *on: str) -> TopicCreated:
    return TopicCreated(cluster.TopicRecord(name, topic_id, 0, TopicConfig(), (on or ("0",),), ()))


OF_THE_CLUSTER: dict[str, Any] = {
    "a cluster that starts a second time": cluster.ClusterStarted("c"),
    "a node that there is not is fenced": nodes.NodeFenced("9"),
    "a node that there is not is renewed": nodes.NodeRenewed("9", "/9", "i"),
    "a node that there is not is removed": nodes.NodeRemoved("9"),
    "the last node is removed": nodes.NodeRemoved("0"),
    "a node that there is is added": nodes.NodeAdded(nodes.Node("0", "/9", "", "i")),
    "a node whose name is a path": nodes.NodeAdded(nodes.Node("../9", "/9", "", "i")),
    "a topic that there is is created": record("t"),
    "a topic whose name is a path": record("../t"),
    "a topic whose id is a path": record("u", "../1"),
    "a topic of which a partition is twice on a node": record("u", "1", "0", "0"),
    "a topic that there is not is removed": TopicRemoved("u"),
    "the journals move to one node": journal_generations.JournalMigrationStarted(2, (), ()),
}


def outcome(store: Any, journal: Any, forged: Any, use: Callable[[], object]) -> str:
    for each in forged if isinstance(forged, Entries) else [forged]:
        name = forge(store, journal, each)
    try:
        use()
    except (CorruptObject, NewerFormat) as error:
        return type(error).__name__ if error.object == name else f"{error!r}"
    except Exception as error:  # noqa: BLE001 -- what must not be
        return f"{type(error).__name__}: {error}"
    return "folded"


def of_a_topic(forged: Any) -> str:
    stored = StoredTopic(MemoryStore("the url"))
    stored.fill(BATCHES, ROWS)
    stored.roll(3)
    return outcome(stored.store, stored.handle.journal, forged, lambda: stored.open().topic("t"))


def of_a_new_topic(forged: Any) -> str:
    log = StoredTopic(MemoryStore("the url")).log
    journal = log.journals.of_topic("u", "1")
    return outcome(log.store, journal, forged, journal.refresh)


def of_the_cluster(forged: Any) -> str:
    stored = StoredTopic(MemoryStore("the url"))
    return outcome(stored.store, stored.log.cluster, forged, stored.open)


if __name__ == "__main__":
    for cases, check in ((OF_A_TOPIC, of_a_topic), (OF_A_NEW_TOPIC, of_a_new_topic), (OF_THE_CLUSTER, of_the_cluster)):
        for what, forged in cases.items():
            print(f"{what}\t{check(forged)}")
