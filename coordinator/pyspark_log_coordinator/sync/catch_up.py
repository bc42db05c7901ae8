"""Catch-up: copies to a node the files that it lacks of a topic, and submits to the journal that it holds them.

Any process may do this: a follower, or a commit that waits for the copy. Two that copy the same file do no harm: one
creates it, the other finds it. A file is on a node as a whole or not at all, so an interrupted catch-up continues with
the next file; files that were copied but not submitted are read again, then submitted.

Files are copied from the nearest holder that has them whole, the oldest rows first. If a holder's copy turns out to be
damaged, it is cured (`faults`). Before a node joins an ISR again, it gets back the files that it has lost, because it
would count for rows that it lacks. If one cannot be copied, the others are copied and not submitted: the node stays out
of sync until a holder is back, or the node is renewed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.replication import replicas
from pyspark_log_coordinator.replication.file_holders import HoldFiles
from pyspark_log_coordinator.sync import faults, replica_file
from pyspark_log_coordinator.sync.replica_file import ReplicaFile, absent, has_required_files, is_stored, missing
from pyspark_log_storage.errors import CorruptObject, LogError, StoreError
from pyspark_log_storage.objects import node as node_marker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark_log_coordinator.cluster.nodes import Node
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId, Partition

SUBMIT_OBJECTS = 256
SUBMIT_BYTES = 256 * 1024 * 1024
SUBMIT_SECONDS = 2.0
"""One entry is submitted after this number of objects, of bytes or of seconds."""


class CopyResult(msgspec.Struct, frozen=True):
    """The outcome of a catch-up."""

    objects: int
    bytes: int
    failures: tuple[LogError, ...]
    """The errors of files that could not be copied from any holder."""


def catch_up(
    handle: TopicHandle,
    node_id: NodeId,
    *,
    moved: Callable[[int], object] = lambda _: None,
    deadline: float | None = None,
) -> CopyResult:
    """Copy what a node lacks of a topic until it lacks nothing, and submit that it holds the copies.

    `moved` gets the number of bytes copied since its last call, and may wait (`Throttle`). `deadline` is a time of the
    environment's monotonic clock, after which no further file is begun. Raises `NodeMissing` if the node's store is not
    the one that the cluster knows, `StoreError` if it cannot be written.
    """
    log = handle.log
    node_admin.update_topic(handle, node_id)
    member = log.node(node_id)
    target = log.node_store(node_id)
    # While the disk is not mounted, copies would be written below its mount point.
    node_marker.require_marker(target, node_id, member.incarnation)
    copier = _Copier(handle, node_id, moved, deadline)
    state = handle.refresh()
    may_join = _is_out_of(state.partitions, node_id) and (missing(state, node_id) or _has_news(handle, node_id))
    lost = copier.copy_absent(is_held=True) if may_join or node_id in state.suspects else []
    state = handle.journal.state
    if copier.is_past_deadline() or any(
        node_id in state.suspects or _is_out_of([state.partitions[each] for each in file.partitions], node_id)
        for file in lost
    ):
        # The next entry that names the node might let it lead, or join the ISR, without the rows that it has lost. So
        # none says that it has the other rows, of which there is one more copy.
        return copier.result([*lost, *copier.copy_absent(is_held=False)])
    submitted_nothing_new = False
    while True:
        handle.refresh()
        wanted = missing(handle.journal.state, node_id)
        todo = copier.left(wanted)
        done = copier.copy_some(todo)
        if done:
            node_marker.require_marker(target, node_id, member.incarnation)
            # Copies made while the disk was not mounted are below the mount point.
            done = [file for file in done if is_stored(target, file)]
        elif todo:
            continue  # none of them could be copied
        elif submitted_nothing_new or not _has_news(handle, node_id):
            return copier.result([*lost, *wanted])
        handle.submit(HoldFiles(node_id, member.incarnation, *replica_file.ids(done)))
        submitted_nothing_new = not done
        copier.note(done)


def renew_set_back(log: Log, node_id: NodeId) -> tuple[Node, bool]:
    """Renew a node whose disk was set back, with the rows that are left on the disk or on other nodes.

    The node is fenced until these rows are counted, or an election might cut them: the new incarnation holds nothing.
    After an interruption, `nodes renew` finds nothing to do: run `node run` and `nodes unfence`. Raises what
    `node_admin.renew` raises.
    """
    was_fenced = log.node(node_id).fenced
    node_admin.set_fenced(log, node_id, fenced=True)
    renewed = node_admin.renew(log, node_id, is_set_back=True)
    for handle in log.topics_on(node_id):
        catch_up(handle, node_id)
    if not was_fenced:
        node_admin.set_fenced(log, node_id, fenced=False)
    return renewed


class _Copier:
    """Copies files of a topic to a node."""

    def __init__(
        self, handle: TopicHandle, node_id: NodeId, moved: Callable[[int], object], deadline: float | None
    ) -> None:
        self._handle = handle
        self._environment = handle.log.environment
        self._node_id = node_id
        self._moved = moved
        self._deadline = deadline
        self._objects = 0
        self._bytes = 0
        self._errors: dict[str, LogError] = {}
        """Why files could not be copied, by key. They are not tried again."""

    def is_past_deadline(self) -> bool:
        """Return whether no further file may be begun."""
        return self._deadline is not None and self._environment.monotonic() >= self._deadline

    def copy_absent(self, *, is_held: bool) -> list[ReplicaFile]:
        """Copy the files that the store lacks of those that the node holds, or of the others; return what is left."""
        while todo := self.left(files := absent(self._handle, self._node_id, is_held=is_held)):
            self.note(self.copy_some(todo))
            self._handle.refresh()
        return files

    def left(self, files: list[ReplicaFile]) -> list[ReplicaFile]:
        """Return the files that are still to be tried."""
        return [] if self.is_past_deadline() else [file for file in files if file.key not in self._errors]

    def copy_some(self, todo: list[ReplicaFile]) -> list[ReplicaFile]:
        """Copy as many files as one entry names; return them."""
        end = self._environment.monotonic() + SUBMIT_SECONDS
        done: list[ReplicaFile] = []
        for file in todo:
            is_enough = len(done) >= SUBMIT_OBJECTS or sum(each.bytes for each in done) >= SUBMIT_BYTES
            if is_enough or self.is_past_deadline() or self._environment.monotonic() >= end:
                break
            try:
                faults.make_whole(self._handle, self._node_id, file, self._moved)
            except (CorruptObject, StoreError) as error:
                if replica_file.is_of_store(error, self._handle.log.node_store(self._node_id)):
                    raise
                self._errors[file.key] = error
            else:
                done.append(file)
        return done

    def note(self, done: list[ReplicaFile]) -> None:
        """Count files that were copied."""
        self._objects += len(done)
        self._bytes += sum(file.bytes for file in done)

    def result(self, wanted: list[ReplicaFile]) -> CopyResult:
        """Return what was copied, and why files were not that the node still lacks."""
        errors = {file.key: self._errors[file.key] for file in wanted if file.key in self._errors}
        return CopyResult(self._objects, self._bytes, tuple(errors.values()))


def _is_out_of(partitions: Iterable[Partition], node_id: NodeId) -> bool:
    """Return whether a node is a replica of one of the partitions, and not in its ISR."""
    return any(node_id in each.replicas and node_id not in each.isr for each in partitions)


def _has_news(handle: TopicHandle, node_id: NodeId) -> bool:
    """Return whether an entry changes anything for a node that lacks nothing: it is suspected, or may join an ISR.

    A node that is suspected because its disk was set back stays so.
    """
    state = handle.journal.state
    if node_id in state.suspects and has_required_files(handle, node_id):
        return True
    return node_id not in state.fenced and any(replicas.may_join_isr(each, node_id) for each in state.partitions)
