"""The order of nodes in lists and messages: numbered nodes by number, then the others by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_log_coordinator.model.partition import NodeId


def by_number(node: NodeId) -> tuple[bool, int, str]:
    """Return the sort key of a node."""
    plain = node.isascii() and node.isdigit()
    return (not plain, int(node) if plain else 0, node)


def named(nodes: Iterable[NodeId]) -> str:
    """Return the sorted nodes as a comma-separated list for messages, "none" if there are none."""
    return ", ".join(sorted(nodes, key=by_number)) or "none"
