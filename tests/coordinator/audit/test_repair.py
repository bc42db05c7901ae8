"""Repair on one node: only indexes are rebuilt."""

import pytest

from pyspark_log_coordinator.audit.repair import repair
from pyspark_log_coordinator.log import topic_description
from pyspark_log_coordinator.maintenance import checkpoint_files
from pyspark_log_coordinator.topic.machine import DeleteRecords, ElectLeaders, Holder, Suspect, Suspicion
from pyspark_log_storage.objects import checkpoints
from tests.support.coordinator.audited_topic import audit
from tests.support.coordinator.topics import after, commit, file, incarnation, started
from tests.support.memory_store import MemoryStore

# Repair


CHECKPOINTS = ["0/leader-epoch-checkpoint", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"]


@pytest.mark.parametrize("name", [*CHECKPOINTS, "description"])
@pytest.mark.parametrize("how", ["cut", "a line fewer", "of another topic"])
def test_a_damaged_checkpoint_is_named_and_written_again(topic, name, how):
    checkpoint_files.write_on_nodes(topic.handle)
    key = topic.folder + name
    whole = topic.store.read(key)
    damaged = whole[:-1] if how == "cut" else b"".join(whole.splitlines(keepends=True)[:-1])
    if how == "of another topic":
        damaged = b"0\n1\nother 0 0\n"
    topic.store.put(key, damaged)
    [found] = audit(topic).findings
    assert (found.what, found.repairable) == (f"checkpoint {key}", True)
    assert repair(topic.handle) == [key]
    assert topic.store.read(key) == whole
    assert audit(topic).sound


def test_the_whole_description_of_another_topic_is_damage(topic):
    checkpoint_files.write_on_nodes(topic.handle)
    key = topic.folder + topic_description.NAME
    whole = topic.store.read(key)
    other = topic.log.create_topic("other", 1)
    topic.store.put(key, topic_description.encode(other.description()))
    [found] = audit(topic).findings
    assert "it describes topic 'other'" in found.detail
    assert repair(topic.handle) == [key]
    assert topic_description.decode(topic.store.read(key), "x").topic.name == "t"
    assert len(topic.store.read(key)) == len(whole)
    assert audit(topic).sound


@pytest.mark.parametrize(
    ("starts", "damaged"),
    [
        ([(0, 0), (1, 2)], False),
        ([(1, 3)], False),
        ([(0, 0)], False),
        ([(0, 1), (1, 3)], True),
        ([(1, 0), (2, 9)], False),
    ],
)
def test_leader_epochs_that_begin_elsewhere_are_damage_unless_the_log_start_has_moved(starts, damaged):
    state = after(started(replicas=("A", "B")), commit(None, file({0: 2}, on=("A", "B"))))
    state = after(state, Suspect("A", incarnation("A")))
    gone = Suspicion("A", state.suspects["A"])
    state = after(state, ElectLeaders((Holder("B", incarnation("B")),), (gone,)))
    assert state.partitions[0].epoch_starts == ((0, 0), (1, 2))
    store = MemoryStore()
    store.put("t/0/leader-epoch-checkpoint", checkpoints.encode_epochs(starts))
    assert bool(list(checkpoint_files.damaged(store, "t/", state, "B"))) == damaged
    state = after(after(state, commit(None, file({0: 2}, on=("B",)))), DeleteRecords(0, 3))
    assert state.partitions[0].epoch_starts == ((1, 3),)
    assert list(checkpoint_files.damaged(store, "t/", state, "B")) == []


def test_a_checkpoint_of_an_older_state_is_no_fault(topic):
    checkpoint_files.write_on_nodes(topic.handle)
    topic.append({0: [b"later"]})
    assert audit(topic).sound


def test_repair_of_a_sound_topic_changes_nothing(topic):
    before = {key: topic.store.read(key) for key in topic.store.list("")}
    assert repair(topic.handle) == []
    assert {key: topic.store.read(key) for key in topic.store.list("")} == before
