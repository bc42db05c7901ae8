"""A move of all journals to other journal nodes, while others write and read.

    1  the cluster's journal moves, and every store is told where it is now
    2  the journal of each topic moves, of those too that were deleted: what they left is tidied up by it
    3  the cluster forgets the stores before

Each step may be done twice, or by several processes at once. One that is cut short is finished by doing it again. Until
the end the stores before must be there, as many as decide; then they may go. What they held of the journals is removed
behind each step, as far as they answer, but for the entry that says where it goes on.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from pyspark_log_coordinator.cluster.journal_generations import FinishJournalMigration, StartJournalMigration
from pyspark_log_coordinator.cluster.nodes import node_of
from pyspark_log_coordinator.journal.journal_nodes import JournalNodes
from pyspark_log_coordinator.maintenance import cluster_cleanup
from pyspark_log_coordinator.topic.journal_move import MoveTopicJournal
from pyspark_log_storage import layout, node
from pyspark_log_storage.errors import CorruptObject, LogError, StoreError, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_log_coordinator.journal.journal import Journal
    from pyspark_log_coordinator.journal.place import SeveralStores
    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.topic import machine as topic


class JournalMigration(msgspec.Struct, frozen=True):
    """What came of a move."""

    nodes: JournalNodes
    """Where the journals are now."""
    changed: bool
    """Whether they were not all there before."""
    topics: int
    """How many topics' journals this process moved, or found moved."""
    removed: int
    """How many objects went on the stores before."""
    damaged: dict[str, LogError]
    """Folders of deleted topics whose journals cannot be read: they stay where they are."""


def migrate(log: Log, to: Sequence[NodeId], progress: Callable[[str], object] = bool) -> JournalMigration:
    """Move all journals to the stores of these nodes, in this order, or finish such a move.

    `log` is opened. `progress` is told the name of each topic before its journal moves. Raises `InvalidOption` where
    the nodes cannot hold journals, or another move is under way; `NodeMissing`, `StoreUnfit` where one of them is not
    as it should be; `CorruptObject` where a topic's journal is damaged; `StoreError`.
    """
    state = log.cluster.refresh()
    if log.journals.nodes is not None and not state.journals.are_moving:
        _try_stores(log, to)
    present = () if log.journals.nodes is None else log.journals.nodes.nodes
    log.cluster.submit(StartJournalMigration(tuple(to), present))
    state = log.cluster.refresh()
    log.journals.announce()
    assert log.journals.nodes is not None
    if log.journals.previous_place is None:
        return JournalMigration(log.journals.nodes, changed=False, topics=0, removed=0, damaged={})
    work = _Move(log, log.journals.previous_place)
    for each in state.topics.values():
        progress(each.name)
        work.known_topic(each.name, each.topic_id)
    work.deleted_topics()
    work.clear(log.cluster)
    log.cluster.submit(FinishJournalMigration(work.generation, frozenset(work.moved)))
    return JournalMigration(
        log.journals.nodes, changed=True, topics=len(work.moved), removed=work.removed, damaged=work.damaged
    )


class _Move:
    """Moves the topics' journals."""

    def __init__(self, log: Log, previous: SeveralStores) -> None:
        self._log = log
        self._previous = previous
        self.generation = previous.generation + 1
        self.moved: set[str] = set()
        self.removed = 0
        self.damaged: dict[str, LogError] = {}

    def known_topic(self, name: str, topic_id: str) -> None:
        """Move the journal of a topic that the cluster knows, and that may be deleted meanwhile."""
        journal = self._log.journals.of_topic(name, topic_id)
        if not journal.refresh().started:
            with contextlib.suppress(UnknownTopic):
                self._log.topic(name)  # which begins it
        self._journal(journal)
        self.moved.add(topic_id)

    def deleted_topics(self) -> None:
        """Move the journals of topics that were deleted: by them it is known what of their bytes may go."""
        for name, topic_id in cluster_cleanup.deleted_topics(self._log):
            try:
                journal = self._log.journals.of_topic(name, topic_id)
                if journal.refresh().started:
                    self._journal(journal)
            except CorruptObject as error:
                self.damaged[layout.topic_folder(name, topic_id)] = error

    def clear(self, journal: Journal[Any, Any]) -> None:
        """Remove what the journal left behind. What cannot be removed is of no harm."""
        with contextlib.suppress(StoreError):
            self.removed += journal.clear(self._previous)

    def _journal(self, journal: Journal[topic.Topic, topic.Command]) -> None:
        journal.submit(MoveTopicJournal(self.generation))
        journal.refresh()
        self.clear(journal)


def _try_stores(log: Log, to: Sequence[NodeId]) -> None:
    """Raise `NodeMissing`, `StoreUnfit` where a store cannot hold journals. Those of fenced nodes are refused later."""
    for each in to:
        known = node_of(log.cluster.state.nodes, each)
        store = log.store_at(known.url)
        node.require_marker(store, known.node_id, known.incarnation)
        node.self_test(store, log.environment.nonce())
