"""The node's marker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, NodeAway, NodeMissing
from pyspark_log_storage.objects import node
from tests.support.memory_store import MemoryStore

MARKER = node.Marker(cluster="c", node="0", incarnation="i")


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


def test_a_damaged_marker_is_no_missing_marker():
    store = MemoryStore("the url")
    assert node.read_marker(store) is None
    store.create(layout.MARKER, node.encode(MARKER)[:-1])
    with pytest.raises(CorruptObject, match="the url/node"):
        node.read_marker(store)
    store.put(layout.MARKER, node.encode(MARKER))
    assert node.read_marker(store) == MARKER
    node.require_marker(store, "0", "i")


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


def test_a_file_that_was_written_is_on_the_disk_of_the_node():
    store = joined()
    with pytest.raises(NodeAway, match="was its disk not mounted"):
        node.require_written(store, "0", "i", "append/a")
    store.create("append/a", b"")
    node.require_written(store, "0", "i", "append/a")
    with pytest.raises(NodeMissing, match="another incarnation"):
        node.require_written(store, "0", "j", "append/a")
