"""Entries that are whole and follow the one before, but are of no version or cannot be folded: an error names them."""

import msgspec
import pytest

from pyspark_log_coordinator.cluster import nodes
from pyspark_log_coordinator.journal import journal_entry
from pyspark_log_coordinator.journal.journal_entry import Entry
from pyspark_log_coordinator.journal.state_machine import JournalEnded
from pyspark_log_coordinator.model.partition import SegmentRef
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.replication import reassignment
from pyspark_log_coordinator.replication.election import LeaderElected
from pyspark_log_coordinator.segments import retention
from pyspark_log_coordinator.segments.swap import SegmentsSwapped
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage.errors import CorruptObject, NewerFormat
from tests.support.coordinator.stored_topic import StoredTopic
from tests.support.memory_store import MemoryStore

SEGMENT = SegmentRef("../../../../x", 0, 3, 1, 100, 0, 0, None, (), 1, 0)
IMPOSSIBLE = {
    "a partition that there is not": LeaderElected(1, "0", 1, 6, ("0",)),
    "a log that starts after its end": retention.LogStartMoved(0, 99, 0),
    "a segment whose name is a path": SegmentsSwapped(0, SEGMENT, 0),
    "a topic that starts a second time": topic.TopicStarted("t", "1", TopicConfig(), (), {"0": "i"}, (("0",),)),
    "an event that is none": 1,
}
"""Entries of topic t: what `evolve` cannot fold, what the check of a state refuses, and what cannot be decoded."""


def forge(store, journal, *events):
    """Write the next entry of a journal on one store; return its name. `journal` does not know of it yet."""
    journal.refresh()
    entry = Entry("f" * 32, 0, journal.last_hash, msgspec.Raw(msgspec.msgpack.encode(events)))
    key = journal_entry.place(journal.folder, journal.number + 1)
    store.put(key, journal_entry.encode(entry))
    return journal.entries.name(journal.number + 1)


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_an_impossible_entry_of_a_topic_is_an_error_that_names_it(what):
    stored = StoredTopic(MemoryStore("the url"))
    stored.fill(2, 3)
    name = forge(stored.store, stored.handle.journal, IMPOSSIBLE[what])
    with pytest.raises(NewerFormat if IMPOSSIBLE[what] == 1 else CorruptObject) as raised:
        stored.open().topic("t")
    assert raised.value.object == name


def test_an_impossible_entry_of_the_cluster_is_an_error_that_names_it(stored):
    name = forge(stored.store, stored.log.cluster, nodes.NodeRemoved("9"))
    with pytest.raises(CorruptObject) as raised:
        stored.open()
    assert raised.value.object == name


@pytest.fixture
def stored() -> StoredTopic:
    return StoredTopic(MemoryStore("the url"), partitions=2)


@pytest.mark.timeout(20)  # it would never end
@pytest.mark.parametrize("generation", [2, 7])
def test_a_topic_on_one_store_that_moved_to_another_is_an_error(stored, generation):
    name = forge(stored.store, stored.handle.journal, JournalEnded(generation, ()))
    with pytest.raises(CorruptObject, match=f"generation {generation}") as raised:
        stored.open().topic("t")
    assert raised.value.object == name


def test_a_replica_on_a_node_that_the_cluster_does_not_know_is_an_error(stored):
    forge(stored.store, stored.handle.journal, reassignment.PartitionsAdded((("9",),), {"9": "i"}))
    with pytest.raises(CorruptObject, match="it has replicas on 9, and the cluster has no such node"):
        stored.open().topic("t")
