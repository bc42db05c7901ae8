"""Moves all journals of a cluster to other journal nodes.

    1  the cluster's journal ends at the present stores, with an entry that names the new ones
    2  each topic's and group's journal ends there, and begins at the new stores
    3  the cluster's journal begins at the new stores, and the stores get the list of the new journal nodes

A journal begins at the new stores with the snapshot of its last entry, on a majority, and with that entry itself, so it
keeps its numbers and hashes. All processes write the same bytes there, and any number of times. So whoever opens the
log between 1 and 3 does what is left (`follow`), and a crash at any moment is harmless: before 1 nothing has happened,
and after it the next one who opens the log finishes the move. A majority of the present stores must be reachable until
3.

Who knows the former stores finds the last entry, or a later snapshot that says the same, and gets `LogMoved`: it starts
again, and opens the log at the new stores. Before a journal begins at the new stores its last entry is made durable at
the former ones. Otherwise a loss of power could take that away, and another entry could be decided in its place.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from pyspark_log_coordinator.cluster.journal_stores import MoveJournals
from pyspark_log_coordinator.cluster.nodes import node_of
from pyspark_log_coordinator.group.machine import StartGroup
from pyspark_log_coordinator.journal.journal_nodes import JournalNodes
from pyspark_log_coordinator.journal.state_machine import EndJournal, JournalEnded
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage.errors import LogMoved, OutcomeUnknown, StoreError, StoreUnavailable
from pyspark_log_storage.objects import node
from pyspark_log_storage.stores.self_test import self_test

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark_log_coordinator.cluster.cluster_state import TopicRecord
    from pyspark_log_coordinator.cluster.nodes import Node
    from pyspark_log_coordinator.journal.journal import Journal
    from pyspark_log_coordinator.journal.place import SeveralStores
    from pyspark_log_coordinator.log.cluster_journals import ClusterJournals
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
            removed += leave_the_end(journal)
    assert log.journals.nodes is not None
    return JournalMove(log.journals.nodes, changed=True, topics=len(log.known_topics), removed=removed)


def _check_stores(log: Log, to: Sequence[NodeId]) -> None:
    """Raise `NodeMissing`, `StoreUnfit` if a store cannot hold journals. Fenced nodes are refused later."""
    for node_id in to:
        known = node_of(log.cluster.state.nodes, node_id)
        store = log.store_at(known.url)
        node.require_marker(store, known.node_id, known.incarnation)
        self_test(store, log.environment.nonce(), log.environment.store_threads)


def follow(journals: ClusterJournals) -> None:
    """Go on where the cluster's journal, which seems to have ended, says; finish the move if it is not finished.

    Raises `StoreError`, `CorruptObject`.
    """
    former = journals.cluster = journals.cluster_at(journals.place)
    try:
        former.refresh()
    except LogMoved:
        pass
    else:
        return  # the entry lay in a slot that had been trimmed
    assert journals.nodes is not None
    to = former.state.journals
    nodes = JournalNodes(journals.nodes.cluster, to.nodes, to.generation)
    there = journals.place_of(nodes)
    if not _has_begun(former, there):
        for journal, start in others(journals):
            if _end(journal, start, JournalEnded(to.generation, to.nodes)):
                begin(journal, there)
        begin(former, there)
    place = journals.place
    journals.locate_at(nodes)
    journals.announce(place)


def start_topic(record: TopicRecord, nodes: Mapping[NodeId, Node]) -> topic.StartTopic:
    return topic.StartTopic(
        name=record.name,
        topic_id=record.topic_id,
        config=record.config,
        schemas=record.schemas,
        incarnations={
            member: node_of(nodes, member).incarnation for members in record.assignments for member in members
        },
        assignments=record.assignments,
    )


def others(journals: ClusterJournals) -> Iterator[tuple[Journal[Any, Any], Callable[[], Any] | None]]:
    """Yield the journals of the topics and groups that the cluster knows, each with what makes its first command.

    That is for one that has not begun: a node on which an older topic was created may have been removed since.
    """
    state = journals.cluster.state
    for record in state.topics.values():
        yield journals.of_topic(record.name, record.topic_id), partial(start_topic, record, state.nodes)
    for topic_id, name in state.deletions.items():
        yield journals.of_topic(name, topic_id), None
    for group in state.groups.values():
        yield journals.of_group(group.journal_id), partial(StartGroup, group.group_id)


def _end(journal: Journal[Any, Any], start: Callable[[], Any] | None, ended: JournalEnded) -> bool:
    """End a journal, unless it has ended; begin one that has not begun, so that nobody else does it now.

    Return whether there is one.
    """
    with contextlib.suppress(LogMoved):
        if not journal.refresh().started:
            if start is None:
                return False
            journal.submit(start())
        journal.submit(EndJournal(ended))
    return True


def _has_begun(journal: Journal[Any, Any], place: SeveralStores) -> bool:
    """Return whether a journal that has ended has begun in a place. Raises `StoreError`."""
    there = journal.entries_at(place)
    return there.read(journal.number) is not None or there.newest_snapshot() > journal.number


def begin(journal: Journal[Any, Any], place: SeveralStores) -> None:
    """Begin a journal that has ended in the place where it goes on, unless it has begun there."""
    data = journal.entries.read(journal.number)
    if data is None or _has_begun(journal, place):
        return  # without it: a store is one of later ones, too, and has shown a snapshot from after the end
    journal.entries.confirm(journal.number)
    journal.create_snapshot(journal.objects_at(place))
    try:
        # Registers of its own, which are not used again: of those who write these bytes nobody leads at the next slot.
        journal.entries_at(place).propose(journal.number, data)
    except OutcomeUnknown as error:  # of bytes that all processes write: nobody has to look for an effect
        message = f"it is unknown whether the journal in {journal.folder} has begun at {place.url}: try again"
        raise StoreUnavailable(place.url, journal.folder, message) from error


def leave_the_end(journal: Journal[Any, Any]) -> int:
    """Delete a journal that has ended but for its last entry, which stays for ever with a snapshot.

    Return the number of deleted objects. A store may be one of the new ones, too, and show what has come since.
    """
    with contextlib.suppress(LogMoved):
        journal.refresh()
    if journal.entries.read(journal.number) is None:
        return 0
    journal.create_snapshot()
    return journal.objects.delete_before(journal.number)
