"""Entries that are whole, follow the one before, and cannot be: an error that names them, and nothing else.

They are errors too in a process that was started with `python -O`, which leaves assertions out.
"""

import pytest

from pyspark_log_coordinator import generations, orphans, topic, upkeep
from pyspark_log_coordinator.journal_nodes import JournalNode
from pyspark_log_coordinator.topic_state import FloorMark
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.memory import MemoryStore
from tests.coordinator.forged import forge, within
from tests.coordinator.stored_topic import StoredTopic

PATIENCE_SECONDS = 20


@pytest.fixture
def stored() -> StoredTopic:
    return StoredTopic(MemoryStore("the url"), partitions=2)


def test_a_topic_on_one_store_that_moved_to_another_is_an_error(stored):
    name = forge(stored.store, stored.handle.journal, generations.JournalMoved(2))
    with within(PATIENCE_SECONDS), pytest.raises(CorruptObject, match="generation 2") as raised:
        stored.open().topic("t")
    assert raised.value.object == name


def test_a_topic_on_one_store_that_moved_far_away_is_an_error(stored):
    forge(stored.store, stored.handle.journal, generations.JournalMoved(7))
    with within(PATIENCE_SECONDS), pytest.raises(CorruptObject, match="generation 7"):
        stored.handle.refresh()


def test_a_cluster_on_one_store_that_moved_to_others_is_an_error(stored):
    nodes = tuple(JournalNode(name, f"/{name}", name) for name in "abc")
    name = forge(stored.store, stored.log.cluster, generations.JournalsMoved(2, nodes, nodes))
    with within(PATIENCE_SECONDS), pytest.raises(CorruptObject, match="generation 2") as raised:
        stored.open()
    assert raised.value.object == name


@pytest.mark.parametrize(
    "event",
    [orphans.OrphanFloor(10**18), orphans.FloorMarked(FloorMark(10**18, 0))],
    ids=lambda each: each.__class__.__name__,
)
def test_an_orphan_floor_behind_the_journals_end_is_an_error(stored, event):
    stored.fill(70)
    name = forge(stored.store, stored.handle.journal, event)
    with within(PATIENCE_SECONDS), pytest.raises(CorruptObject) as raised:
        upkeep.maintain(stored.log, stored.handle, stored.log.environment.nonce)
    assert raised.value.object == name


def test_maintenance_ends_though_what_it_makes_never_counts(stored, monkeypatch):
    stored.fill(70)
    monkeypatch.setattr(topic.rolling, "decide", lambda *_: [])
    with within(PATIENCE_SECONDS):
        done = upkeep.maintain(stored.log, stored.handle, stored.log.environment.nonce)
    assert done == {"segments": 0, "bytes": 0}
