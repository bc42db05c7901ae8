"""Every machine's journal can begin with a state that is known from elsewhere, and only begin with it."""

import msgspec
import pytest

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.cluster_state import Cluster
from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT, Node
from pyspark_log_coordinator.group import machine as group
from pyspark_log_coordinator.group.state import CommittedOffset, Group
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.place import OneStore
from pyspark_log_coordinator.journal.state_machine import BeginJournal, JournalBegun
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage.errors import CorruptObject, OutcomeUnknown
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.topics import filled
from tests.support.memory_store import MemoryStore

GROUP = Group(group_id="g", offsets={"t": {0: CommittedOffset(5, -1, "", 0)}}, generation=7)
CLUSTER = Cluster(cluster_id="c", nodes={"0": Node("0", AT_THE_ROOT, "", "i")})


def journal(machine, store):
    return Journal(OneStore(store, fake_environment()), "j/", machine)


@pytest.mark.parametrize(
    ("machine", "state"), [(topic.MACHINE, filled(3)), (group.MACHINE, GROUP), (cluster.MACHINE, CLUSTER)]
)
def test_a_journal_begins_with_a_state_and_an_interrupted_call_is_finished(machine, state):
    store, command = MemoryStore(), BeginJournal(machine.encode_state(state))
    for _ in range(2):
        assert journal(machine, store).begin_at(2_000_000, command).state == state
    other = journal(machine, store)
    assert (other.refresh(), other.number) == (state, 2_000_000)
    assert machine.decide(state, command, 0) == []
    with pytest.raises(ValueError, match="twice"):
        machine.evolve(state, JournalBegun(command.state))


def test_it_does_not_begin_with_another_state_than_an_interrupted_call_has_written():
    store = MemoryStore()
    journal(group.MACHINE, store).begin_at(2_000_000, BeginJournal(group.MACHINE.encode_state(GROUP)))
    changed = msgspec.structs.replace(GROUP, generation=8)
    with pytest.raises(OutcomeUnknown, match="another process"):
        journal(group.MACHINE, store).begin_at(2_000_000, BeginJournal(group.MACHINE.encode_state(changed)))


@pytest.mark.parametrize("forged", [b"", b"\xc1", msgspec.msgpack.encode({"group_id": "g", "rewinds": -1})])
def test_a_state_that_cannot_be_is_damage(forged):
    begun = journal(group.MACHINE, MemoryStore())
    begun.entries.propose(1, begun._encode([JournalBegun(forged)]))
    with pytest.raises(CorruptObject):
        begun.refresh()
