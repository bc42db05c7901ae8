"""A rebuild is refused, or needs --journals-lost, if the journals may go on where they have migrated to."""

import pytest

from pyspark_log_coordinator.cluster.journal_generations import StartJournalMigration
from pyspark_log_coordinator.rebuild.survey import survey
from pyspark_log_storage.errors import InvalidOption
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.migrated_journals import cluster_of_six, move


@pytest.fixture
def six():
    """A cluster of six nodes, whose journals are on a, b and c."""
    return cluster_of_six()


def look(six, *nodes):
    return survey([six.open(f"/disk/{node}") for node in nodes], fake_environment(), open_node=six.open)


def test_the_newest_journal_nodes_count_though_a_node_that_was_away_names_former_ones(six):
    six.away = {"/disk/a"}
    move(six, "2", "3", "4", log=six.log("/disk/b", "/disk/c"))
    six.away = {"/disk/c", "/disk/3"}
    assert "/disk/c, /disk/3" in look(six, "a", "b", "4").journals_may_live


def test_journals_may_live_where_a_readable_journal_says_it_has_migrated_to(six):
    """The process that began the migration was killed before it told the former journal nodes."""
    log = six.log()
    log.cluster.submit(StartJournalMigration(("2", "3", "4"), log.journals.nodes.nodes))
    six.log().create_topic("later", 1)
    six.away = {"/disk/c", "/disk/3", "/disk/4"}
    found = look(six, "a", "b")
    assert "/disk/c, /disk/3, /disk/4" in found.journals_may_live
    assert found.generation == 3
    six.away = {"/disk/c"}
    with pytest.raises(InvalidOption, match="can be read"):
        look(six, "a", "b")


def test_new_journals_begin_on_the_nodes_to_which_a_readable_journal_says_they_have_migrated(six):
    log = six.log()
    log.cluster.submit(StartJournalMigration(("2", "3", "4"), log.journals.nodes.nodes))
    six.log().create_topic("later", 1)
    for node in ("c", "3", "4"):
        store = six.open(f"/disk/{node}")
        for key in list(store.list("cluster/entries.2/")):
            store.put(key, b"damaged")
        for key in list(store.list("cluster/snapshots/")):
            store.put(key, b"damaged")
    found = look(six, "a", "b", "c", "3", "4")
    assert [store.url for store in found.journal_stores] == ["/disk/c", "/disk/3", "/disk/4"]
