"""Repair of a topic without loss.

indexes       of whole segments are rebuilt
journal       damaged objects on a journal node are replaced from the other journal nodes
checkpoints   that are damaged are written again
copies        that are damaged or missing are copied again from another node. A damaged copy is replaced only after a
              whole one was read and, if other holders suffice (`damage`), after the journal stopped counting it.
              A staged segment of which no whole copy is left is given up
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from pyspark_log_coordinator.audit.verify import ReadableCopies
from pyspark_log_coordinator.journal.trimming import oldest_kept
from pyspark_log_coordinator.maintenance import checkpoint_files, topic_description
from pyspark_log_coordinator.replication.file_holders import HoldFiles
from pyspark_log_coordinator.sync import damage_reports, replica_file
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing, StoreUnavailable
from pyspark_log_storage.objects.node import require_marker
from pyspark_log_storage.stores.failover import AllCopiesFailed, first_readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log_coordinator.journal.journal import Journal
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.sync.replica_file import ReplicaFile
    from pyspark_log_storage.stores.store import Store


def repair(handle: TopicHandle, node: NodeId | None = None) -> list[str]:
    """Repair a topic, or one node's copies if `node` is given. Return what was repaired, as text.

    Files that cannot be repaired are left unchanged. Raises `InvalidOption` if there is no such node.
    """
    repairs = _Repairs(handle, ReadableCopies(handle.log, node))
    state = handle.refresh()
    for file in replica_file.all_files(handle):
        repairs.file(state, file)
    repairs.checkpoints(state)
    return [*_repair_journal(handle.journal), *repairs.made]


def repair_journals(log: Log) -> list[str]:
    """Repair the objects of the journals of the cluster and of all groups. Return the keys of those repaired."""
    journals: list[Journal[Any, Any]] = [
        log.cluster,
        *(log.group_handle(each).journal for each in log.groups().values()),
    ]
    return [key for each in journals for key in _repair_journal(each)]


def _repair_journal(journal: Journal[Any, Any]) -> list[str]:
    journal.refresh()
    return journal.objects.repair(oldest_kept(journal))


class _Repairs:
    """Repairs one file after another. What it cannot repair, `verify` still reports."""

    def __init__(self, handle: TopicHandle, copies: ReadableCopies) -> None:
        self._handle = handle
        self._copies = copies
        self.made: list[str] = []

    def file(self, state: Topic, file: ReplicaFile) -> None:
        """Repair the copies of a file."""
        if file.segment is None and self._copies.is_single:
            return  # an append file has no index, and there is no other copy
        bad: dict[NodeId, LogError] = {}
        for name, store in self._copies.of(state, file.holders).items():
            try:
                if replica_file.check(store, file):
                    self._add(f"{file.key}.index", name)
            except (CorruptObject, ObjectMissing) as error:
                bad[name] = error
            except StoreUnavailable as error:
                with contextlib.suppress(LogError):  # the node does not answer; if it does, the file is on a bad sector
                    require_marker(store, name, state.incarnations[name])
                    bad[name] = error
            except LogError:
                continue  # it may not be read
        for name, wrong in bad.items():
            others = self._copies.to_copy_from(state, file.holders, name)
            sources = [store for each, store in others.items() if each not in bad]
            if not sources and replica_file.is_staged(state, file):
                if damage_reports.report(self._handle, name, file):
                    self._add(file.stored_key, name)
                continue
            with contextlib.suppress(LogError, AllCopiesFailed):
                # A missing file may return with a disk that is not mounted: it must not be replaced then.
                self._copy_again(file, name, sources, replace=not isinstance(wrong, ObjectMissing))

    def checkpoints(self, state: Topic) -> None:
        """Write the damaged checkpoints again."""
        folder = layout.topic_folder(self._handle.name, self._handle.topic_id)
        for name, store in self._copies.stores.items():
            with contextlib.suppress(LogError):  # the node does not answer
                bad = [key for key, _ in checkpoint_files.damaged(store, folder, state, name)]
                description = topic_description.encode(topic_description.of(self._handle)) if bad else None
                wanted = checkpoint_files.contents(state, name, description) if bad else {}
                checkpoint_files.write(store, folder, {key: wanted[key] for key in bad})
                for key in bad:
                    self._add(f"{folder}{key}", name)

    def _copy_again(self, file: ReplicaFile, name: NodeId, sources: Sequence[Store], *, replace: bool) -> None:
        """Put a whole copy in the place of a bad one."""

        def copy_from(source: Store) -> None:
            replica_file.check(source, file)
            self._handle.refresh()
            if file.key not in {each.key for each in replica_file.all_files(self._handle)}:
                return  # it was rolled or expired, and may be deleted already
            is_reported = damage_reports.report(self._handle, name, file)
            replica_file.copy(source, self._copies.stores[name], file, replace=replace)
            if is_reported:
                incarnation = self._handle.journal.state.incarnations[name]
                self._handle.submit(HoldFiles(name, incarnation, *replica_file.ids([file])))
            self._add(file.stored_key, name)

        first_readable(sources, copy_from)

    def _add(self, key: str, node: NodeId) -> None:
        self.made.append(key if self._copies.is_single else f"{key} on node {node!r}")
