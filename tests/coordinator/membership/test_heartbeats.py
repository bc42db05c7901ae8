"""Heartbeats: objects that members overwrite."""

import pytest

from pyspark_log_coordinator.membership.heartbeats import Heartbeats
from pyspark_log_storage import layout
from pyspark_log_storage.errors import StoreUnavailable
from tests.support.coordinator.breakable_store import BreakableStore
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.journal_disks import Disks
from tests.support.coordinator.several_nodes import Stores


@pytest.fixture
def stores():
    return Stores(BreakableStore)


def of(log):
    return Heartbeats(log.group("g", create=True), fake_environment())


def names(store, log):
    folder = layout.heartbeats(log.group("g").journal_id)
    return [key.removeprefix(folder) for key in store.list(folder)]


def test_the_newest_heartbeats_of_all_members_are_found_with_one_listing(stores):
    log = stores.log()
    mine, others = of(log), of(stores.log())
    for _ in range(3):
        mine.beat("a.b-1")
    others.beat("c")
    assert others.listen() == mine.listen() == {"a.b-1": 3, "c": 1}
    assert names(stores.open("/cluster"), log) == ["a.b-1.3", "c.1"]


def test_a_process_that_is_killed_between_two_heartbeats_leaves_the_older_one_too(stores):
    log = stores.log()
    mine = of(log)
    for _ in range(9):
        mine.beat("a")
    stores.open("/cluster").create(layout.heartbeats(log.group("g").journal_id) + layout.heartbeat("a", 10), b"")
    assert mine.listen() == {"a": 10}


def test_what_members_that_are_gone_have_left_is_deleted_and_foreign_files_stay(stores):
    log = stores.log()
    mine = of(log)
    for name in ("a", "gone", "lost"):
        mine.beat(name)
    folder = layout.heartbeats(log.group("g").journal_id)
    for foreign in ("README", "a.0", "a.x", "a.1/b.1"):
        stores.open("/cluster").create(folder + foreign, b"")
    assert mine.delete_left_over({"a"}) == 2
    assert names(stores.open("/cluster"), log) == ["README", "a.0", "a.1", "a.1/b.1", "a.x"]


def test_a_store_that_does_not_answer_is_no_error_and_nobody_is_found_dead_by_it(stores):
    log = stores.log()
    mine = of(log)
    for _ in range(9):
        mine.beat("a")
    stores.open("/cluster").broken = StoreUnavailable
    mine.beat("a")
    mine.end("a")
    assert mine.listen() is None


def test_with_several_journal_nodes_one_may_be_lost():
    disks = Disks()
    disks.found()
    log = disks.log(create=True)
    mine, other = of(log), of(disks.log())
    disks.away.add("/disk/a")
    mine.beat("a")
    disks.away = {"/disk/b"}
    assert other.listen() == {"a": 1}
    disks.away = {"/disk/b", "/disk/c"}
    assert other.listen() is None
