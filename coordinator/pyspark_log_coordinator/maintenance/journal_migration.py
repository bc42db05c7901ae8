"""Migrates all journals of a cluster to other journal nodes, while others write and read.

    1  the cluster's journal migrates, and every reachable store gets the new list of journal nodes
    2  each topic's and group's journal migrates, also those of deleted topics, which say what may be deleted
    3  the cluster's journal records that no journal is on the old stores any more

Several processes may do a step, and repeating an interrupted migration finishes it. Until the end a majority of the old
stores must be reachable; after it they may be removed. Each step deletes the old objects of a journal from the old
stores that answer, except for the entry that says where the journal continues.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from pyspark_log_coordinator.cluster.journal_generations import FinishJournalMigration, StartJournalMigration
from pyspark_log_coordinator.cluster.nodes import node_of
from pyspark_log_coordinator.journal import trimming
from pyspark_log_coordinator.journal.journal_nodes import JournalNodes
from pyspark_log_coordinator.journal.state_machine import MoveJournal
from pyspark_log_coordinator.maintenance import cluster_cleanup
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, LogError, StoreError, UnknownTopic
from pyspark_log_storage.objects import node
from pyspark_log_storage.stores.self_test import self_test

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_log_coordinator.cluster.groups import GroupRecord
    from pyspark_log_coordinator.journal.journal import Journal
    from pyspark_log_coordinator.journal.place import SeveralStores
    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.model.partition import NodeId


class JournalMigration(msgspec.Struct, frozen=True):
    """The outcome of a migration."""

    nodes: JournalNodes
    """The present journal nodes."""
    changed: bool
    """Whether any journal had to migrate."""
    topics: int
    """The number of topics whose journals this process migrated, or found migrated."""
    removed: int
    """The number of objects deleted from the old stores."""
    damaged: dict[str, LogError]
    """Folders of deleted topics whose journals cannot be read and stay where they are."""


def migrate(log: Log, to: Sequence[NodeId], progress: Callable[[str], object] = lambda _: None) -> JournalMigration:
    """Migrate all journals to the stores of these nodes, in this order, or finish such a migration.

    `log` is opened. `progress` gets the name of each topic before its journal migrates. Raises `InvalidOption` if the
    nodes cannot hold journals or another migration is under way; `NodeMissing`, `StoreUnfit` if a node cannot be used;
    `CorruptObject` if a topic's journal is damaged; `StoreError`.
    """
    state = log.cluster.refresh()
    if log.journals.nodes is not None and not state.journals.are_moving:
        _check_stores(log, to)
    present = () if log.journals.nodes is None else log.journals.nodes.nodes
    log.cluster.submit(StartJournalMigration(tuple(to), present))
    state = log.cluster.refresh()
    log.journals.announce()
    assert log.journals.nodes is not None
    if log.journals.previous_place is None:
        return JournalMigration(log.journals.nodes, changed=False, topics=0, removed=0, damaged={})
    work = _Migration(log, log.journals.previous_place)
    for each in state.topics.values():
        progress(each.name)
        work.known_topic(each.name, each.topic_id)
    work.deleted_topics()
    for record in state.groups.values():
        progress(record.group_id)
        work.group(record)
    work.delete_old_objects(log.cluster)
    log.cluster.submit(FinishJournalMigration(work.generation, frozenset(work.migrated)))
    return JournalMigration(
        log.journals.nodes, changed=True, topics=len(state.topics), removed=work.removed, damaged=work.damaged
    )


class _Migration:
    """Migrates the topics' journals."""

    def __init__(self, log: Log, previous: SeveralStores) -> None:
        self._log = log
        self._previous = previous
        self.generation = previous.generation + 1
        self.migrated: set[str] = set()
        self.removed = 0
        self.damaged: dict[str, LogError] = {}

    def known_topic(self, name: str, topic_id: str) -> None:
        """Migrate the journal of a topic that the cluster knows, even if it is deleted meanwhile."""
        journal = self._log.journals.of_topic(name, topic_id)
        if not journal.refresh().started:
            with contextlib.suppress(UnknownTopic):
                self._log.topic(name)  # which begins it
        self._journal(journal)
        self.migrated.add(topic_id)

    def deleted_topics(self) -> None:
        """Migrate the journals of deleted topics, which say when their files may be deleted."""
        for name, topic_id in cluster_cleanup.deleted_topics(self._log):
            try:
                journal = self._log.journals.of_topic(name, topic_id)
                if journal.refresh().started:
                    self._journal(journal)
            except CorruptObject as error:
                self.damaged[layout.topic_folder(name, topic_id)] = error

    def group(self, record: GroupRecord) -> None:
        """Migrate the journal of a group, also of a deleted one: its numbers must never be used again."""
        handle = self._log.group_handle(record)
        handle.begin()
        self._journal(handle.journal)
        self.migrated.add(record.journal_id)

    def delete_old_objects(self, journal: Journal[Any, Any]) -> None:
        """Delete a migrated journal's objects from the old stores. Those that stay do no harm."""
        with contextlib.suppress(StoreError):
            self.removed += trimming.delete_left_behind(journal, self._previous, self._log.environment)

    def _journal(self, journal: Journal[Any, Any]) -> None:
        journal.submit(MoveJournal(self.generation))
        journal.refresh()
        self.delete_old_objects(journal)


def _check_stores(log: Log, to: Sequence[NodeId]) -> None:
    """Raise `NodeMissing`, `StoreUnfit` if a store cannot hold journals. Fenced nodes are refused later."""
    for each in to:
        known = node_of(log.cluster.state.nodes, each)
        store = log.store_at(known.url)
        node.require_marker(store, known.node_id, known.incarnation)
        self_test(store, log.environment.nonce(), log.environment.store_threads)
