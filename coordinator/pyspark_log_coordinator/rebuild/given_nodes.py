"""The nodes given for a rebuild, identified by their markers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import NodeId, by_number
from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.objects import node
from pyspark_log_storage.objects.node import Marker
from pyspark_log_storage.stores.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence


class GivenNode(msgspec.Struct, frozen=True):
    """A store, and the marker that says which node it is."""

    store: Store
    marker: Marker

    @property
    def node_id(self) -> NodeId:
        """The node's id."""
        return self.marker.node


def identify(stores: Sequence[Store]) -> tuple[GivenNode, ...]:
    """Return the nodes of the stores, in order. Raises `InvalidOption` if two are one node, or of two clusters."""
    found: dict[NodeId, GivenNode] = {}
    for store in stores:
        marker = node.read_marker(store)
        if marker is None:
            raise refusal(
                f"the store at {store.url} has no marker: it is not a node, or its disk is not mounted; mount it, or "
                "leave it out"
            )
        if marker.node in found:
            other = found[marker.node].store.url
            raise refusal(f"{other} and {store.url} are both node {marker.node!r}; give the one that was in use last")
        found[marker.node] = GivenNode(store, marker)
    if not found:
        raise refusal("no nodes given; give the addresses of all nodes that are left")
    first = next(iter(found.values()))
    for each in found.values():
        if each.marker.cluster != first.marker.cluster:
            raise refusal(
                f"{first.store.url} is a node of cluster {first.marker.cluster}, and {each.store.url} of cluster "
                f"{each.marker.cluster}; give the nodes of one cluster"
            )
    return tuple(found[name] for name in sorted(found, key=by_number))


def refusal(message: str) -> InvalidOption:
    """Return the error for nodes that cannot be rebuilt."""
    return InvalidOption("nodes", message)
