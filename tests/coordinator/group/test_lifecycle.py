"""The life of a group, its configuration, and the migration of its journal."""

import pytest

from pyspark_log_coordinator.group import machine
from pyspark_log_coordinator.group.config import GroupConfig
from pyspark_log_coordinator.group.machine import (
    AlterGroupConfig,
    DeleteGroup,
    GroupStarted,
    StartGroup,
)
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_coordinator.journal.state_machine import EndJournal, JournalEnded
from pyspark_log_storage.errors import InvalidOption
from tests.support.coordinator.groups import NOW, after, join, refusal, stable, started


def test_a_group_starts_empty_and_once():
    assert started().state is GroupState.EMPTY
    assert machine.decide(started(), StartGroup("g"), NOW) == []
    with pytest.raises(ValueError, match="twice"):
        machine.evolve(started(), GroupStarted("g", GroupConfig()))


def test_a_group_that_starts_again_uses_no_number_twice():
    before = after(stable(join("A")), machine.LeaveGroup("A"), DeleteGroup())
    again = after(before, StartGroup("g", GroupConfig(offset_metadata_max_bytes=1)))
    assert (again.state, again.deleted_ms, again.config.offset_metadata_max_bytes) == (GroupState.EMPTY, None, 1)
    assert (again.generation, again.actions, again.barriers) == (before.generation, before.actions, before.barriers)
    assert before.generation == 2


def test_settings_are_changed_by_kafkas_names():
    group = after(started(), AlterGroupConfig({"group.initial.rebalance.delay.ms": "7"}))
    assert group.config.initial_rebalance_delay_ms == 7
    assert machine.decide(group, AlterGroupConfig({"group.initial.rebalance.delay.ms": "7"}), NOW) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "1"),
        ("group.initial.rebalance.delay.ms", "-1"),
        ("group.min.session.timeout.ms", "0"),
        ("offset.metadata.max.bytes", "2147483648"),
        ("offset.metadata.max.bytes", "many"),
        ("group.min.session.timeout.ms", "1800001"),
    ],
)
def test_wrong_settings_are_refused(name, value):
    assert refusal(InvalidOption, started(), AlterGroupConfig({name: value})).option == name


def test_a_journal_ends_once_in_each_generation_and_also_that_of_a_dead_group():
    group = after(started(), EndJournal(JournalEnded(3, ())))
    assert machine.MACHINE.generation(group) == 3
    assert machine.decide(group, EndJournal(JournalEnded(3, ())), NOW) == []
    assert after(group, DeleteGroup(), EndJournal(JournalEnded(4, ()))).journal_generation == 4
