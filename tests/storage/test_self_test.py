"""The self-test, which refuses stores that would lose rows."""

import contextlib
import time

import pytest

from pyspark_log_storage.errors import ObjectMissing, StoreRefused, StoreUnfit
from pyspark_log_storage.stores.self_test import self_test
from tests.support.memory_store import MemoryStore


def test_a_store_that_keeps_its_promises_passes(store):
    self_test(store, "nonce")


def test_the_self_test_leaves_no_object(store):
    self_test(store, "nonce")
    assert list(store.list("")) == []


class Overwrites(MemoryStore):
    """Ignores the condition: says that it created, and has replaced."""

    def create(self, key, data):
        self.put(key, data)
        return True


class OverwritesInSecret(MemoryStore):
    """Says that the key is occupied, and has replaced all the same."""

    def create(self, key, data):
        free = super().create(key, data)
        self.put(key, data)
        return free


class NeverCreates(MemoryStore):
    def create(self, key, data):
        return False


class ReadsOtherBytes(MemoryStore):
    def read(self, key, start=0, length=None):
        return super().read(key, start, length).upper()


class IgnoresRanges(MemoryStore):
    def read(self, key, start=0, length=None):
        return super().read(key)


class IgnoresStarts(MemoryStore):
    def read(self, key, start=0, length=None):
        return super().read(key, 0, length)


class ReadsFromACache(MemoryStore):
    """Answers with what it read first."""

    def read(self, key, start=0, length=None):
        cache = self.__dict__.setdefault("cache", {})
        data = cache.setdefault(key, super().read(key))
        return data[start:] if length is None else data[start : start + length]


class ListsFromACache(MemoryStore):
    """Lists what was there when somebody listed first."""

    def list(self, prefix, after=""):
        cache = self.__dict__.setdefault("cache", {})
        yield from cache.setdefault(prefix, list(super().list(prefix, after)))


class ListsNothing(MemoryStore):
    def list(self, prefix, after=""):
        yield from ()


class ListsInAnyOrder(MemoryStore):
    def list(self, prefix, after=""):
        yield from reversed(list(super().list(prefix, after)))


class ListsFromTheBeginning(MemoryStore):
    """Ignores `after`."""

    def list(self, prefix, after=""):
        yield from super().list(prefix)


class NeverDeletes(MemoryStore):
    def delete(self, key):
        pass


class ReadsWhatWasDeleted(MemoryStore):
    def delete(self, key):
        self.__dict__.setdefault("deleted", {})[key] = self._objects.get(key, b"")
        super().delete(key)

    def read(self, key, start=0, length=None):
        deleted = self.__dict__.get("deleted", {})
        return deleted[key] if key in deleted else super().read(key, start, length)


class RemembersWhatWasMissing(MemoryStore):
    """Answers for some time that an object is missing, because it was when somebody asked first."""

    def read(self, key, start=0, length=None):
        missing = self.__dict__.setdefault("missing", set())
        if key in missing:
            raise ObjectMissing(self.url, key)
        try:
            return super().read(key, start, length)
        except ObjectMissing:
            missing.add(key)
            raise


class LooksBeforeItCreates(MemoryStore):
    """Lets others create the object between its look and its write."""

    def create(self, key, data):
        if self.exists(key):
            return False
        time.sleep(0.005)
        self.put(key, data)
        return True


class StoresAPart(MemoryStore):
    """Stores at most 64 KiB of an object."""

    def create(self, key, data):
        return super().create(key, data[:65536])


class SaysAnotherSize(MemoryStore):
    def size(self, key):
        return super().size(key) + 1


class ShowsUnfinishedObjects(MemoryStore):
    def open_write(self, key, *, durable=True, replace=False):
        self.put(key, b"")
        return super().open_write(key, durable=durable, replace=True)


LIARS = [
    (Overwrites, "overwrites"),
    (OverwritesInSecret, "other bytes"),
    (NeverCreates, "refuses to create"),
    (ReadsOtherBytes, "other bytes"),
    (IgnoresRanges, "another range"),
    (IgnoresStarts, "another range"),
    (ReadsFromACache, "stale bytes"),
    (ListsFromACache, "does not list a new object"),
    (ListsNothing, "does not list a new object"),
    (ListsInAnyOrder, "not in ascending order"),
    (ListsFromTheBeginning, "the objects after a key"),
    (NeverDeletes, "lists a deleted object"),
    (ReadsWhatWasDeleted, "returns a deleted object"),
    (RemembersWhatWasMissing, "does not find a new object"),
    (LooksBeforeItCreates, "of 8 that create an object at once [2-8] do"),
    (StoresAPart, "a part of a large object"),
    (SaysAnotherSize, "another size"),
    (ShowsUnfinishedObjects, "before it is complete"),
]


@pytest.mark.parametrize(("liar", "words"), LIARS, ids=[liar.__name__ for liar, _ in LIARS])
def test_a_store_that_lies_is_unfit(liar, words):
    with pytest.raises(StoreUnfit, match=words) as caught:
        self_test(liar("the url"), "nonce")
    assert caught.value.url == "the url"


@pytest.mark.parametrize("liar", [liar for liar, _ in LIARS if liar not in {NeverDeletes, NeverCreates}])
def test_a_store_that_failed_keeps_no_object_of_the_test(liar):
    store = liar()
    with contextlib.suppress(StoreUnfit):
        self_test(store, "nonce")
    assert list(MemoryStore.list(store, "")) == []


class ReadOnly(MemoryStore):
    """Refuses to write, and to delete."""

    def create(self, key, data):
        raise StoreRefused(self.url, key, "it may not be written to")

    def delete(self, key):
        raise StoreRefused(self.url, key, "nothing may be deleted in it")


def test_the_reason_is_why_the_test_ended_and_not_that_its_objects_cannot_be_deleted():
    with pytest.raises(StoreRefused, match="written to"):
        self_test(ReadOnly(), "nonce")
