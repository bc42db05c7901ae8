"""Repair: making again what can be made without loss.

indexes       of segments that are whole
journal       objects that are missing or damaged, from their spares
copies        that are damaged or missing, from another node; a damaged one goes only when a good one was read, and when
              the journal does not count it any more, as far as it can do without (`damage`)
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import TYPE_CHECKING

from pyspark_log_coordinator.audit.readable_copies import ReadableCopies
from pyspark_log_coordinator.replication.file_holders import HoldFiles
from pyspark_log_coordinator.sync import damage_reports
from pyspark_log_coordinator.sync.replica_file import ReplicaFile, check_segment
from pyspark_log_storage import segment, transfer
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing
from pyspark_log_storage.failover import AllCopiesFailed, first_readable
from pyspark_log_storage.segment import SegmentFile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import Holder, NodeId, SegmentRef
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_storage.staged_chunk import StagedChunk
    from pyspark_log_storage.store import Store


def repair(log: Log, handle: TopicHandle, node: NodeId | None = None) -> list[str]:
    """Make again what can be made without loss, on one node where `node` is given; return what was made, for people.

    What cannot be made again stays as it is. Raises `InvalidOption` where there is no such node.
    """
    repairs = _Repairs(handle, ReadableCopies(log, node))
    state = handle.refresh()
    for number, partition in enumerate(state.partitions):
        for each in (*partition.segments, *partition.staged):
            repairs.segment(state, number, each)
    if not repairs.copies.is_single:
        for file, places in _files(state).items():
            repairs.file(state, file, places)
    return [*handle.journal.mend(contents=True), *repairs.made]


class _Repairs:
    """Looks at one file after another, and makes its bad copies again."""

    def __init__(self, handle: TopicHandle, copies: ReadableCopies) -> None:
        self._handle = handle
        self.copies = copies
        self.made: list[str] = []

    def segment(self, state: Topic, number: int, ref: SegmentRef) -> None:
        """Make indexes and bad copies of a segment again."""
        key = self._handle.segment(number, ref.name)
        bad: dict[NodeId, LogError] = {}
        for name, store in self.copies.of(state, ref.holders).items():
            try:
                entries = segment.scan(store, key)
                # Of a .log that was cut, the index may be the only word of what was lost.
                check_segment(ref, entries)
                if not segment.index_is_right(store, key, entries):
                    segment.rebuild_index(store, key)
                    self._add(f"{key}.index", name)
            except (CorruptObject, ObjectMissing) as error:
                bad[name] = error
            except LogError:
                continue  # the node does not answer; the audit says so
        stored = SegmentFile(
            ref.name, ref.base_offset, ref.end_offset, ref.chunks, ref.log_bytes, ref.min_timestamp, ref.max_timestamp
        )
        piece = ReplicaFile(key, number, ref.holders, ref.log_bytes, segment=ref)
        for name, wrong in bad.items():
            self._copy_again(
                piece,
                name,
                wrong,
                self._good(state, ref.holders, bad, name),
                lambda source: transfer.check_segment(source, key, stored),
                lambda source, target, replace: transfer.copy_segment(source, target, key, stored, replace=replace),
            )

    def file(self, state: Topic, number: int, places: Sequence[StagedChunk]) -> None:
        """Make the bad copies of an append file again."""
        file = state.file(number)
        key = self._handle.append_file(file.name)
        bad: dict[NodeId, LogError] = {}
        for name, store in self.copies.of(state, file.holders).items():
            try:
                transfer.check_append_file(store, key, places)
            except (CorruptObject, ObjectMissing) as error:
                bad[name] = error
            except LogError:
                continue
        piece = ReplicaFile(key, number, file.holders, 0, tuple(places))
        for name, wrong in bad.items():
            self._copy_again(
                piece,
                name,
                wrong,
                self._good(state, file.holders, bad, name),
                lambda source: transfer.check_append_file(source, key, places),
                lambda source, target, replace: transfer.copy_append_file(source, target, key, places, replace=replace),
            )

    def _good(self, state: Topic, holders: tuple[Holder, ...], bad: Collection[NodeId], name: NodeId) -> list[Store]:
        """Return the stores of the holders of which nothing bad is known."""
        others = self.copies.to_copy_from(state, holders, name)
        return [store for each, store in others.items() if each not in bad]

    def _copy_again(
        self,
        piece: ReplicaFile,
        name: NodeId,
        wrong: LogError,
        sources: Sequence[Store],
        check: Callable[[Store], object],
        copy: Callable[[Store, Store, bool], object],
    ) -> None:
        """Put a good copy in the place of a bad one; `wrong` is what it is."""
        key = piece.stored_key
        # What is missing may be there again, on a disk that was not mounted for a moment: that is not replaced.
        is_damaged = isinstance(wrong, CorruptObject)
        target = self.copies.stores[name]

        def copy_from(source: Store) -> None:
            check(source)
            if not self._is_named(key):
                return  # it was replaced meanwhile, and may have gone elsewhere already
            is_reported = damage_reports.report(self._handle, name, piece)
            copy(source, target, is_damaged)
            if is_reported:
                self._tell(name, piece)
            self._add(key, name)

        with contextlib.suppress(LogError, AllCopiesFailed):  # what is still wrong the audit says
            first_readable(sources, copy_from)

    def _tell(self, name: NodeId, piece: ReplicaFile) -> None:
        """Tell the journal that the node holds it again."""
        files = (piece.number,) if piece.segment is None else ()
        segments = () if piece.segment is None else ((piece.number, piece.segment.name),)
        self._handle.submit(HoldFiles(name, self._handle.journal.state.incarnations[name], files, segments))

    def _is_named(self, key: str) -> bool:
        state = self._handle.refresh()
        if any(self._handle.append_file(each.name) == key for each in state.files):
            return True
        return any(
            f"{self._handle.segment(number, each.name)}.log" == key
            for number, partition in enumerate(state.partitions)
            for each in (*partition.segments, *partition.staged)
        )

    def _add(self, key: str, node: NodeId) -> None:
        self.made.append(key if self.copies.is_single else f"{key} on node {node!r}")


def _files(state: Topic) -> dict[int, list[StagedChunk]]:
    """Return the files with unrolled chunks, by number, with those chunks."""
    found: dict[int, list[StagedChunk]] = defaultdict(list)
    for number, partition in enumerate(state.partitions):
        for chunk in partition.chunks:
            found[chunk.file].append(chunk.place(number))
    return found
