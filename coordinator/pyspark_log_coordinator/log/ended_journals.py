"""Journals that have ended, because they go on at other stores: who opens the log follows them, and begins them there.

Why a crash at any moment is harmless is said in `journal_move`.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark_log_coordinator.cluster.nodes import node_of
from pyspark_log_coordinator.group.machine import StartGroup
from pyspark_log_coordinator.journal.journal_nodes import JournalNodes
from pyspark_log_coordinator.journal.state_machine import EndJournal, JournalEnded
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage.errors import LogMoved, OutcomeUnknown, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark_log_coordinator.cluster.cluster_state import TopicRecord
    from pyspark_log_coordinator.cluster.nodes import Node
    from pyspark_log_coordinator.journal.journal import Journal
    from pyspark_log_coordinator.journal.place import SeveralStores
    from pyspark_log_coordinator.log.cluster_journals import ClusterJournals
    from pyspark_log_coordinator.model.partition import NodeId


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
    incarnations = {each: node_of(nodes, each).incarnation for members in record.assignments for each in members}
    began = record.name, record.topic_id, record.config, record.schemas, incarnations, record.assignments
    return topic.StartTopic(topic.TopicStarted(*began))


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
