"""Two users of a store: what both create, read and list at once, and what a store that breaks a promise does then."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pyspark_log_storage.errors import InvalidOption, ObjectMissing, StoreUnavailable, StoreUnfit
from pyspark_log_storage.stores import store_check
from pyspark_log_storage.stores.local import LocalStore
from pyspark_log_storage.stores.store_check import ROUNDS, meet, meet_oneself
from tests.storage.test_self_test import Overwrites, RemembersWhatWasMissing
from tests.support.memory_store import MemoryStore


def stores_in(folder):
    return [LocalStore(str(folder)), LocalStore(str(folder))]


def stores_with_the_same_objects(*kinds):
    first, second = (kind("/log") for kind in kinds)
    second._objects, second._lock = first._objects, first._lock
    return [first, second]


def found_by_both(stores):
    """Return what each of two users finds."""
    with ThreadPoolExecutor(2) as threads:
        return tuple(threads.map(lambda name, store: meet(store, "name", name, 5.0), "ab", stores))


def test_in_every_round_one_of_two_users_wins_and_nothing_stays(tmp_path):
    stores = stores_in(tmp_path)
    a, b = found_by_both(stores)
    assert a.rounds == b.rounds == a.won + b.won == ROUNDS
    assert list(stores[0].list("")) == []


def test_one_process_may_be_both(tmp_path):
    stores = stores_in(tmp_path)
    assert meet_oneself(stores, "name").rounds == ROUNDS
    assert list(stores[0].list("")) == []


class ListsTooFew(MemoryStore):
    """Lists no answers, although they can be read."""

    def list(self, prefix, after=""):
        return (key for key in super().list(prefix, after) if "-seen-" not in key)


class ShowsEachItsOwn(MemoryStore):
    """Lets both users create what is contested, and shows each its own bytes."""

    def create(self, key, data):
        if "contest" not in key:
            return super().create(key, data)
        self._mine = data
        return True

    def read(self, key, start=0, length=None):
        return self._mine if "contest" in key else super().read(key, start, length)


class LetsNobodyWin(MemoryStore):
    """Creates, and says that the object existed."""

    def create(self, key, data):
        return super().create(key, data) and "contest" not in key


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Overwrites, "created one object at once|different bytes"),
        (RemembersWhatWasMissing, "does not see what another has written"),
        (ListsTooFew, "does not list an object that it returns"),
        (ShowsEachItsOwn, "read different bytes in one object"),
        (LetsNobodyWin, "both or none of them did"),
    ],
)
def test_a_store_that_shows_its_users_different_things_is_refused(kind, reason):
    with pytest.raises((StoreUnfit, StoreUnavailable), match=reason):
        meet_oneself(stores_with_the_same_objects(kind, kind), "name", 0.5)


class ShowsNamesLate(MemoryStore):
    """Remembers for a time that a name did not exist."""

    def read(self, key, start=0, length=None):
        if key in self._objects or "-seen-" not in key:
            return super().read(key, start, length)
        time.sleep(0.02)
        raise ObjectMissing(self.url, key)


def test_a_store_that_shows_late_what_another_user_has_written_is_refused_after_three_rounds(monkeypatch):
    monkeypatch.setattr(store_check, "LATE_SECONDS", 0.01)
    stores = stores_with_the_same_objects(ShowsNamesLate, ShowsNamesLate)
    with pytest.raises(StoreUnfit, match=r"only 0.0 s later; mount it without caches"):
        meet_oneself(stores, "name", 0.5)


def test_a_user_that_nobody_meets_says_so():
    store = MemoryStore("/log")
    with pytest.raises(StoreUnavailable, match="nobody else has begun to check it"):
        meet(store, "name", "a", 0.0)
    assert list(store.list("")) == []


def test_a_name_is_used_once():
    store = MemoryStore("/log")
    for each in "bc":
        store.create(f"selftest/name-hello-{each}", each.encode())
    with pytest.raises(InvalidOption, match="choose another name"):
        meet(store, "name", "a", 0.0)


def test_the_reason_is_the_user_that_failed_and_not_the_one_that_waited_for_it():
    broken, well = stores_with_the_same_objects(ListsTooFew, MemoryStore)
    for name, stores in {"first": [broken, well], "second": [well, broken]}.items():
        with pytest.raises(StoreUnfit, match="does not list"):
            meet_oneself(stores, name, 0.5)
