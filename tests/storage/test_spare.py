"""Spares: an object of a journal that is lost or damaged is read from its spare, and made again from it."""

import pytest

from pyspark_log_storage.errors import CorruptObject, ObjectMissing, StoreError, StoreUnwritable
from pyspark_log_storage.objects import spare
from pyspark_log_storage.objects.envelope import is_whole, seal
from pyspark_log_storage.stores.local import LocalStore
from tests.support.memory_store import MemoryStore

JOURNAL = "topics/t/1/journal/"
OBJECT = f"{JOURNAL}entries/00000000000000000001"
SPARE = f"{JOURNAL}spares/entries/00000000000000000001"
WHOLE = seal(b"PLJE", 1, b"an entry")
OTHER = seal(b"PLJE", 1, b"something else")


@pytest.fixture
def store():
    made = MemoryStore()
    made.create(OBJECT, WHOLE)
    spare.add(made, JOURNAL, OBJECT, WHOLE)
    return made


def read(store):
    return spare.read(store, JOURNAL, OBJECT)


def faults(store, *, contents=True):
    return list(spare.faults(store, JOURNAL, f"{JOURNAL}entries/", contents=contents))


def test_an_object_that_is_lost_or_damaged_is_read_from_its_spare(store):
    assert list(store.list("")) == [OBJECT, SPARE]
    store.put(SPARE, OTHER)
    assert read(store) == WHOLE, "the object counts before its spare"
    store.put(SPARE, WHOLE)
    store.delete(OBJECT)
    assert (read(store), decoded(store)) == (WHOLE, b"an entry")
    for place in range(len(WHOLE)):
        flipped = bytearray(WHOLE)
        flipped[place] ^= 1
        for damaged in (bytes(flipped), WHOLE[:place]):
            store.put(OBJECT, damaged)
            assert (read(store), decoded(store)) == (WHOLE, b"an entry")


def test_a_spare_that_is_torn_stands_in_for_nothing(store):
    for length in range(len(WHOLE)):
        store.put(OBJECT, WHOLE)
        store.put(SPARE, WHOLE[:length])
        assert read(store) == WHOLE
        assert spare.add(store, JOURNAL, OBJECT, OTHER) == OTHER
        store.put(OBJECT, b"damaged")
        assert read(store) == b"damaged"
        store.delete(OBJECT)
        assert read(store) is None


def decoded(store):
    def decode(data):
        if not is_whole(data):
            raise CorruptObject(OBJECT, "it is damaged")
        return data[16:]

    return spare.decoded(store, JOURNAL, OBJECT, decode)


def test_the_error_is_the_objects_if_its_spare_is_no_better(store):
    store.delete(SPARE)
    store.put(OBJECT, b"damaged")
    with pytest.raises(CorruptObject):
        decoded(store)
    store.delete(OBJECT)
    with pytest.raises(ObjectMissing):
        decoded(store)


def test_a_missing_object_is_found_by_names_and_a_damaged_one_by_contents_and_both_are_repaired(store):
    store.create(f"{OBJECT}.bak", WHOLE)
    assert faults(store) == [], "a file of somebody else gets no spare"
    for key in (OBJECT, SPARE):
        for is_missing in (True, False):
            store.delete(key)
            if not is_missing:
                store.put(key, WHOLE[:-1])
                assert faults(store, contents=False) == []
            [fault] = faults(store, contents=not is_missing)
            assert (fault.key, fault.of, fault.is_missing) == (key, OBJECT, is_missing)
            spare.repair(store, fault)
            assert (faults(store), store.read(key)) == ([], WHOLE)
    store.put(OBJECT, b"damaged")
    store.delete(SPARE)
    assert faults(store) == [], "it cannot be repaired"


def test_a_store_that_takes_no_spare_fails_nothing(store, monkeypatch):
    def refuse(key, data):
        raise StoreUnwritable(store.url, key, "the disk is full")

    monkeypatch.setattr(store, "create_unflushed", refuse)
    spare.add(store, JOURNAL, OBJECT, WHOLE)


def test_what_is_created_in_the_place_of_a_lost_object_gives_way_to_its_spare(store):
    store.put(OBJECT, OTHER)
    assert spare.add(store, JOURNAL, OBJECT, OTHER) == WHOLE
    assert store.read(OBJECT) == WHOLE


def test_an_object_that_is_removed_with_its_spare_while_it_is_read_is_missing_and_not_damaged(store, monkeypatch):
    reading = store.read
    store.put(OBJECT, b"damaged")

    def slow(key):
        found = reading(key)
        store.delete(OBJECT)
        store.delete(SPARE)
        return found

    monkeypatch.setattr(store, "read", slow)
    assert read(store) is None
    monkeypatch.setattr(store, "read", reading)
    store.put(OBJECT, b"damaged")
    monkeypatch.setattr(store, "read", slow)
    with pytest.raises(ObjectMissing):
        decoded(store)


# Local files


def test_a_local_store_keeps_a_spare_that_is_there(tmp_path):
    store = LocalStore(str(tmp_path / "root"))
    store.create(OBJECT, WHOLE)
    spare.add(store, JOURNAL, OBJECT, WHOLE)
    spare.add(store, JOURNAL, OBJECT, OTHER)
    assert store.read(SPARE) == WHOLE


def test_a_local_store_flushes_no_spare(tmp_path, monkeypatch):
    store = LocalStore(str(tmp_path / "root"))
    store.create(OBJECT, WHOLE)

    def flush(fd):
        raise AssertionError("a commit waits for it")

    monkeypatch.setattr("os.fsync", flush)
    monkeypatch.setattr("os.fdatasync", flush)
    store.create_unflushed(SPARE, WHOLE)
    assert store.read(SPARE) == WHOLE


def test_without_its_disk_no_folder_is_created_for_a_spare(tmp_path):
    store = LocalStore(str(tmp_path / "root"))
    with pytest.raises(StoreError):
        store.create_unflushed(SPARE, WHOLE)
    assert list(tmp_path.iterdir()) == []


NEXT = f"{JOURNAL}entries/00000000000000000002"
PLACED, PLACED_NEXT = (seal(b"PLJE", 2, b"an entry", of) for of in (OBJECT, NEXT))


def test_an_object_that_was_written_for_another_key_is_read_from_its_spare_and_the_other_way_round():
    store = MemoryStore()
    store.create(OBJECT, PLACED)
    spare.add(store, JOURNAL, OBJECT, PLACED)
    for key in (OBJECT, SPARE):
        store.put(key, PLACED_NEXT)
        assert read(store) == PLACED
        assert [each.key for each in faults(store)] == [key]
        store.put(key, PLACED)
    store.delete(OBJECT)
    store.put(SPARE, PLACED_NEXT)
    assert (read(store), spare.is_astray(store, JOURNAL, OBJECT)) == (None, True)


def test_an_object_without_an_intact_spare_is_damaged_if_it_was_written_for_another_key():
    store = MemoryStore()
    store.create(OBJECT, PLACED)
    store.create(NEXT, PLACED)
    assert list(spare.damaged(store, JOURNAL, f"{JOURNAL}entries/")) == [(NEXT, PLACED)]
    assert (spare.is_astray(store, JOURNAL, NEXT), spare.is_astray(store, JOURNAL, OBJECT)) == (True, False)
    spare.add(store, JOURNAL, NEXT, PLACED_NEXT)
    assert list(spare.damaged(store, JOURNAL, f"{JOURNAL}entries/")) == []
    assert not spare.is_astray(store, JOURNAL, NEXT)
