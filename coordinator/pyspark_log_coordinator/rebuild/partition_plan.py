"""The plan of one partition of a rebuild: which segments and chunks its log will have. Pure.

lineage      the newest leader epochs that any description, checkpoint or segment header has
segments     whole copies, on any node, whose rows belong to the lineage (`truncation.divergence`). Of a segment that no
             node has whole, the chunks that can be salvaged (`salvage`), if they make the log longer
chunks       of append files that the newest description names, below its high watermark
prefix       the longest run of these without a gap (`longest_prefix`)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster.placement import default_replication_factor
from pyspark_log_coordinator.model.partition import ChunkRef, NodeId
from pyspark_log_coordinator.rebuild import longest_prefix
from pyspark_log_coordinator.rebuild.longest_prefix import Prefix
from pyspark_log_coordinator.rebuild.salvage import Salvage
from pyspark_log_coordinator.replication import truncation
from pyspark_log_storage.files.row_files import EpochStarts, SegmentFile

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.rebuild.folder_scan import FolderContents, FoundSegment

EPOCH_MARGIN = 1_000
"""How far the new leader epoch is above the newest known one: readers may know later epochs than any folder."""
_NO_END = 2**63 - 1

GoodChunk = tuple[int, int]
"""A chunk of a description that a node has whole: its partition and base offset."""


class ChosenSegment(msgspec.Struct, frozen=True):
    """A segment that will be in the log, and the nodes that have it whole."""

    file: SegmentFile
    nodes: tuple[NodeId, ...]
    unindexed: tuple[NodeId, ...] = ()
    """The nodes whose index is missing or damaged."""
    salvage: Salvage | None = None
    """What the segment is to be made of, if no node has it whole."""

    @property
    def base_offset(self) -> int:
        """The first row's offset."""
        return self.file.base_offset

    @property
    def end_offset(self) -> int:
        """The offset after the last row."""
        return self.file.end_offset


LogPrefix = Prefix[ChosenSegment, ChunkRef]


class PartitionPlan(msgspec.Struct, frozen=True):
    """What a partition will be."""

    replicas: tuple[NodeId, ...]
    epoch_starts: EpochStarts
    """With the new leader epoch."""
    log_start: int
    log_end: int
    segments: tuple[ChosenSegment, ...]
    chunks: tuple[ChunkRef, ...]
    """With the file numbers of the description."""
    reached: dict[NodeId, int]
    """The end of the chosen rows that each node has, without a gap from the log start."""
    known_start: int
    known_end: int
    """The log start, and the highest high watermark, in any folder."""

    @property
    def lost(self) -> int:
        """How many of the rows between `known_start` and `known_end` are not in the log."""
        return max(0, self.log_start - self.known_start) + max(0, self.known_end - self.log_end)


class PartitionPlanner:
    """Plans one partition from the folders of all nodes."""

    def __init__(
        self,
        number: int,
        folders: Mapping[NodeId, FolderContents],
        known: Topic | None,
        nodes: Sequence[NodeId],
        salvages: Sequence[Salvage],
    ) -> None:
        """`known` is the newest description's state, `nodes` are all nodes in order."""
        self._number = number
        self._folders = folders
        self._nodes = nodes
        self._described = known.partitions[number] if known is not None and number < len(known.partitions) else None
        self._found = {
            node: [each for each in folders[node].segments if each.partition == number]
            for node in nodes
            if node in folders
        }
        histories = self._histories()
        self._lineage: EpochStarts = histories[-1] if histories else ((0, 0),)
        # The first leader epoch that is kept begins at the log start, which never moves back.
        starts = [0 if self._described is None else self._described.log_start, *(each[0][1] for each in histories)]
        self._log_start = max(starts)
        self._salvages = [each for each in salvages if each.partition == number and self.belongs(each)]

    def belongs(self, found: FoundSegment | Salvage) -> bool:
        """Return whether all rows of a segment are in the lineage."""
        end = found.file.end_offset
        return truncation.divergence(found.epochs, end, self._lineage, _NO_END) >= end

    def prefix(self, good: Collection[GoodChunk], bad_files: Collection[int]) -> LogPrefix:
        """Return the longest run of segments and chunks.

        `good` are the chunks that any node has whole, `bad_files` the numbers of append files not to use.
        """
        segments = self._segments()
        chunks = [
            each for each in self._chunks() if (self._number, each.base_offset) in good and each.file not in bad_files
        ]
        prefix = longest_prefix.longest(segments, chunks, self._log_start)
        left = sorted(self._salvages, key=lambda each: (each.file.base_offset, -each.file.end_offset))
        # A salvaged segment lengthens the log at its end, or in reverse order at its start, or not if a gap follows.
        for one in (*left, *reversed(left)):
            more = [*segments, ChosenSegment(one.file, (), (), one)]
            longer = longest_prefix.longest(more, chunks, self._log_start)
            if _is_longer(longer, prefix):
                segments, prefix = more, longer
        return prefix

    def plan(self, prefix: LogPrefix, holders: Mapping[int, tuple[NodeId, ...]]) -> PartitionPlan:
        """Return the plan for a prefix; `holders` are the nodes that have all that is used of each append file."""
        starts = [each for each in self._lineage if each[1] < prefix.log_end]
        before = [each for each in starts if each[1] <= prefix.log_start]
        kept = [(before[-1][0], prefix.log_start)] if before else []
        kept += [each for each in starts if each[1] > prefix.log_start]
        epoch = self._lineage[-1][0] + EPOCH_MARGIN
        described = 0 if self._described is None else self._described.high_watermark
        marks = [folder.high_watermarks.get(self._number, 0) for folder in self._folders.values()]
        return PartitionPlan(
            replicas=self._replicas(),
            epoch_starts=(*kept, (epoch, prefix.log_end)),
            log_start=prefix.log_start,
            log_end=prefix.log_end,
            segments=prefix.segments,
            chunks=prefix.chunks,
            reached={node: _reached(prefix, holders, node) for node in self._nodes},
            known_start=self._log_start,
            known_end=max(*marks, described),
        )

    def _histories(self) -> list[EpochStarts]:
        """Return the partition's leader epochs as each place knows them, the newest last."""
        found = [folder.epochs.get(self._number, ()) for folder in self._folders.values()]
        found += [each.epochs for segments in self._found.values() for each in segments]
        if self._described is not None:
            found.append(self._described.epoch_starts)
        return sorted((each for each in found if each), key=lambda each: (each[-1][0], len(each)))

    def _segments(self) -> list[ChosenSegment]:
        """Return the segments of the lineage that some node has whole."""
        copies: dict[str, dict[NodeId, FoundSegment]] = {}
        for node, segments in self._found.items():
            for each in segments:
                if each.why is None and self.belongs(each):
                    copies.setdefault(each.file.name, {})[node] = each
        return [
            ChosenSegment(
                next(iter(found.values())).file,
                tuple(found),
                tuple(node for node, each in found.items() if not each.indexed),
            )
            for found in copies.values()
        ]

    def _chunks(self) -> list[ChunkRef]:
        """Return the committed chunks of the description that belong to the lineage."""
        described = self._described
        if described is None:
            return []
        end = truncation.divergence(described.epoch_starts, described.high_watermark, self._lineage, _NO_END)
        return [each for each in described.chunks if each.end_offset <= end]

    def _replicas(self) -> tuple[NodeId, ...]:
        """Return the described replicas among the nodes; without any, the nodes that have some of the partition."""
        described = () if self._described is None else self._described.replicas
        if found := tuple(node for node in described if node in self._nodes):
            return found
        having = [
            node
            for node, segments in self._found.items()
            if segments or self._number in self._folders[node].high_watermarks
        ]
        return tuple(having) or tuple(self._nodes[: default_replication_factor(len(self._nodes))])


def _reached(prefix: LogPrefix, holders: Mapping[int, tuple[NodeId, ...]], node: NodeId) -> int:
    reached = prefix.log_start
    for segment in prefix.segments:
        if node not in segment.nodes:
            return reached
        reached = segment.end_offset
    for chunk in prefix.chunks:
        if node not in holders[chunk.file]:
            return reached
        reached = chunk.end_offset
    return reached


def _is_longer(new: LogPrefix, old: LogPrefix) -> bool:
    """Return whether a prefix has all rows of another, and more."""
    rows, before = new.log_end - new.log_start, old.log_end - old.log_start
    return rows > before and (before == 0 or (new.log_start <= old.log_start and new.log_end >= old.log_end))
