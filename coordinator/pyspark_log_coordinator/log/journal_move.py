"""Moves all journals of a cluster to other journal nodes.

    1  the cluster's journal ends at the present stores, with an entry that names the new ones
    2  each topic's and group's journal ends there, and begins at the new stores
    3  the cluster's journal begins at the new stores, and the stores get the list of the new journal nodes

A journal begins at the new stores with the snapshot of its last entry, on a majority, and with that entry itself, so it
keeps its numbers and hashes. All processes write the same bytes there, and any number of times. So whoever opens the
log between 1 and 3 does what is left (`ended_journals.follow`), and a crash at any moment is harmless: before 1 nothing
has happened, and after it the next one who opens the log finishes the move. A majority of the present stores must be
reachable until 3.

Who knows the former stores finds the last entry, or a later snapshot that says the same, and gets `LogMoved`: it starts
again, and opens the log at the new stores. Before a journal begins at the new stores its last entry is made durable at
the former ones. Otherwise a loss of power could take that away, and another entry could be decided in its place.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster.journal_stores import MoveJournals
from pyspark_log_coordinator.cluster.nodes import node_of
from pyspark_log_coordinator.journal.trimming import delete_history
from pyspark_log_coordinator.log.ended_journals import others
from pyspark_log_storage.errors import LogMoved, StoreError
from pyspark_log_storage.objects import node
from pyspark_log_storage.stores.self_test import self_test

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log_coordinator.journal.journal_nodes import JournalNodes
    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.model.partition import NodeId


class JournalMove(msgspec.Struct, frozen=True):
    """The outcome of a move."""

    nodes: JournalNodes
    """The present journal nodes."""
    changed: bool
    """Whether any journal had to move."""
    topics: int
    """The number of topics."""
    removed: int
    """The number of objects deleted from the former stores."""


def move(log: Log, to: Sequence[NodeId]) -> JournalMove:
    """Move all journals to the stores of these nodes, in this order.

    `log` is opened, and goes on at the new stores. Raises `InvalidOption` if the nodes cannot hold journals;
    `NodeMissing`, `StoreUnfit` if a node cannot be used; `CorruptObject` if a journal is damaged; `StoreError`.
    """
    try:
        return _move(log, to)
    except LogMoved:  # by another process, or by one that was killed in the middle
        log.reopen()
    return _move(log, to)


def _move(log: Log, to: Sequence[NodeId]) -> JournalMove:
    former = log.journals
    former.cluster.refresh()  # an attempt that failed may have left a journal that was never read
    if former.nodes is not None:
        _check_stores(log, to)
        for journal, _ in others(former):
            journal.refresh()  # nothing is changed if one of them is damaged
    ended = former.cluster.submit(MoveJournals(tuple(to)))
    assert former.nodes is not None
    if not ended.events:
        former.announce()  # to those that were away when the journals moved
        return JournalMove(former.nodes, changed=False, topics=0, removed=0)
    place, journals = former.place, [journal for journal, _ in others(former)]
    journals.append(former.cluster_at(place))
    log.reopen()
    removed = 0
    for journal in journals:
        with contextlib.suppress(StoreError):  # what stays there does no harm
            removed += delete_history(journal)
    assert log.journals.nodes is not None
    return JournalMove(log.journals.nodes, changed=True, topics=len(log.known_topics), removed=removed)


def _check_stores(log: Log, to: Sequence[NodeId]) -> None:
    """Raise `NodeMissing`, `StoreUnfit` if a store cannot hold journals. Fenced nodes are refused later."""
    for node_id in to:
        known = node_of(log.cluster.state.nodes, node_id)
        store = log.store_at(known.url)
        node.require_marker(store, known.node_id, known.incarnation)
        self_test(store, log.environment.nonce(), log.environment.store_threads)
