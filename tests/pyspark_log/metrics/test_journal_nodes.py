"""What is measured of several journal nodes: which of them answer, vote, and are behind."""

import pytest

from pyspark_log.metrics.cluster_metrics import measure
from pyspark_log_coordinator.log import node_admin
from pyspark_log_storage.errors import StoreUnwritable
from pyspark_log_storage.stores.store_threads import finish_calls
from tests.support.coordinator.migrated_journals import cluster_of_six, move, write
from tests.support.memory_store import wipe
from tests.support.plain_log import PlainLog

CALLS_SECONDS_MAX = 60
"""How long calls to stores in memory may take on a busy machine."""


@pytest.fixture
def six():
    """Six nodes and two topics; the journals are on the first three, at /disk/a, /disk/b and /disk/c."""
    six = cluster_of_six()
    finish_calls(CALLS_SECONDS_MAX)  # an entry is written when a majority has it; the last store may come later
    return six


def measured(log):
    """Return the samples of journal nodes, by node, and of the others by name."""
    found = {}
    for family in measure(log, lambda *_: None):
        for each in family.samples:
            found.setdefault(each.name.removeprefix("pyspark_log_"), {})[tuple(each.labels.values())] = each.value
    return {name: [samples[each] for each in sorted(samples)] for name, samples in found.items()}


def of_journals(log):
    found = measured(log)
    names = ("node_up", "node_votes", "node_behind", "failures_tolerated")
    return [found.get(f"journal_{name}") for name in names]


def test_journal_nodes_that_are_well_all_vote_and_one_may_fail_and_then_no_other(six):
    log = six.log()
    assert of_journals(log) == [[1, 1, 1], [1, 1, 1], [0, 0, 0], [1]]
    log = six.log()
    six.away = {"/disk/b"}
    assert measured(log)["active_nodes"] == [5]
    assert of_journals(log) == [[1, 0, 1], [1, 0, 1], [0, 0], [0]]
    assert of_journals(PlainLog().log) == [None] * 4, "those of a cluster whose journals are on its root"


def test_a_renewed_journal_node_is_live_and_does_not_vote_until_the_journals_are_migrated(six):
    wipe(six.at["/disk/b"])
    assert of_journals(six.log()) == [[1, 0, 1], [1, 0, 1], [0, 0], [0]], "a folder without a marker may not be mounted"
    node_admin.renew(six.log(), "1")
    log = six.log()
    found = measured(log)
    assert (found["node_up"], found["active_nodes"]) == ([1] * 6, [6])
    assert of_journals(log) == [[1, 1, 1], [1, 0, 1], [0, 0], [0]]
    assert log.journals.replaced_nodes() == ["1"]
    six.away = {"/disk/b"}
    assert of_journals(six.log())[:2] == [[1, 0, 1], [1, 0, 1]], "a renewed store may be away, too"
    six.away = set()
    move(six, "0", "1", "2")
    finish_calls(CALLS_SECONDS_MAX)
    log = six.log()
    assert of_journals(log) == [[1, 1, 1], [1, 1, 1], [0, 0, 0], [1]]
    assert log.journals.replaced_nodes() == []


def test_a_journal_node_that_takes_no_entries_is_behind_in_each_journal(six, monkeypatch):
    """Such as one whose disk is full: it answers, and has its marker."""
    at = six.at["/disk/c"]

    def full(key, *_):
        raise StoreUnwritable(at.url, key, "the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(at, "create", full)
        for value in range(2, 4):
            write(six.log(), "t", value)
        finish_calls(CALLS_SECONDS_MAX)
        assert of_journals(six.log())[2] == [0, 0, 0]  # two entries may be on their way
        write(six.log(), "t", 4)
        finish_calls(CALLS_SECONDS_MAX)
        assert of_journals(six.log())[:3] == [[1, 1, 1], [1, 1, 1], [0, 0, 1]]
    write(six.log(), "t", 5)
    finish_calls(CALLS_SECONDS_MAX)
    assert of_journals(six.log())[2] == [0, 0, 0]


def test_journal_nodes_are_measured_even_if_a_majority_is_away(six):
    log = six.log()
    six.away = {"/disk/a", "/disk/b"}
    found = measured(log)
    assert found["up"] == [0]
    assert of_journals(log) == [[0, 0, 1], [0, 0, 1], None, [0]]
    six.away = set()
    assert (measured(log)["up"], of_journals(log)[3]) == ([1], [1])
