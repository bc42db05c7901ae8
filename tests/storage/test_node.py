"""The node's marker, and the self-test that keeps unfit stores out."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_storage import layout, node
from pyspark_log_storage.envelope import seal
from pyspark_log_storage.errors import CorruptObject, NewerFormat, NodeMissing, StoreUnfit
from tests.memory_store import MemoryStore

MARKER = node.Marker(cluster="c", node="0", incarnation="i")
ENCODED = node.encode(MARKER)
BITS = [(byte, bit) for byte in range(len(ENCODED)) for bit in range(8)]


def joined(marker=MARKER):
    store = MemoryStore()
    store.create(layout.MARKER, node.encode(marker))
    return store


@given(
    marker=st.builds(
        node.Marker, st.text(), st.from_regex(r"[a-zA-Z0-9_-]{1,249}", fullmatch=True), st.text(), st.booleans()
    )
)
def test_a_marker_comes_back(marker):
    assert node.decode(node.encode(marker), "x") == marker


def test_every_flipped_bit_is_noticed():
    for byte, bit in BITS:
        damaged = bytearray(ENCODED)
        damaged[byte] ^= 1 << bit
        with pytest.raises(CorruptObject, match="the marker"):
            node.decode(bytes(damaged), "the marker")


def test_every_cut_is_noticed():
    for length in range(len(ENCODED)):
        with pytest.raises(CorruptObject, match="the marker"):
            node.decode(ENCODED[:length], "the marker")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"cluster": "c"}', b'{"cluster": 1, "node": "", "incarnation": ""}']
)
def test_a_body_that_is_no_marker_is_damage(body):
    with pytest.raises(CorruptObject, match="the marker"):
        node.decode(seal(b"PLND", 1, body), "the marker")


def test_a_newer_marker_is_distinguished_from_damage():
    with pytest.raises(NewerFormat, match="the marker"):
        node.decode(seal(b"PLND", 2, msgspec.json.encode(MARKER)), "the marker")


def test_an_empty_store_has_no_marker():
    assert node.read_marker(MemoryStore()) is None


def test_the_marker_of_a_store_is_read():
    assert node.read_marker(joined()) == MARKER


def test_a_damaged_marker_is_no_missing_marker():
    store = MemoryStore("the url")
    store.create(layout.MARKER, ENCODED[:-1])
    with pytest.raises(CorruptObject, match="the url/node"):
        node.read_marker(store)


def test_the_right_marker_lets_pass():
    node.require_marker(joined(), "0", "i")


@pytest.mark.parametrize(
    ("store", "words"),
    [
        (MemoryStore("the url"), "no marker"),
        (joined(node.Marker("c", "0", "j")), "another incarnation"),
        (joined(node.Marker("c", "1", "i")), "another node"),
    ],
    ids=["none", "another incarnation", "another node"],
)
def test_a_store_that_is_not_the_node_is_missing(store, words):
    with pytest.raises(NodeMissing, match=words) as caught:
        node.require_marker(store, "0", "i")
    assert caught.value.url == store.url


def test_a_store_that_keeps_its_promises_passes(store):
    node.self_test(store, "nonce")


def test_the_self_test_leaves_no_object(store):
    node.self_test(store, "nonce")
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


class NeverDeletes(MemoryStore):
    def delete(self, key):
        pass


LIARS = [
    (Overwrites, "overwrites"),
    (OverwritesInSecret, "other bytes"),
    (NeverCreates, "refuses to create"),
    (ReadsOtherBytes, "other bytes"),
    (IgnoresRanges, "another range"),
    (IgnoresStarts, "another range"),
    (ReadsFromACache, "stale bytes"),
    (ListsFromACache, "lists a deleted object"),
    (ListsNothing, "does not list"),
    (NeverDeletes, "lists a deleted object"),
]


@pytest.mark.parametrize(("liar", "words"), LIARS, ids=[liar.__name__ for liar, _ in LIARS])
def test_a_store_that_lies_is_unfit(liar, words):
    with pytest.raises(StoreUnfit, match=words) as caught:
        node.self_test(liar("the url"), "nonce")
    assert caught.value.url == "the url"


@pytest.mark.parametrize("liar", [liar for liar, _ in LIARS if liar not in {NeverDeletes, NeverCreates}])
def test_a_store_that_failed_keeps_no_object_of_the_test(liar):
    store = liar()
    with contextlib.suppress(StoreUnfit):
        node.self_test(store, "nonce")
    assert list(MemoryStore.list(store, "")) == []
