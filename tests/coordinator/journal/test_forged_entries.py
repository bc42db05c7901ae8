"""Entries that are whole, follow the one before, and cannot be: an error that names them, and nothing else.

They are errors too in a process that was started with `python -O`, which leaves assertions out.
"""

import subprocess
import sys

import pytest

from pyspark_log_coordinator.cluster import journal_generations
from pyspark_log_coordinator.journal.journal_nodes import JournalNode
from pyspark_log_coordinator.journal.state_machine import JournalMoved
from pyspark_log_coordinator.maintenance import topic_roll
from pyspark_log_coordinator.model.topic_state import FloorMark
from pyspark_log_coordinator.replication import reassignment
from pyspark_log_coordinator.segments import orphans, retention, swap
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage.errors import CorruptObject
from tests.support.coordinator.forged import forge, within
from tests.support.coordinator.forged_worker import CASES, OF_NO_VERSION, outcomes
from tests.support.coordinator.stored_topic import StoredTopic
from tests.support.elsewhere import PlainStore

EXPECTED = dict.fromkeys(CASES, "CorruptObject") | dict.fromkeys(OF_NO_VERSION, "NewerFormat")


def test_an_impossible_entry_is_an_error_that_names_it():
    assert dict(outcomes()) == EXPECTED


@pytest.mark.deep
def test_it_is_one_in_a_process_without_assertions_too():
    command = [sys.executable, "-O", "-m", "tests.support.coordinator.forged_worker"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert dict(line.split("\t", 1) for line in printed.splitlines()) == EXPECTED


@pytest.fixture
def stored() -> StoredTopic:
    return StoredTopic(PlainStore("the url"), partitions=2)


@pytest.mark.parametrize("generation", [2, 7])
def test_a_topic_on_one_store_that_moved_to_another_is_an_error(stored, generation):
    name = forge(stored.store, stored.handle.journal, JournalMoved(generation))
    with within(20), pytest.raises(CorruptObject, match=f"generation {generation}") as raised:
        stored.open().topic("t")
    assert raised.value.object == name


def test_a_cluster_on_one_store_that_moved_to_others_is_an_error(stored):
    nodes = tuple(JournalNode(name, f"/{name}", name) for name in "abc")
    name = forge(stored.store, stored.log.cluster, journal_generations.JournalMigrationStarted(2, nodes, nodes))
    with within(20), pytest.raises(CorruptObject, match="generation 2") as raised:
        stored.open()
    assert raised.value.object == name


@pytest.mark.parametrize("event", [orphans.OrphanFloorRaised(10**18), orphans.FloorMarked(FloorMark(10**18, 0))])
def test_an_orphan_floor_behind_the_journals_end_is_an_error(stored, event):
    stored.fill(70)
    name = forge(stored.store, stored.handle.journal, event)
    with within(20), pytest.raises(CorruptObject) as raised:
        topic_roll.roll_and_merge(stored.handle)
    assert raised.value.object == name


def test_a_replica_on_a_node_that_the_cluster_does_not_know_is_an_error(stored):
    forge(stored.store, stored.handle.journal, reassignment.PartitionsAdded((("9",),), {"9": "i"}))
    with pytest.raises(CorruptObject, match="it has replicas on 9, and the cluster has no such node"):
        stored.open().topic("t")


def test_what_a_command_decides_is_not_written_if_it_cannot_be_folded(stored, monkeypatch):
    monkeypatch.setattr(topic.retention, "decide_retention", lambda *_: [retention.LogStartMoved(7, 1, 0)])
    before = stored.handle.journal.number
    with pytest.raises(IndexError):
        stored.handle.submit(retention.ApplyRetention())
    assert stored.open().topic("t").journal.number == before


def test_maintenance_ends_though_what_it_makes_never_counts(stored, monkeypatch):
    stored.fill(70)
    monkeypatch.setattr(swap, "decide", lambda *_: [])
    with within(20):
        done = topic_roll.roll_and_merge(stored.handle)
    assert done == {"segments": 0, "bytes": 0}
