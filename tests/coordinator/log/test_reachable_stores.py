"""Calls to several stores one after another, of which any may fail."""

import pytest

from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.log.reachable_stores import ReachableStores, reachable_nodes, reachable_stores
from pyspark_log_storage.errors import NodeAway, StoreRefused, StoreUnavailable
from tests.support.coordinator.breakable_store import BreakableStore
from tests.support.coordinator.several_nodes import Stores


def delete(_, store):
    store.delete("x")
    return store.url


def two(broken):
    stores = {name: BreakableStore(name) for name in ("a", "b")}
    stores["a"].broken = broken
    return stores


def test_a_store_that_fails_gets_no_more_calls_and_the_others_do():
    stores = two(StoreUnavailable)
    found = ReachableStores(dict(stores), is_single=False)
    assert found.each(delete) == {"b": "b"}
    stores["a"].broken = None
    assert found.each(delete) == {"b": "b"}
    assert found.failures.keys() == {"a"}


def test_the_error_of_the_only_store_is_raised():
    with pytest.raises(StoreUnavailable):
        ReachableStores({"a": two(StoreUnavailable)["a"]}, is_single=True).each(delete)


@pytest.mark.parametrize(("error", "unusable"), [(StoreUnavailable, True), (StoreRefused, False)])
def test_a_store_that_refuses_this_process_may_be_usable_by_others(error, unusable):
    found = ReachableStores(two(error), is_single=False)
    found.each(delete)
    assert found.others_are_unusable == unusable


def test_fenced_and_missing_nodes_are_left_out_but_never_the_root_of_the_journals():
    stores = Stores(BreakableStore)
    log = stores.with_nodes(4)
    log.missing_nodes = {"3": NodeAway("/disk/3", "node", "its disk is not mounted")}
    for fenced in ("0", "1"):
        node_admin.set_fenced(log, fenced, fenced=True)
    assert reachable_nodes(log).stores.keys() == {"2"}
    assert reachable_stores(log).stores.keys() == {"/cluster", "/disk/2"}
