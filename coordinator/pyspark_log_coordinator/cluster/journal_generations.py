"""Generations: which stores the journals live on, and that they move to others, one journal after the other.

    command             events
    MoveJournals     -> JournalsMoved       the cluster's journal: its last entry on the stores that it leaves
    MoveJournal      -> JournalMoved        a topic's journal: likewise
    SettleJournals   -> JournalsSettled     every journal has moved; the stores before are forgotten

Each list of stores is a generation, the first is 1. A journal's entry that says that it moves is the last one on the
stores before, and the first one on the new ones (`journal`). The cluster's journal goes first: its entry has the new
list. From then on new topics begin on the new stores. Of the others it is known only at the end, when all are there,
where their journals are; until then one looks on the stores before, and follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT, Node, node_of
from pyspark_log_coordinator.journal.journal_nodes import LEAST, JournalNode
from pyspark_log_coordinator.model.node_order import named
from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.ranges import Count

OPTION = "to"


class Journals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the journals of a cluster live."""

    generation: Count = 1
    nodes: tuple[JournalNode, ...] = ()
    """The journal nodes of this generation; empty for the first, which the cluster was founded on."""
    previous: tuple[JournalNode, ...] = ()
    """Those of the generation before, as long as some journals may be there; empty where no move is under way."""
    waiting: tuple[str, ...] = ()
    """While a move is under way: the ids of the topics that were there when it began."""

    @property
    def are_moving(self) -> bool:
        """Whether a move is under way."""
        return bool(self.previous)

    def holders(self) -> frozenset[NodeId]:
        """Return the nodes without which a journal may be lost, as far as it is known here."""
        return frozenset(each.node for each in (*self.nodes, *self.previous))


class StartJournalMigration(msgspec.Struct, frozen=True):
    """Move the journals to the stores of these nodes, in their present incarnations."""

    nodes: tuple[NodeId, ...]
    present: tuple[JournalNode, ...]
    """Where they are now."""


class FinishJournalMigration(msgspec.Struct, frozen=True):
    """Forget the stores that the journals left for this generation; `moved` are the ids of the topics that have."""

    generation: int
    moved: frozenset[str]


class JournalMigrationStarted(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The cluster's journal goes on in this generation, on these nodes, and the other journals will."""

    generation: Count
    nodes: tuple[JournalNode, ...]
    previous: tuple[JournalNode, ...]


class JournalMigrationFinished(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """All journals are in this generation."""

    generation: Count


def decide(
    journals: Journals,
    nodes: Mapping[NodeId, Node],
    topics: Mapping[str, str],
    command: StartJournalMigration | FinishJournalMigration,
) -> list[JournalMigrationStarted | JournalMigrationFinished]:
    """Return the event that carries out `command`, none where it is done or under way.

    `topics` has the names of the topics by their ids. Raises `InvalidOption` where refused.
    """
    if isinstance(command, FinishJournalMigration):
        return _settle(journals, topics, command)
    if journals.are_moving:
        if {each.node for each in journals.nodes} != set(command.nodes):
            ids = ",".join(each.node for each in journals.nodes)
            raise _refused(f"they are on their way to nodes {ids} already; finish that first, with --to {ids}")
        return []
    wanted = _wanted(nodes, command.nodes)
    present = journals.nodes or command.present
    if not present:
        raise _refused(
            "the journals are at the cluster's root, and stay there; only those of a cluster that was begun with "
            "`pyspark-log cluster create --journal-nodes` can be moved"
        )
    if set(wanted) == set(present):
        return []
    return [JournalMigrationStarted(journals.generation + 1, wanted, present)]


def evolve(
    journals: Journals, topics: Sequence[str], event: JournalMigrationStarted | JournalMigrationFinished
) -> Journals:
    """Return where the journals live after `event`; `topics` are the ids of the topics."""
    if isinstance(event, JournalMigrationFinished):
        return msgspec.structs.replace(journals, previous=(), waiting=())
    if event.generation <= journals.generation or len(event.nodes) < LEAST:
        raise ValueError(f"the journals move from generation {journals.generation} to {event.generation}")
    waiting = tuple(topics) if event.previous else ()
    return Journals(event.generation, event.nodes, event.previous, waiting)


def _wanted(nodes: Mapping[NodeId, Node], ids: Sequence[NodeId]) -> tuple[JournalNode, ...]:
    """Return the nodes as they are now. Raises `InvalidOption` where they cannot hold journals."""
    if len(set(ids)) != len(ids):
        raise _refused("a node is named twice; name each once")
    if len(ids) < LEAST:
        raise _refused(f"{len(ids)} of them cannot do without one: {LEAST} survive the loss of one, 5 of two")
    wanted = [node_of(nodes, each) for each in ids]
    for each in wanted:
        if each.fenced:
            raise _refused(f"node {each.node_id!r} is fenced; unfence it, or name another")
        if each.url == AT_THE_ROOT:
            raise _refused(
                "the journals of a cluster that was begun on one store, its root, stay there; only those of a cluster "
                "that was begun with `pyspark-log cluster create --journal-nodes` can be moved"
            )
    return tuple(JournalNode(each.node_id, each.url, each.incarnation) for each in wanted)


def _settle(
    journals: Journals, topics: Mapping[str, str], command: FinishJournalMigration
) -> list[JournalMigrationStarted | JournalMigrationFinished]:
    if not journals.are_moving or command.generation != journals.generation:
        return []
    left = [topics[each] for each in journals.waiting if each in topics and each not in command.moved]
    if left:
        raise _refused(f"the journals of {named(left)} have not moved yet; try again")
    return [JournalMigrationFinished(journals.generation)]


def _refused(reason: str) -> InvalidOption:
    return InvalidOption(OPTION, f"the journals cannot be moved: {reason}")
