"""Impossible entries, and what came of each: here or `python -O -m tests.support.coordinator.forged_worker`.

Prints a line for each: what it is, and the error that it was, or "folded". Its stores are in memory, wherever those of
the tests are: nobody runs it again if one of its calls fails.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from pyspark_log_coordinator.cluster import journal_generations, nodes
from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.machine import TopicCreated
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.journal.state_machine import JournalMoved
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.model.partition import SegmentRef
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.replication.election import LeaderElected
from pyspark_log_coordinator.replication.file_holders import FilesHeld
from pyspark_log_coordinator.replication.isr_shrink import IsrShrunk
from pyspark_log_coordinator.replication.reassignment import ReplicasAltered
from pyspark_log_coordinator.replication.row_loss import RowsLost
from pyspark_log_coordinator.segments import orphans
from pyspark_log_coordinator.segments.first_offsets import FirstOffsetsSet
from pyspark_log_coordinator.segments.retention import LogStartMoved
from pyspark_log_coordinator.segments.swap import SegmentsSwapped
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
    "more rows than a chunk can have": batch(chunk(rows=2**33)),
    "an ISR with a node that is no replica": IsrShrunk(0, ("0", "9")),
    "a segment that ends inside a chunk": SegmentsSwapped(0, segment(3 * ROWS, 4 * ROWS + 1), 0),
    "a segment whose name is a path": SegmentsSwapped(0, segment(0, 3 * ROWS, "../../../../x"), 0),
    "a leader of a partition that there is not": LeaderElected(1, "0", 1, END, ("0",)),
    "a leader that is no replica": LeaderElected(0, "9", 1, END, ("9",)),
    "a leader epoch that begins inside the log": LeaderElected(0, "0", 1, 1, ("0",)),
    "a leader epoch that was before": Entries(
        [LeaderElected(0, "0", 5, END, ("0",)), LeaderElected(0, "0", 3, END, ("0",))]
    ),
    "no replicas": ReplicasAltered(0, (), (), (), {}),
    "a log start behind the log's end": LogStartMoved(0, END + 1, 0),
    "a first offset of a partition that has rows": FirstOffsetsSet({0: END + 1}),
    "rows lost from inside a chunk on": RowsLost(0, END - 1, END, ()),
    "files held by a node that the topic does not know": FilesHeld("9", (), ()),
    "a file held that there is not": FilesHeld("0", (99,), ()),
    "more released files forgotten than there are": orphans.DeletionsConfirmed(99),
    "a generation that was before": JournalMoved(0),
    "a setting that nobody can set": topic.ConfigAltered(TopicConfig(segment_bytes=-5)),
    "a topic that starts a second time": TopicStarted("t", "1", TopicConfig(), (), {"0": "i"}, (("0",),)),
    "rows of a topic that is deleted": Entries([topic.TopicDeleted(0), LogStartMoved(0, 1, 0)]),
}

OF_NO_VERSION: dict[str, Any] = {"an event that no version knows": ["Nonsense", 1], "an event that is none": 1}

OF_A_NEW_TOPIC: dict[str, Any] = {
    "rows of a topic that was not started": batch(chunk()),
    "a partition that is restored with a gap": restored(log_end=5, segments=(segment(0, 2), segment(3, 5))),
    "a topic on a node whose incarnation nobody knows": TopicStarted("t", "1", TopicConfig(), (), {}, (("0",),)),
}


def record(name: str = "u", topic_id: str = "1", *on: str) -> TopicCreated:
    return TopicCreated(cluster.TopicRecord(name, topic_id, 0, TopicConfig(), (on or ("0",),), ()))


OF_THE_CLUSTER: dict[str, Any] = {
    "a cluster that starts a second time": cluster.ClusterStarted("c"),
    "a node that there is not is fenced": nodes.NodeFenced("9"),
    "the last node is removed": nodes.NodeRemoved("0"),
    "a node that there is is added": nodes.NodeAdded(nodes.Node("0", "/9", "", "i")),
    "a topic that there is is created": record("t"),
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


@cache
def stored() -> dict[str, bytes]:
    """Return the objects of a log with topic t."""
    topic_t = StoredTopic(MemoryStore("the url"))
    topic_t.fill(BATCHES, ROWS)
    topic_t.roll(3)
    return {key: topic_t.store.read(key) for key in topic_t.store.list("")}


def opened(store: MemoryStore) -> Log:
    log = Log(store, real_environment())
    log.open(create=False)
    return log


def of_a_log(what: str, forged: Any) -> str:
    """Return what came of an entry of topic t, of a topic that was not started, or of the cluster."""
    store = MemoryStore("the url")
    for key, data in stored().items():
        store.put(key, data)
    log = opened(store)
    if what in OF_THE_CLUSTER:
        return outcome(store, log.cluster, forged, lambda: opened(store))
    if what in OF_A_NEW_TOPIC:
        journal = log.journals.of_topic("u", "1")
        return outcome(store, journal, forged, journal.refresh)
    return outcome(store, log.topic("t").journal, forged, lambda: opened(store).topic("t"))


CASES = OF_A_TOPIC | OF_NO_VERSION | OF_A_NEW_TOPIC | OF_THE_CLUSTER


def outcomes() -> Iterator[tuple[str, str]]:
    """Yield what each impossible entry is, and what came of it."""
    for what, forged in CASES.items():
        yield what, of_a_log(what, forged)


if __name__ == "__main__":
    for each in outcomes():
        print("\t".join(each))
