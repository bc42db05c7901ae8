"""Adopting copies of journal nodes: all of one log, whole, and by their newest list."""

import pytest

from pyspark_log_coordinator.cluster.machine import StartJournalMigration
from pyspark_log_coordinator.journal import journal_nodes
from pyspark_log_coordinator.log import adoption, node_admin
from pyspark_log_coordinator.log.log import Log
from pyspark_log_storage.errors import CopiedLog, InvalidOption
from pyspark_log_storage.layout import JOURNAL_NODES
from pyspark_log_storage.stores.store_threads import finish_calls
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.journal_disks import URLS
from tests.support.coordinator.migrated_journals import NEW, cluster_of_six, move
from tests.support.coordinator.several_nodes import one_after_another

CALLS_SECONDS_MAX = 60
"""How long calls to stores in memory may take on a busy machine."""


@pytest.fixture
def six():
    """A cluster of six nodes, whose journals are on the first three."""
    return cluster_of_six()


def copied(disks, *urls):
    """Copy these stores, and return the addresses of the copies."""
    finish_calls(CALLS_SECONDS_MAX)
    for url in urls:
        copy = disks.open(f"/copy{url}")
        for key in disks.at[url].list(""):
            copy.put(key, disks.at[url].read(key))
    return [f"/copy{url}" for url in urls]


def adopt(disks, urls, *, keep=False):
    stores = [disks.open(url) for url in urls]
    log = Log(stores, fake_environment(), open_node=disks.open, probe=one_after_another)
    return adoption.adopt(stores, log, keep=keep)


def test_the_journal_nodes_of_two_clusters_are_not_adopted_together(six):
    six.found("/other/a", "/other/b", "/other/c")
    copies = copied(six, *URLS)
    with pytest.raises(InvalidOption, match="/other/c is not a journal node of cluster"):
        adopt(six, [*copies[:2], "/other/c"])


def test_a_journal_node_whose_address_is_not_given_is_named(six):
    copies = copied(six, *URLS)
    with pytest.raises(InvalidOption, match="'2', which was at /disk/c, is not given"):
        adopt(six, copies[:2])


def test_journal_nodes_have_no_second_address(six):
    copies = copied(six, *URLS)
    with pytest.raises(InvalidOption, match="must be the same for every process"):
        adopt(six, copies, keep=True)


def test_a_copy_that_was_made_during_a_migration_is_not_adopted(six):
    log = six.log()
    log.cluster.submit(StartJournalMigration(("3", "4", "5"), log.journals.nodes.nodes))
    log.cluster.refresh()
    log.journals.announce()
    copies = copied(six, *NEW)
    with pytest.raises(CopiedLog, match="finish the migration of the original"):
        adopt(six, copies)


def renew(disks, node_id, url):
    """Replace the disk of a node, and renew it."""
    del disks.at[url]
    node_admin.renew(disks.log(), node_id)


def test_a_journal_node_that_was_renewed_after_its_disk_was_replaced_is_adopted(six):
    renew(six, "2", URLS[2])
    copies = copied(six, *URLS)
    assert adopt(six, copies)
    assert not adopt(six, copies)
    log = six.log(*copies)
    assert log.journals.nodes.urls == tuple(copies)
    assert {each: log.cluster.state.nodes[each].url for each in "012"} == dict(zip("012", copies, strict=True))
    assert log.journals.replaced_nodes() == ["2"]
    assert sorted(move(six, "0", "1", "2", log=log).nodes.urls) == sorted(copies)
    assert six.log(*copies).journals.replaced_nodes() == []


def test_the_disk_that_a_journal_node_had_before_is_not_adopted(six):
    former = copied(six, URLS[2])
    renew(six, "2", URLS[2])
    copies = copied(six, *URLS[:2])
    with pytest.raises(InvalidOption, match="/copy/disk/c is not the present one of journal node '2'"):
        adopt(six, [*copies, *former])
    assert {journal_nodes.read(six.at[each]).urls for each in copies} == {URLS}
    assert sorted(six.log(*URLS).topics()) == ["t", "u"]


def test_of_the_lists_on_copies_the_newest_says_which_journal_nodes_there_are(six):
    move(six, "0", "3", "4")
    copies = copied(six, URLS[0], *NEW[:2])
    kept = six.at[copies[0]]  # it was away when the journals migrated, and has its first list
    for key in filter(journal_nodes.is_of_list, list(kept.list(""))):
        if key != JOURNAL_NODES:
            kept.delete(key)
    assert adopt(six, copies)
    assert not adopt(six, copies)
    assert {journal_nodes.read(six.at[each]).urls for each in copies} == {tuple(copies)}
    assert sorted(six.log(*copies).topics()) == ["t", "u"]


@pytest.mark.parametrize(
    "addresses",
    [(1, 2, 0), ("/disk/x", 2, "/disk/y"), (1, "/disk/x", 2)],
    ids=["all exchanged", "the last one moves away", "the first one moves in"],
)
def test_journal_nodes_may_move_to_addresses_that_others_of_them_had(six, addresses):
    urls = [each if isinstance(each, str) else URLS[each] for each in addresses]
    finish_calls(CALLS_SECONDS_MAX)
    stores = [six.at.pop(url) for url in URLS]
    for url, store in zip(urls, stores, strict=True):
        copy = six.open(url)
        for key in store.list(""):
            copy.put(key, store.read(key))
    assert adopt(six, urls)
    assert not adopt(six, urls)
    log = six.log(*urls)
    assert sorted(log.topics()) == ["t", "u"]
    assert log.journals.missing_nodes() == {}
    assert [log.cluster.state.nodes[each].url for each in "012"] == urls
