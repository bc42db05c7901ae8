"""Only a suspicion that has stood for a full period, on the clock of one failure detector, counts."""

import pytest

from pyspark_log_coordinator.replication.file_holders import HoldFiles
from pyspark_log_coordinator.replication.node_changes import AlterReplicaNode
from pyspark_log_coordinator.replication.suspicion import CancelSuspicion, Suspect, confirmed, observe
from tests.support.coordinator.topics import after, commit, decide, file, incarnation, started

PERIOD = 100


def suspected():
    return after(started(replicas=("A", "B")), Suspect("A", incarnation("A")))


@pytest.mark.parametrize(
    "command",
    [
        commit(None, file({0: 1}, on=("A", "B"))),
        HoldFiles("A", incarnation("A")),
        AlterReplicaNode("A", "another"),
        CancelSuspicion("A", incarnation("A"), 1),
    ],
    ids=["a batch", "a report", "another incarnation", "a cancellation"],
)
def test_an_entry_that_shows_that_the_node_is_alive_cancels_the_suspicion(command):
    assert after(suspected(), command).suspects == {}


@pytest.mark.parametrize(
    "late",
    [
        CancelSuspicion("A", incarnation("A"), 2),
        CancelSuspicion("A", "another", 1),
        CancelSuspicion("B", incarnation("B"), 1),
        CancelSuspicion("Z", incarnation("Z"), 1),
    ],
    ids=["of another suspicion", "of another incarnation", "not suspected", "unknown"],
)
def test_a_cancellation_that_does_not_mean_the_suspicion_that_stands_changes_nothing(late):
    assert decide(suspected(), late) == []


def test_an_observer_counts_from_when_it_saw_the_suspicion_itself():
    standing = observe({}, suspected(), 1_000)
    standing = observe(standing, suspected(), 1_050)
    assert confirmed(standing, 1_000 + PERIOD - 1, PERIOD) == {}
    assert confirmed(standing, 1_000 + PERIOD, PERIOD) == {"A": 1}
