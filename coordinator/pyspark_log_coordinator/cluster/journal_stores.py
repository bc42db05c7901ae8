"""The stores of the journals: which they are, and which they may become.

    command         event
    MoveJournals -> JournalEnded     the last entry of the cluster's journal at its present stores

A list of stores never changes: agreement on entries rests on it. Each move begins another **generation** of it, from 1
on (`journal_move`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT, Node, node_of
from pyspark_log_coordinator.journal.journal_nodes import LEAST, JournalNode
from pyspark_log_coordinator.journal.state_machine import JournalEnded
from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.stored_fields import Count

OPTION = "to"
_AT_THE_ROOT = (
    "they are at the cluster root; only the journals of a cluster that was created with `pyspark-log cluster create "
    "--journal-nodes` can be migrated"
)


class JournalStores(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The journal nodes of a cluster."""

    generation: Count = 1
    nodes: tuple[JournalNode, ...] = ()
    """Those of this generation; none if the journals are at the root."""

    def holders(self) -> frozenset[NodeId]:
        return frozenset(member.node for member in self.nodes)


class MoveJournals(msgspec.Struct, frozen=True):
    """Move the journals to these nodes, in their current incarnations."""

    nodes: tuple[NodeId, ...]


def decide(journals: JournalStores, nodes: Mapping[NodeId, Node], command: MoveJournals) -> list[JournalEnded]:
    """Return the event that ends the journal, none if the journals are there. Raise `InvalidOption` to refuse."""
    wanted = _wanted(nodes, command.nodes)
    if not journals.nodes:
        raise _refused(_AT_THE_ROOT)
    return [] if set(wanted) == set(journals.nodes) else [JournalEnded(journals.generation + 1, wanted)]


def replaced(present: Sequence[JournalNode], nodes: Mapping[NodeId, Node]) -> list[NodeId]:
    """Return the journal nodes of `present` whose stores were replaced: they do not vote until the journals migrate."""
    return [
        member.node
        for member in present
        if member.node in nodes and nodes[member.node].incarnation != member.incarnation
    ]


def _wanted(nodes: Mapping[NodeId, Node], ids: Sequence[NodeId]) -> tuple[JournalNode, ...]:
    """Return the nodes as journal nodes. Raise `InvalidOption` if they cannot hold journals."""
    if len(set(ids)) != len(ids):
        raise _refused("a node is named twice; name each node once")
    if len(ids) < LEAST:
        raise _refused(f"need at least {LEAST} journal nodes ({LEAST} tolerate one failure, 5 two); got {len(ids)}")
    wanted = [node_of(nodes, node_id) for node_id in ids]
    for node in wanted:
        if node.fenced:
            raise _refused(f"node {node.node_id!r} is fenced; unfence it, or name another")
        if node.url == AT_THE_ROOT:
            raise _refused(_AT_THE_ROOT)
    return journal_nodes(wanted)


def journal_nodes(nodes: Iterable[Node]) -> tuple[JournalNode, ...]:
    """Return nodes as journal nodes, in their present incarnations."""
    return tuple(JournalNode(node.node_id, node.url, node.incarnation) for node in nodes)


def _refused(reason: str) -> InvalidOption:
    return InvalidOption(OPTION, f"cannot migrate the journals: {reason}")
