"""The order of nodes in lists and messages: numbered nodes by number, then the others by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_log_coordinator.model.partition import NodeId


def by_number(node: NodeId) -> tuple[bool, int, str]:
    """Return what nodes are sorted by: those that are numbers as numbers, then the others."""
    plain = node.isascii() and node.isdigit()
    return (not plain, int(node) if plain else 0, node)


def named(nodes: Iterable[NodeId]) -> str:
    """Return the nodes as messages list them."""
    return ", ".join(sorted(nodes, key=by_number)) or "none"
