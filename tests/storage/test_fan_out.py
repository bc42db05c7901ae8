"""Writing one object to several stores at once: one that fails is left out, one that hangs costs one wait."""

import threading
import time

import pytest

from pyspark_log_storage.errors import StoreRefused, StoreUnavailable, StoreUnwritable
from pyspark_log_storage.stores import fan_out
from pyspark_log_storage.stores.fan_out import FanOutWriter
from pyspark_log_storage.stores.store_threads import StoreThreads
from tests.support.memory_store import MemoryStore

KEY = "folder/object"


class FailingStore(MemoryStore):
    """Fails at one step of a write: open, write or close. `hangs` is waited for before."""

    def __init__(self, step, error=StoreUnavailable, hangs=None):
        super().__init__()
        self.step, self.error, self.hangs = step, error, hangs
        self.discarded = 0

    def fail(self, step):
        if step == self.step:
            if self.hangs is not None:
                self.hangs.wait()
            if self.error is not None:
                raise self.error("the url", KEY, f"the test made {step} fail")

    def open_write(self, key, *, durable=True, replace=False):
        self.fail("open")
        return FailingWriter(self, super().open_write(key, durable=durable, replace=replace))


class FailingWriter:
    def __init__(self, store, inner):
        self.store, self.inner = store, inner

    def write(self, *pieces):
        self.store.fail("write")
        self.inner.write(*pieces)

    def close(self):
        self.store.fail("close")
        self.inner.close()

    def discard(self):
        self.store.discarded += 1
        self.inner.discard()


def write(stores, pieces=8, **kwargs):
    writer = FanOutWriter(stores, KEY, **kwargs)
    for number in range(pieces):
        writer.write(b"%d;" % number)
    writer.close()
    return writer


def test_all_stores_get_the_same_bytes():
    stores = {name: MemoryStore() for name in "abc"}
    assert write(stores).done == ("a", "b", "c")
    assert {store.read(KEY) for store in stores.values()} == {b"0;1;2;3;4;5;6;7;"}


def eventually(holds):
    """Wait until it holds."""
    for _ in range(500):
        if holds():
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("step", ["open", "write", "close"])
def test_a_store_that_fails_is_left_out_and_the_others_get_all(step):
    for error in (StoreUnavailable, StoreUnwritable):
        stores = {"good": MemoryStore(), "bad": FailingStore(step, error), "well": MemoryStore()}
        writer = write(stores)
        assert writer.done == ("good", "well")
        assert "made" in writer.failures["bad"].message
        assert stores["good"].read(KEY) == stores["well"].read(KEY) == b"0;1;2;3;4;5;6;7;"
        assert list(stores["bad"].list("")) == []


@pytest.mark.parametrize("step", ["open", "write", "close"])
def test_a_write_fails_if_no_store_is_left_or_one_lacks_rights_or_there_is_a_bug(step):
    with pytest.raises(StoreUnavailable, match=f"made {step} fail"):
        write({"a": FailingStore(step), "b": FailingStore(step)})
    with pytest.raises(StoreRefused, match=f"made {step} fail"):
        write({"good": MemoryStore(), "bad": FailingStore(step, StoreRefused)})
    with pytest.raises(ZeroDivisionError):
        write({"good": MemoryStore(), "bad": FailingStore(step, lambda *_: ZeroDivisionError())})


@pytest.mark.parametrize("step", ["open", "write", "close"])
def test_a_store_that_hangs_is_waited_for_once_and_publishes_nothing_later(step):
    release = threading.Event()
    hanging = FailingStore(step, None, release)
    writer = write({"good": MemoryStore(), "hangs": hanging}, pieces=1, slower_seconds=0.1)
    assert writer.done == ("good",)
    assert "takes too long" in writer.failures["hangs"].message
    release.set()
    if step == "write":
        assert eventually(lambda: hanging.discarded)
        assert list(hanging.list("")) == []


@pytest.mark.parametrize("others", [{}, {"fails": FailingStore("close")}], ids=["all are slow", "another fails"])
def test_no_store_is_too_slow_before_another_one_is_done(others):
    release = threading.Event()
    stores = others | {name: FailingStore("close", None, release) for name in "ab"}
    threading.Timer(0.3, release.set).start()
    writer = write(stores, pieces=1, slower_seconds=0.05)
    assert (writer.done, list(writer.failures)) == (("a", "b"), list(others))


def test_a_write_fails_if_all_stores_hang(monkeypatch):
    monkeypatch.setattr(fan_out, "HANGING_SECONDS", 0.2)
    release = threading.Event()
    stores = {name: FailingStore("close", None, release) for name in "ab"}
    with pytest.raises(StoreUnavailable, match="takes too long"):
        write(stores, pieces=1)
    release.set()


def test_stores_may_take_longer_for_a_larger_object(monkeypatch):
    monkeypatch.setattr(fan_out, "HANGING_SECONDS", 0.1)
    monkeypatch.setattr(fan_out, "BYTES_PER_SECOND_MIN", 1)
    release = threading.Event()
    stores = {name: FailingStore("close", None, release) for name in "ab"}
    threading.Timer(0.5, release.set).start()
    assert write(stores).done == ("a", "b")


def test_a_store_whose_writer_was_suspended_is_not_too_slow(monkeypatch):
    monkeypatch.setattr(fan_out, "_SUSPENDED_SECONDS", 0.2)
    wakes, suspended = threading.Event(), []

    class Suspended(StoreThreads):
        """Returns long after the deadline from its first wait for a slower store, and no other thread runs before."""

        def next(self, seconds):
            if not seconds or seconds > 1 or suspended:
                return super().next(seconds)
            suspended.append(seconds)
            time.sleep(seconds + 0.5)
            wakes.set()
            return None

    stores = {"a": MemoryStore(), "b": FailingStore("close", None, wakes)}
    writer = write(stores, pieces=1, slower_seconds=1, store_threads=Suspended)
    assert suspended
    assert writer.done == ("a", "b")


def test_a_writer_that_needs_only_some_stores_does_not_wait_for_the_slowest():
    release = threading.Event()
    slow = FailingStore("close", None, release)
    stores = {"a": MemoryStore(), "slow": slow, "b": MemoryStore()}
    assert write(stores, enough=2).done == ("a", "b")
    assert list(slow.list("")) == []
    release.set()
    assert eventually(lambda: list(slow.list("")))
    assert slow.read(KEY) == stores["a"].read(KEY)


def test_a_discarded_object_appears_nowhere():
    stores = {"a": MemoryStore(), "b": MemoryStore()}
    writer = FanOutWriter(stores, KEY)
    writer.write(b"x")
    writer.discard()
    assert eventually(lambda: not [each for each in threading.enumerate() if each.name.startswith("write to")])
    assert [list(store.list("")) for store in stores.values()] == [[], []]
