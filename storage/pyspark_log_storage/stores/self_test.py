"""The self-test: whether a store does what the log relies on. A store must pass it before it becomes a node.

A store that ignores the condition of `create` would silently lose acknowledged rows, and one whose lists are old would
show an old state as the newest. The test makes about 40 small requests; it finds a store that always breaks a promise,
and one that seldom does only by chance.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pyspark_log_storage.errors import ObjectMissing, StoreError, StoreUnavailable, StoreUnfit
from pyspark_log_storage.layout import SELF_TEST
from pyspark_log_storage.stores.store import is_object_store
from pyspark_log_storage.stores.store_threads import StoreThreads

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_storage.stores.store import Store

CREATORS = 8
"""How many threads create one object at once. One that looks before it writes lets several of them win."""
LARGE = bytes(range(256)) * 1024
"""The bytes of a large object, which a store writes in several pieces, and may tear."""
IN_PARTS = LARGE * 36
"""The same for object stores, which send up to 8 MiB by one request."""
_PATIENCE_SECONDS = 60.0
_ANOTHER = "choose another kind of store"


def self_test(store: Store, nonce: str, threads: Callable[[str], StoreThreads] = StoreThreads) -> None:
    """Try the operations that the log relies on. Raises `StoreUnfit` if the store does not do what `Store` promises.

    `nonce` names the objects of this test; `threads` makes the threads that create one of them at once.
    """
    test = _SelfTest(store, f"{SELF_TEST}{nonce}")
    try:
        test.reads_and_lists()
        test.large_objects()
        test.concurrent_creates(threads)
    except BaseException:
        with contextlib.suppress(StoreError):  # why the test ended says more
            test.delete()
        raise
    test.delete()
    listed = test.listed()
    test.must(not listed, "it lists a deleted object")
    test.must(test.is_missing(test.keys[0]), "it returns a deleted object")


def check_condition(store: Store, nonce: str) -> None:
    """Try whether a store still creates an object only once. By few requests. Raises `StoreUnfit`."""
    test = _SelfTest(store, f"{SELF_TEST}{nonce}")
    try:
        store.create(test.keys[0], b"first")  # False if something on the way repeated the request
        test.keeps_the_first()
    finally:
        with contextlib.suppress(StoreError):
            store.delete(test.keys[0])


class _SelfTest:
    def __init__(self, store: Store, name: str) -> None:
        """`name` is what the keys of the test's objects begin with."""
        self._store = store
        self.keys = [f"{name}{suffix}" for suffix in ("", "-large", "-written", "-race")]
        """In ascending order."""
        self.keys.sort()
        self._key, self._large, self._race, self._written = self.keys

    def must(self, held: object, promise: str, cure: str = _ANOTHER) -> None:
        """Raise `StoreUnfit` unless the store held what it promises."""
        if not held:
            message = f"the store at {self._store.url} cannot hold a log: {promise}; {cure}"
            raise StoreUnfit(self._store.url, self._key, message)

    def listed(self, after: str = "") -> list[str]:
        """Return the test's own objects, as the store lists them."""
        return [key for key in self._store.list(SELF_TEST, after) if key in self.keys]

    def delete(self) -> None:
        for key in self.keys:
            self._store.delete(key)

    def is_missing(self, key: str) -> bool:
        try:
            self._store.read(key)
        except ObjectMissing:
            return True
        return False

    def reads_and_lists(self) -> None:
        """Create, read, list and replace a small object; the store may keep no answer of before."""
        store, key, must = self._store, self._key, self.must
        must(self.is_missing(key), "it returns an object that nobody has created")
        must(not self.listed(), "it lists an object that nobody has created")
        must(store.create(key, b"first"), "it refuses to create a new object")
        self.keeps_the_first()
        try:
            must(store.read(key) == b"first", "it returns other bytes than were written")
        except ObjectMissing:
            must(False, "it does not find a new object that somebody looked for before")
        must(store.read(key, 1, 3) == b"irs", "it returns another range than the requested one")
        must(store.read(key, 3, 100) == b"st", "it returns another range than the requested one")
        must(store.size(key) == len(b"first"), "it returns another size than that of the object")
        must(key in self.listed(), "it does not list a new object")
        store.put(key, b"third")
        must(store.read(key) == b"third", "it returns stale bytes after they were replaced")

    def keeps_the_first(self) -> None:
        """Try to create the small object again."""
        # Ceph 16.2 overwrites it in a versioned bucket.
        cure = "stop all writers, and suspend the bucket's versioning, if it is on, or use another kind of store"
        self.must(not self._store.create(self._key, b"second"), "it overwrites an existing object in `create`", cure)

    def large_objects(self) -> None:
        """Create a large object at once, and one in pieces; then list both in pages."""
        store, must = self._store, self.must
        written = IN_PARTS if is_object_store(store) else LARGE
        must(store.create(self._large, LARGE), "it refuses to create a new object")
        writer = store.open_write(self._written)
        try:
            for start in range(0, len(written), len(written) // 4):
                writer.write(written[start : start + len(written) // 4])
            must(self.is_missing(self._written), "it shows an object before it is complete")
            writer.close()
        except BaseException:
            writer.discard()
            raise
        for key, data in ((self._large, LARGE), (self._written, written)):
            must(store.size(key) == len(data), "it stores only a part of a large object")
            must(store.read(key) == data, "it returns other bytes than were written")
            must(store.read(key, 70_000, 5) == data[70_000:70_005], "it returns another range than the requested one")
        expected = [self._key, self._large, self._written]
        must(self.listed() == expected, "it does not list a new object, or not in ascending order")
        must(self.listed(after=self._key) == expected[1:], "it does not list the objects after a key alone")

    def concurrent_creates(self, threads: Callable[[str], StoreThreads]) -> None:
        """Create one object from several threads at once: one of them must win, and its bytes must stay."""
        calls = threads("self-test")
        for number in range(CREATORS):
            data = b"%d" % number * 1000
            calls.start(number, lambda data=data: self._store.create(self._race, data), data)  # type: ignore[misc]
        answers = [calls.next(_PATIENCE_SECONDS) for _ in range(CREATORS)]
        winners = []
        for answer in answers:
            if answer is None:
                message = f"the store at {self._store.url} does not answer; check it, then try again"
                raise StoreUnavailable(self._store.url, self._race, message)
            if isinstance(answer.error, StoreError):
                raise answer.error
            assert answer.error is None
            winners += [answer.tag] if answer.result else []
        self.must(len(winners) == 1, f"of {CREATORS} that create an object at once {len(winners)} do; one must")
        self.must(self._store.read(self._race) == winners[0], "it overwrites an object that was just created")
