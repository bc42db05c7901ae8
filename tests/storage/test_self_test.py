"""The self-test, which refuses stores that would lose rows."""

import contextlib
import threading

import pytest

from pyspark_log_storage.errors import ObjectMissing, StoreRefused, StoreUnfit
from pyspark_log_storage.stores import bucket, self_test
from tests.support.memory_store import MemoryStore


def test_a_store_that_keeps_its_promises_passes_and_keeps_no_object(store):
    self_test.self_test(store, "nonce")
    assert list(store.list("")) == []


class Overwrites(MemoryStore):
    """Ignores the condition: says that it created, and has replaced."""

    def create(self, key, data):
        self.put(key, data)
        return True


class ReadsOtherBytes(MemoryStore):
    def read(self, key, start=0, length=None):
        return super().read(key, start, length).upper()


class IgnoresRanges(MemoryStore):
    def read(self, key, start=0, length=None):
        return super().read(key)


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
        return self.__dict__.get("deleted", {}).get(key) or super().read(key, start, length)


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
        if key.endswith("-race"):
            with contextlib.suppress(threading.BrokenBarrierError):
                self.__dict__.setdefault("looked", threading.Barrier(2)).wait(1)
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
    (ReadsOtherBytes, "other bytes"),
    (IgnoresRanges, "another range"),
    (ReadsFromACache, "stale bytes"),
    (ListsFromACache, "does not list a new object"),
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
def test_a_store_that_lies_is_unfit_and_keeps_no_object_of_the_test(liar, words):
    store = liar("the url")
    with pytest.raises(StoreUnfit, match=words) as caught:
        self_test.self_test(store, "nonce")
    assert caught.value.url == "the url"
    assert list(MemoryStore.list(store, "")) == [] or liar is NeverDeletes


def test_the_condition_alone_is_tried_by_few_requests():
    store = MemoryStore()
    self_test.check_condition(store, "nonce")
    assert list(store.list("")) == []
    store = Overwrites()
    with pytest.raises(StoreUnfit, match=r"overwrites an existing object.*suspend the bucket's versioning"):
        self_test.check_condition(store, "nonce")
    assert list(store.list("")) == []


def test_the_large_object_of_an_object_store_is_sent_in_parts():
    class LosesAPart(MemoryStore):
        is_object_store = True

        def size(self, key):
            return min(super().size(key), bucket.PART_BYTES)

    with pytest.raises(StoreUnfit, match="a part of a large object"):
        self_test.self_test(LosesAPart(), "nonce")


class ReadOnly(MemoryStore):
    """Refuses to write, and to delete."""

    def create(self, key, data):
        raise StoreRefused(self.url, key, "it may not be written to")

    def delete(self, key):
        raise StoreRefused(self.url, key, "nothing may be deleted in it")


def test_the_reason_is_why_the_test_ended_and_not_that_its_objects_cannot_be_deleted():
    with pytest.raises(StoreRefused, match="written to"):
        self_test.self_test(ReadOnly(), "nonce")
