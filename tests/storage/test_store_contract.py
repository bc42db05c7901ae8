"""What every store promises (`pyspark_log_storage.stores.store.Store`), tested of each kind there is."""

import tempfile
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_storage.errors import ObjectMissing, StoreError
from pyspark_log_storage.stores.local import LocalStore
from tests.support.memory_store import MemoryStore

# Whole keys in plain order. Part by part, or with folders taken for names without "/", they sort otherwise.
IN_ORDER = ["a", "b-c", "b.d/e", "b/a-", "b/a-x/y", "b/a/x", "b/a/y/z", "b/a0", "b/c", "b0", "c/.tmp/x"]


def test_a_created_object_holds_its_bytes_and_its_key_until_it_is_deleted(store):
    assert list(store.list("")) == []
    assert not store.exists("a/b")
    buffer = bytearray(b"first")
    assert store.create("a/b", buffer) is True
    buffer[:] = b"other"
    assert [store.create("a/b", data) for data in (b"second", b"first")] == [False, False]
    assert (store.read("a/b"), store.size("a/b"), store.exists("a/b")) == (b"first", 5, True)
    store.delete("a/b")
    assert not store.exists("a/b")
    with pytest.raises(ObjectMissing):
        store.read("a/b")
    assert store.create("a/b", b"") is True
    assert (store.read("a/b"), store.size("a/b"), list(store.list(""))) == (b"", 0, ["a/b"])


def test_a_store_tells_the_time_of_its_clock_or_that_it_has_none(store):
    store.create("node", b"any")
    told = store.clock_ms()
    assert told is None or abs(told - time.time_ns() // 10**6) < 30_000
    assert (told is None) == (type(getattr(store, "_inner", store)) is MemoryStore)
    assert list(store.list("")) == ["node"]


def test_of_many_threads_one_creates_an_object(store):
    barrier, answers = threading.Barrier(8), []

    def create(thread):
        barrier.wait()
        answers.append((store.create("a/b", b"%d" % thread), thread))

    threads = [threading.Thread(target=create, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [thread for created, thread in answers if created]
    assert len(winners) == 1
    assert store.read("a/b") == b"%d" % winners[0]


def test_put_makes_an_object_or_replaces_it_whole(store):
    for data in (b"a long text", b"short"):
        store.put("a/b", data)
        assert store.read("a/b") == data
    assert store.create("a/b", b"second") is False


def test_a_writer_may_replace_an_object_when_it_is_whole(store):
    store.create("a/b", b"damaged")
    writer = store.open_write("a/b", replace=True)
    writer.write(b"whole")
    assert store.read("a/b") == b"damaged"
    writer.close()
    assert store.read("a/b") == b"whole"
    writer = store.open_write("a/b", replace=True)
    writer.write(b"half")
    writer.discard()
    assert store.read("a/b") == b"whole"


def test_a_written_object_shows_whole_when_it_is_closed(store):
    buffer, writer = bytearray(b"hel"), store.open_write("a/b", durable=False)
    writer.write(buffer)
    buffer[:] = b"xxx"
    writer.write(memoryview(b"lo"))
    assert list(store.list("")) == list(store.delete_unfinished()) == []
    with pytest.raises(ObjectMissing):
        store.read("a/b")
    writer.close()
    writer.discard()
    assert (store.read("a/b"), list(store.list(""))) == (b"hello", ["a/b"])
    store.open_write("a/empty").close()
    assert store.read("a/empty") == b""


def test_a_read_returns_less_at_the_end_of_the_object(store):
    store.create("a", b"hello")
    for start, length, expected in ((3, 100, b"lo"), (5, 1, b""), (99, None, b""), (99, 1, b"")):
        assert store.read("a", start, length) == expected


@pytest.mark.parametrize("key", ["none", "nowhere/none", "folder"])
def test_what_is_not_there_is_missing_and_to_delete_it_changes_nothing(store, key):
    store.create("folder/object", b"hello")
    for ask in (store.read, store.size):
        with pytest.raises(ObjectMissing) as caught:
            ask(key)
        assert (caught.value.url, caught.value.key) == (store.url, key)
    store.delete(key)
    assert store.read("folder/object") == b"hello"


def test_a_folder_lists_in_the_order_of_whole_keys_after_a_key(store):
    for key in reversed(IN_ORDER):
        store.create(key, b"")
    assert list(store.list("")) == IN_ORDER == sorted(IN_ORDER)
    for prefix in ("", "b/", "b/a/", "c/", "none/"):
        for after in ("", "b-c", "b/", "b/a-", "b/a/", "b/a/y", "b/a/y/zz", "b/b", "b0", "zz"):
            expected = [key for key in IN_ORDER if key.startswith(prefix) and key > after]
            assert list(store.list(prefix, after)) == expected, (prefix, after)
    assert list(store.folders("b/")) == ["a", "a-x"]
    assert list(store.folders("b/a/")) == ["y"]
    assert list(store.folders("b/a/y/")) == list(store.folders("none/")) == []


def test_an_object_is_no_folder(store):
    store.create("a/b", b"")
    assert list(store.list("a/b/")) == list(store.folders("a/b/")) == []
    store.delete("a/b/c")
    store.remove_folders("a/b/")
    assert list(store.list("")) == ["a/b"]


def test_removing_empty_folders_removes_no_object(store):
    for key in ("a/b/c", "a/d/e", "a-x"):
        store.create(key, b"")
    store.delete("a/b/c")
    store.remove_folders("a/")
    store.remove_folders("none/")
    assert list(store.list("")) == ["a-x", "a/d/e"]
    store.delete("a/d/e")
    store.remove_folders("a/")
    assert list(store.folders("a/")) == []
    assert store.create("a/b/c", b"again")


def test_if_no_writer_was_killed_nothing_is_deleted(store):
    for dry_run in (True, False):
        assert list(store.delete_unfinished(dry_run=dry_run)) == []
        store.put("a/b", b"hello")
        store.open_write("a/d").discard()
        assert list(store.delete_unfinished(dry_run=dry_run)) == []
    assert list(store.list("")) == ["a/b"]


def test_a_discarded_object_never_shows_and_leaves_its_key_free(store):
    writer = store.open_write("a/b")
    writer.write(b"hello")
    for _ in range(2):
        writer.discard()
    assert list(store.list("")) == []
    assert store.create("a/b", b"") is True


def test_a_written_object_cannot_take_an_occupied_key(store):
    store.create("a/b", b"first")
    writer = store.open_write("a/b")
    writer.write(b"second")
    with pytest.raises(StoreError, match="a/b") as caught:
        writer.close()
    assert caught.value.retriable is False
    assert store.read("a/b") == b"first"


@pytest.mark.parametrize("end", ["close", "discard"])
def test_to_use_a_writer_after_its_end_is_a_bug(store, end):
    writer = store.open_write("a/b")
    getattr(writer, end)()
    for use in (writer.close, lambda: writer.write(b"more")):
        with pytest.raises(AssertionError):
            use()


# Folders are words without "x", objects words with it: so no key is a folder of another.
_FOLDER = st.text("a-.0", min_size=1, max_size=3).filter(lambda name: name not in {".", ".."})
_NAME = st.builds(lambda left, right: f"{left}x{right}", st.text("a-.0", max_size=2), st.text("a-.0", max_size=2))
KEYS = st.builds(lambda folders, name: "/".join([*folders, name]), st.lists(_FOLDER, max_size=3), _NAME)
FOLDERS = st.lists(_FOLDER, max_size=2).map(lambda folders: "".join(f"{folder}/" for folder in folders))


@given(keys=st.sets(KEYS, max_size=20), prefix=FOLDERS, after=KEYS | FOLDERS)
def test_a_folder_lists_as_the_sorted_set_of_its_keys(keys, prefix, after):
    expected = sorted(key for key in keys if key.startswith(prefix) and key > after)
    with tempfile.TemporaryDirectory() as folder:
        local, memory = LocalStore(folder), MemoryStore()
        for key in keys:
            local.open_write(key, durable=False).close()
            memory.create(key, b"")
        assert list(local.list(prefix, after)) == list(memory.list(prefix, after)) == expected
