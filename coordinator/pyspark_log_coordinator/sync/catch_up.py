"""Copying: a node gets the files that it misses, and the topic's journal is told.

    missing     which files and segments a node lacks, the oldest rows first
    catch_up    copies them from the nearest holder, checks the node's marker, and says in one entry that it holds them
    absent      what a node is said to hold and has not: its disk was restored from a backup, with the right marker

Whoever needs a copy makes it: a follower, or a commit that waits for one. Two that copy one file at once do no harm:
one gets the name, the other finds it there. An object is either on a node, whole, or not, so after an interruption
copying goes on with the next object; what was copied and not told yet is read once more, and told.

A node that is out of an ISR gets back what is absent before it is in again, else it would count for rows that it lacks.
A source that is found damaged, where another is whole, is reported (`bad_copies`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.log.node_admin import update_topic
from pyspark_log_coordinator.model.node_order import named
from pyspark_log_coordinator.replication import replicas
from pyspark_log_coordinator.replication.file_holders import HoldFiles
from pyspark_log_coordinator.sync import damage_reports, replica_file
from pyspark_log_coordinator.sync.replica_file import (
    ReplicaFile,
    _is_there,
    absent,
    check,
    missing,
    sources,
)
from pyspark_log_coordinator.sync.replica_probe import has_required_files
from pyspark_log_storage import node as node_marker
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing, StoreError, StoreUnavailable
from pyspark_log_storage.failover import AllCopiesFailed, first_readable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.model.topic_state import Topic

TELL_OBJECTS = 256
TELL_BYTES = 256 * 1024 * 1024
TELL_SECONDS = 2.0
"""After so many objects, so many bytes or so long the journal is told what the node holds by now."""


class CopyResult(msgspec.Struct, frozen=True):
    """What came of catching up."""

    objects: int
    bytes: int
    failures: tuple[LogError, ...]
    """What could not be copied, from anywhere."""


def catch_up(
    handle: TopicHandle,
    node_id: NodeId,
    *,
    moved: Callable[[int], object] = bool,
    failed: Callable[[LogError], object] = bool,
    until: float | None = None,
) -> CopyResult:
    """Copy what a node lacks of a topic until it lacks nothing, and tell the journal in passing.

    The handle is refreshed. `moved` is told how many bytes have passed since it was told last, and may wait
    (`Throttle`). `failed` is told of an object that cannot be copied from anywhere: the others go on. `until` is a time
    of the environment's monotonic clock: past it no further object is begun. Raises `NodeMissing` where the node's
    store is not the one that the cluster knows, and `StoreError` where it cannot be written.
    """
    log = handle.log
    member = log.cluster.state.nodes[node_id]
    target = log.node_store(node_id)
    # Else what is written below a mount point could be taken for the node's, once the disk is mounted.
    node_marker.require_marker(target, node_id, member.incarnation)
    update_topic(handle, node_id)
    copier = _Copier(handle, node_id, moved, until)
    told: dict[str, LogError] = {}
    state = handle.refresh()
    returns = _is_out_of_an_isr(state, node_id) and (missing(handle, node_id) or _has_news(handle, node_id))
    put_back = copier.put_back() if returns else CopyResult(0, 0, ())
    objects, size = put_back.objects, put_back.bytes
    if put_back.failures or copier.is_late():
        for error in put_back.failures:
            failed(error)
        return put_back
    announced = False
    while True:
        state = handle.refresh()
        wanted = missing(handle, node_id)
        for piece in wanted:
            # Only now is it certain that it was not rolled or expired meanwhile.
            if piece.key in copier.tried and piece.key not in told:
                told[piece.key] = copier.tried[piece.key]
                failed(told[piece.key])
        todo = [] if copier.is_late() else [piece for piece in wanted if piece.key not in copier.tried]
        done = copier.copy_some(todo)
        if done:
            node_marker.require_marker(target, node_id, member.incarnation)
            # What was copied while the disk was not mounted lies below the mount point.
            done = [piece for piece in done if _is_there(target, piece)]
        elif todo:
            continue  # none of them could be copied
        elif announced or not _has_news(handle, node_id):
            return CopyResult(objects, size, tuple(told.values()))
        _tell(handle, node_id, member.incarnation, done)
        while copier.bad:
            damage_reports.report(handle, *copier.bad.pop())
        announced = not done
        objects += len(done)
        size += sum(piece.bytes for piece in done)


def copy_again(handle: TopicHandle, node_id: NodeId, piece: ReplicaFile) -> None:
    """Put a whole copy of a file in the place of one that is damaged or gone, and that goes on being counted.

    Raises `CorruptObject`, `StoreError` where no whole one can be read, or the node not be written; then what is there
    stays.
    """
    _Copier(handle, node_id, bool, None).copy(piece)


class _Copier:
    """Copies pieces of a topic to a node, and remembers which it could not."""

    def __init__(
        self, handle: TopicHandle, node_id: NodeId, moved: Callable[[int], object], until: float | None
    ) -> None:
        self._handle = handle
        self._log = handle.log
        self._node_id = node_id
        self._target = handle.log.node_store(node_id)
        self._moved = moved
        self._until = until
        self.bad: list[tuple[NodeId, ReplicaFile]] = []
        """Copies of others that could not be read whole, of what was then copied from another node."""
        self.tried: dict[str, LogError] = {}
        """Why a piece could not be copied, by its key: it is not tried again."""

    def is_late(self) -> bool:
        """Whether nothing more is to be begun."""
        return self._until is not None and self._log.environment.monotonic() >= self._until

    def put_back(self) -> CopyResult:
        """Copy what is absent from the node; return what came of it."""
        objects = size = 0
        while todo := [piece for piece in absent(self._handle, self._node_id) if piece.key not in self.tried]:
            done = self.copy_some(todo)
            objects += len(done)
            size += sum(piece.bytes for piece in done)
            if self.is_late():
                break
            self._handle.refresh()
        left = absent(self._handle, self._node_id) if self.tried else []
        return CopyResult(objects, size, tuple(self.tried[each.key] for each in left if each.key in self.tried))

    def copy_some(self, todo: list[ReplicaFile]) -> list[ReplicaFile]:
        """Copy as many of the pieces as the journal is told of at once; return them."""
        clock = self._log.environment.monotonic
        stop = clock() + TELL_SECONDS
        done: list[ReplicaFile] = []
        size = 0
        for piece in todo:
            if self.is_late() or len(done) >= TELL_OBJECTS or size >= TELL_BYTES or clock() >= stop:
                break
            try:
                self.copy(piece)
            except (CorruptObject, StoreError) as error:
                if self._is_ours(error):
                    raise
                self.tried[piece.key] = error
            else:
                done.append(piece)
                size += piece.bytes
        return done

    def copy(self, piece: ReplicaFile) -> None:
        """Copy a piece from the nearest holder that has it whole. Raises what the last one raised.

        A damaged copy that the node has of it is replaced in one step: of two that do so nobody takes the other's away.
        """
        error: CorruptObject | None = None
        if _is_there(self._target, piece):
            try:
                check(self._target, piece, self._moved)
            except CorruptObject as raised:
                error = raised
            else:
                return
        is_damaged = error is not None
        bad: list[tuple[NodeId, ReplicaFile]] = []

        def copy_from(source: NodeId) -> None:
            replica_file.copy(self._log.node_store(source), self._target, piece, self._moved, replace=is_damaged)

        def note(source: NodeId, raised: CorruptObject | StoreError) -> None:
            if self._is_ours(raised):
                raise raised
            if isinstance(raised, (CorruptObject, ObjectMissing)):
                bad.append((source, piece))

        try:
            first_readable(sources(self._handle, piece.holders, self._node_id), copy_from, note)
        except AllCopiesFailed as failed:
            names = named({holder.node for holder in piece.holders})
            message = f"it cannot be copied to node {self._node_id!r}: of its holders ({names}) none is there"
            none = StoreUnavailable("", piece.key, f"{piece.key}: {message}; bring one back")
            raise [error or none, *failed.errors.values()][-1] from None
        except StoreError as raised:  # of the node's own store
            if is_damaged:
                raise
            if not _is_there(self._target, piece):
                if _is_taken(raised):
                    raise ObjectMissing(self._target.url, piece.key) from raised  # it has expired since
                raise
            # Another was quicker.
            check(self._target, piece, self._moved)
        else:
            self.bad += bad

    def _is_ours(self, error: LogError) -> bool:
        """Return whether an error is of the node's own store, and no object that was removed meanwhile."""
        return isinstance(error, StoreError) and not isinstance(error, ObjectMissing) and error.url == self._target.url


def _is_out_of_an_isr(state: Topic, node_id: NodeId) -> bool:
    return any(node_id in each.replicas and node_id not in each.isr for each in state.partitions)


def _has_news(handle: TopicHandle, node_id: NodeId) -> bool:
    """Return whether the journal is to hear of a node that lacks nothing: it is suspected, or may join an ISR.

    Who is suspected because its disk is an older one stays so.
    """
    state = handle.journal.state
    if node_id in state.suspects and has_required_files(handle, node_id):
        return True
    return node_id not in state.fenced and any(replicas.may_join_isr(each, node_id) for each in state.partitions)


def _tell(handle: TopicHandle, node_id: NodeId, incarnation: str, done: list[ReplicaFile]) -> None:
    """Tell the journal that the node holds the pieces too."""
    files = tuple(piece.number for piece in done if piece.segment is None)
    segments = tuple((piece.number, piece.segment.name) for piece in done if piece.segment is not None)
    handle.submit(HoldFiles(node_id, incarnation, files, segments))


def _is_taken(error: LogError) -> bool:
    """Return whether a writer's end was refused because there was an object already."""
    return type(error) is StoreError
