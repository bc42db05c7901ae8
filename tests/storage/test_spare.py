"""Spares: an object of a journal that is lost or damaged is read from its spare, and made again from it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_the_spare_has_the_name_of_its_object(store):
    assert list(store.list("")) == [OBJECT, SPARE]


def test_an_object_that_is_lost_is_read_from_its_spare(store):
    store.delete(OBJECT)
    assert read(store) == WHOLE


@given(st.integers(0, len(WHOLE) * 8 - 1))
def test_an_object_of_which_a_bit_is_flipped_is_read_from_its_spare(bit):
    store = MemoryStore()
    damaged = bytearray(WHOLE)
    damaged[bit // 8] ^= 1 << bit % 8
    store.put(OBJECT, bytes(damaged))
    store.put(SPARE, WHOLE)
    assert read(store) == WHOLE


@pytest.mark.parametrize("length", range(len(WHOLE)))
def test_an_object_that_is_cut_is_read_from_its_spare(store, length):
    store.put(OBJECT, WHOLE[:length])
    assert read(store) == WHOLE


@pytest.mark.parametrize("length", range(len(WHOLE)))
def test_a_spare_that_is_torn_stands_in_for_nothing(store, length):
    store.put(SPARE, WHOLE[:length])
    assert read(store) == WHOLE
    store.delete(OBJECT)
    assert read(store) is None


def test_the_object_counts_before_its_spare(store):
    store.put(SPARE, OTHER)
    assert read(store) == WHOLE


def test_of_an_object_and_a_spare_that_are_damaged_the_object_is_returned(store):
    store.put(OBJECT, b"damaged")
    store.put(SPARE, b"too")
    assert read(store) == b"damaged"


def decoded(store):
    def decode(data):
        if not is_whole(data):
            raise CorruptObject(OBJECT, "it is damaged")
        return data[16:]

    return spare.decoded(store, JOURNAL, OBJECT, decode)


def test_what_is_decoded_comes_from_the_spare_if_the_object_is_lost_or_damaged(store):
    store.delete(OBJECT)
    assert decoded(store) == b"an entry"
    store.put(OBJECT, b"damaged")
    assert decoded(store) == b"an entry"


def test_the_error_is_the_objects_if_its_spare_is_no_better(store):
    store.delete(SPARE)
    store.put(OBJECT, b"damaged")
    with pytest.raises(CorruptObject):
        decoded(store)
    store.delete(OBJECT)
    with pytest.raises(ObjectMissing):
        decoded(store)


def test_what_is_whole_has_no_faults(store):
    assert faults(store) == []


def test_a_missing_object_is_found_by_names_and_repaired(store):
    for key in (OBJECT, SPARE):
        store.delete(key)
        [fault] = faults(store, contents=False)
        assert (fault.key, fault.of, fault.is_missing) == (key, OBJECT, True)
        spare.repair(store, fault)
        assert (faults(store), store.read(key)) == ([], WHOLE)


def test_a_damaged_object_is_found_if_contents_are_read_and_repaired(store):
    for key in (OBJECT, SPARE):
        store.put(key, WHOLE[:-1])
        assert faults(store, contents=False) == []
        [fault] = faults(store)
        assert (fault.key, fault.of, fault.is_missing) == (key, OBJECT, False)
        spare.repair(store, fault)
        assert (faults(store), store.read(key)) == ([], WHOLE)


def test_a_file_of_somebody_else_gets_no_spare(store):
    store.create(f"{OBJECT}.bak", WHOLE)
    assert faults(store) == []


def test_an_object_that_is_lost_with_its_spare_cannot_be_repaired(store):
    store.put(OBJECT, b"damaged")
    store.delete(SPARE)
    assert faults(store) == []


def test_a_store_that_takes_no_spare_fails_nothing(store, monkeypatch):
    def refuse(key, data):
        raise StoreUnwritable(store.url, key, "the disk is full")

    monkeypatch.setattr(store, "create_unflushed", refuse)
    spare.add(store, JOURNAL, OBJECT, WHOLE)


def test_what_is_created_in_the_place_of_a_lost_object_gives_way_to_its_spare(store):
    store.put(OBJECT, OTHER)
    assert spare.add(store, JOURNAL, OBJECT, OTHER) == WHOLE
    assert store.read(OBJECT) == WHOLE


def test_what_is_created_in_the_place_of_an_object_whose_spare_is_torn_stays(store):
    store.put(SPARE, WHOLE[:-1])
    assert spare.add(store, JOURNAL, OBJECT, OTHER) == OTHER


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
