"""Journal generations: the lists of journal nodes, and the migration of the journals from one list to the next.

    command                  events
    StartJournalMigration  -> JournalMigrationStarted     the last entry of the cluster's journal on its former nodes
    MoveJournal       -> JournalMoved           the last entry of a topic's journal on its former nodes
    FinishJournalMigration -> JournalMigrationFinished    every journal has moved; the former nodes no longer count

The first generation is 1. The entry that moves a journal is its last one on the former nodes and its first one on the
new nodes (`journal`). The cluster's journal moves first, with an entry that has the new list. From then on new topics
begin on the new nodes. During a migration, readers look for the journal of another topic on the former nodes and follow
it to the new ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT, Node, node_of
from pyspark_log_coordinator.journal.journal_nodes import LEAST, JournalNode
from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.stored_fields import Count

OPTION = "to"
_AT_THE_ROOT = (
    "they are at the cluster root; only the journals of a cluster that was created with `pyspark-log cluster create "
    "--journal-nodes` can be migrated"
)


class Journals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The journal nodes of a cluster."""

    generation: Count = 1
    nodes: tuple[JournalNode, ...] = ()
    """The journal nodes of this generation; empty for the first, with which the cluster was created."""
    previous: tuple[JournalNode, ...] = ()
    """The journal nodes of the generation before, during a migration; otherwise empty."""
    waiting: tuple[str, ...] = ()
    """During a migration, the ids of the topics and groups that existed when it began."""

    @property
    def are_moving(self) -> bool:
        """Whether a migration is in progress."""
        return bool(self.previous)

    def holders(self) -> frozenset[NodeId]:
        """Return the nodes that are known to hold journals."""
        return frozenset(each.node for each in (*self.nodes, *self.previous))


class StartJournalMigration(msgspec.Struct, frozen=True):
    """Migrate the journals to these nodes, in their current incarnations."""

    nodes: tuple[NodeId, ...]
    present: tuple[JournalNode, ...]
    """The current journal nodes."""


class FinishJournalMigration(msgspec.Struct, frozen=True):
    """End the migration to this generation; `moved` are the ids of the topics and groups whose journals have."""

    generation: int
    moved: frozenset[str]


class JournalMigrationStarted(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The cluster's journal continues in this generation, on these nodes, and the other journals will follow."""

    generation: Count
    nodes: tuple[JournalNode, ...]
    previous: tuple[JournalNode, ...]


class JournalMigrationFinished(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """All journals are in this generation."""

    generation: Count


Command = StartJournalMigration | FinishJournalMigration
Event = JournalMigrationStarted | JournalMigrationFinished


def decide(
    journals: Journals, nodes: Mapping[NodeId, Node], owners: Mapping[str, str], command: Command
) -> list[Event]:
    """Return the event that carries out `command`, none if that is done or in progress.

    `owners` says what the other journals belong to, by the ids of their topics and groups. Raise `InvalidOption` if the
    command is refused.
    """
    if isinstance(command, FinishJournalMigration):
        return _finish(journals, owners, command)
    if journals.are_moving:
        if {each.node for each in journals.nodes} != set(command.nodes):
            ids = ",".join(each.node for each in journals.nodes)
            raise _refused(f"a migration to nodes {ids} is in progress; finish it first, with --to {ids}")
        return []
    wanted = _wanted(nodes, command.nodes)
    present = journals.nodes or command.present
    if not present:
        raise _refused(_AT_THE_ROOT)
    if set(wanted) == set(present):
        return []
    return [JournalMigrationStarted(journals.generation + 1, wanted, present)]


def evolve(journals: Journals, ids: Sequence[str], event: Event) -> Journals:
    """Return the journal nodes after `event`; `ids` are those of the topics and groups."""
    if isinstance(event, JournalMigrationFinished):
        return msgspec.structs.replace(journals, previous=(), waiting=())
    if event.generation <= journals.generation or len(event.nodes) < LEAST:
        raise ValueError(f"the journals migrate from generation {journals.generation} to {event.generation}")
    waiting = tuple(ids) if event.previous else ()
    return Journals(event.generation, event.nodes, event.previous, waiting)


def replaced(present: Sequence[JournalNode], nodes: Mapping[NodeId, Node]) -> list[NodeId]:
    """Return the journal nodes of `present` whose stores were replaced: they do not vote until the journals migrate."""
    return [each.node for each in present if each.node in nodes and nodes[each.node].incarnation != each.incarnation]


def _wanted(nodes: Mapping[NodeId, Node], ids: Sequence[NodeId]) -> tuple[JournalNode, ...]:
    """Return the nodes as journal nodes. Raise `InvalidOption` if they cannot hold journals."""
    if len(set(ids)) != len(ids):
        raise _refused("a node is named twice; name each node once")
    if len(ids) < LEAST:
        raise _refused(f"need at least {LEAST} journal nodes ({LEAST} tolerate one failure, 5 two); got {len(ids)}")
    wanted = [node_of(nodes, each) for each in ids]
    for each in wanted:
        if each.fenced:
            raise _refused(f"node {each.node_id!r} is fenced; unfence it, or name another")
        if each.url == AT_THE_ROOT:
            raise _refused(_AT_THE_ROOT)
    return tuple(JournalNode(each.node_id, each.url, each.incarnation) for each in wanted)


def _finish(journals: Journals, owners: Mapping[str, str], command: FinishJournalMigration) -> list[Event]:
    if not journals.are_moving or command.generation != journals.generation:
        return []
    left = [owners[each] for each in journals.waiting if each in owners and each not in command.moved]
    if left:
        raise _refused(f"those of {', '.join(sorted(left))} have not been migrated yet; try again")
    return [JournalMigrationFinished(journals.generation)]


def _refused(reason: str) -> InvalidOption:
    return InvalidOption(OPTION, f"cannot migrate the journals: {reason}")
