"""Repair of a topic without loss.

copies        that are damaged or missing are copied again from another node, and indexes rebuilt (`faults.cure`)
journal       damaged objects on a journal node are replaced from the other journal nodes
descriptions  that are damaged are written again
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from pyspark_log_coordinator.audit.verify import ReadableCopies
from pyspark_log_coordinator.journal.trimming import oldest_kept
from pyspark_log_coordinator.log import topic_description
from pyspark_log_coordinator.maintenance import descriptions
from pyspark_log_coordinator.sync import faults
from pyspark_log_storage.errors import CorruptObject, LogError

if TYPE_CHECKING:
    from pyspark_log_coordinator.journal.journal import Journal
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId


def repair(handle: TopicHandle, node: NodeId | None = None) -> list[str]:
    """Repair a topic, or one node's copies if `node` is given. Return what was repaired, as text.

    What cannot be repaired is left unchanged, and `verify` still reports it. Raises `InvalidOption` if there is no such
    node.
    """
    copies = ReadableCopies(handle.log, node)
    handle.refresh()
    made = _repair_journal(handle.journal)
    for key, name in [*_copies(handle, copies), *_descriptions(handle, copies)]:
        made.append(key if copies.is_single else f"{key} on node {name!r}")
    return made


def _copies(handle: TopicHandle, copies: ReadableCopies) -> list[tuple[str, NodeId]]:
    """Cure what can be cured; return the keys of these objects, with their nodes."""
    cured = []
    for fault in faults.faults(handle, copies.nodes):
        with contextlib.suppress(LogError):
            if faults.cure(handle, fault.node, fault.file):
                cured.append((fault.key, fault.node))
    return cured


def _descriptions(handle: TopicHandle, copies: ReadableCopies) -> list[tuple[str, NodeId]]:
    """Write the damaged descriptions again; return their keys, with their nodes."""
    written = []
    for name in copies.nodes:
        with contextlib.suppress(LogError):  # the node does not answer
            store = handle.log.node_store(name)
            try:
                topic_description.read(store, handle.name, handle.topic_id)
            except CorruptObject:
                descriptions.write(store, handle, topic_description.encode(handle.description()))
                written.append((topic_description.key(handle.name, handle.topic_id), name))
    return written


def repair_journals(log: Log) -> list[str]:
    """Repair the lists of journal nodes and the journals of the cluster and of all groups; return what was repaired."""
    journals: list[Journal[Any, Any]] = [
        log.cluster,
        *(log.group_handle(each).journal for each in log.groups().values()),
    ]
    return [*log.journals.announce(), *(key for each in journals for key in _repair_journal(each))]


def _repair_journal(journal: Journal[Any, Any]) -> list[str]:
    journal.refresh()
    return journal.objects.repair(oldest_kept(journal))
