"""The plan of a rebuild: what topics and their partitions will be, and the files that have no place in them. Pure.

Of a partition:

lineage      the newest leader epochs that any description or segment header has, or a checkpoint if its node has no
             description or the checkpoint continues its leader epochs
segments     whole copies, on any node, whose rows belong to the lineage (`truncation.divergence`). Of a segment that no
             node has whole, the chunks that can be salvaged (`salvage`), if they make the log longer
chunks       of append files that the newest description names, below its high watermark
prefix       the longest run of these without a gap (`longest_prefix`)

Files that are neither used nor known to be contained in what is used are set aside: moved, never deleted. Without a
description the topic gets the default configuration, except that no rows expire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster.placement import default_replication_factor
from pyspark_log_coordinator.model.partition import ChunkRef, NodeId, by_number
from pyspark_log_coordinator.model.topic_config import UNLIMITED, TopicConfig
from pyspark_log_coordinator.rebuild import longest_prefix
from pyspark_log_coordinator.rebuild.folder_scan import TopicFolder
from pyspark_log_coordinator.rebuild.longest_prefix import Prefix
from pyspark_log_coordinator.rebuild.salvage import Salvage
from pyspark_log_coordinator.replication import truncation
from pyspark_log_storage import layout
from pyspark_log_storage.files.row_files import EpochStarts, SegmentFile

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark_log_coordinator.maintenance.topic_description import Description
    from pyspark_log_coordinator.model.producers import Producer
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.rebuild.folder_scan import FolderContents, FoundSegment

NUMBER_MARGIN = 1_000_000
"""The lost journal had fewer entries than this after the newest entry that any file names: each batch leaves a file."""
EPOCH_MARGIN = 1_000
"""How far the new leader epoch is above the newest known one: readers may know later epochs than any folder."""
_NO_END = 2**63 - 1

GoodChunk = tuple[int, int]
"""A chunk of a description that a node has whole: its partition and base offset."""


class TopicPlan(msgspec.Struct, frozen=True):
    """What a topic will be."""

    folder: TopicFolder
    entry: int
    """The number of its journal's first entry."""
    description: Description | None
    config: TopicConfig
    schemas: tuple[bytes, ...]
    partitions: tuple[PartitionPlan, ...]
    files: dict[int, tuple[str, tuple[NodeId, ...]]]
    """Name and holders of the append files that chunks are in, by the numbers of the description."""
    files_made: frozenset[int]
    """Those that no node has whole. The holder makes the file of the good chunks of all copies."""
    producers: dict[str, Producer]
    segments_aside: dict[NodeId, tuple[str, ...]]
    """The segments that each node sets aside, as <partition>/<name> without ending."""
    files_aside: dict[NodeId, tuple[str, ...]]
    """The append files that each node sets aside."""
    unplaced: tuple[str, ...]
    """The append files whose rows have no known offsets."""
    undecided: int = 0
    """How many rows at the ends of partitions are those of a vote that may not have been decided."""


def next_number(newest: int) -> int:
    """Return the first entry number of a new journal, above any that the lost one can have had.

    `newest` is the largest entry number that any file names.
    """
    return (newest // NUMBER_MARGIN + 2) * NUMBER_MARGIN


def newest_description(folders: Mapping[NodeId, FolderContents]) -> Description | None:
    """Return the newest description. One made from a journal is completed from stored ones."""
    found = [each.description for each in folders.values() if each.description is not None]
    newest = max(found, key=lambda each: (each.number, each.created_ms), default=None)
    if newest is None:
        return None
    known = max(found, key=lambda each: (len(each.nodes) > 0, each.number))
    return msgspec.structs.replace(newest, created_ms=known.created_ms, nodes=known.nodes)


def plan_topic(
    folder: TopicFolder,
    folders: Mapping[NodeId, FolderContents],
    good: Mapping[NodeId, frozenset[GoodChunk]],
    nodes: Sequence[NodeId],
    salvages: Sequence[Salvage],
    schemas: tuple[bytes, ...],
) -> TopicPlan:
    """Return what a topic with these stored `schemas` will be.

    `good` are the chunks of the newest description that each node has whole, `salvages` the remains of segments that
    no node has whole.
    """
    description = newest_description(folders)
    known = description.topic if description is not None else None
    planning = _Planning(folders, known, good, nodes, salvages)
    partitions, holders, files_made = planning.partitions()
    files = {number: (known.file(number).name, nodes) for number, nodes in holders.items()} if known is not None else {}
    files_aside, unplaced = planning.files_aside(partitions, files)
    return TopicPlan(
        folder=folder,
        entry=next_number(max(each.newest for each in folders.values())),
        description=description,
        config=TopicConfig(retention_ms=UNLIMITED) if known is None else known.config,
        schemas=schemas,
        partitions=partitions,
        files=files,
        files_made=files_made,
        producers={} if known is None else _producers(known, partitions),
        segments_aside=planning.segments_aside(partitions),
        files_aside=files_aside,
        unplaced=unplaced,
    )


class _Planning:
    """Plans one topic."""

    def __init__(
        self,
        folders: Mapping[NodeId, FolderContents],
        known: Topic | None,
        good: Mapping[NodeId, frozenset[GoodChunk]],
        nodes: Sequence[NodeId],
        salvages: Sequence[Salvage],
    ) -> None:
        self._folders = folders
        self._known = known
        self._good = good
        self._nodes = sorted(nodes, key=by_number)
        count = max(1 if known is None else len(known.partitions), *(each.partitions for each in folders.values()))
        self._planners = [PartitionPlanner(each, folders, known, self._nodes, salvages) for each in range(count)]

    def partitions(self) -> tuple[tuple[PartitionPlan, ...], dict[int, tuple[NodeId, ...]], frozenset[int]]:
        """Return what the partitions will be, the holders of the append files that they need, and the files to make."""
        good = {chunk for chunks in self._good.values() for chunk in chunks}
        prefixes = [each.prefix(good) for each in self._planners]
        holders: dict[int, tuple[NodeId, ...]] = {}
        made: set[int] = set()
        for file, chunks in _needed(prefixes).items():
            has = {node: len(chunks & self._good.get(node, frozenset())) for node in self._nodes}
            holders[file] = tuple(node for node in self._nodes if has[node] == len(chunks))
            if not holders[file]:
                made.add(file)
                holders[file] = (max(self._nodes, key=lambda node: has[node]),)
        plans = (planner.plan(prefix, holders) for planner, prefix in zip(self._planners, prefixes, strict=True))
        return tuple(plans), holders, frozenset(made)

    def segments_aside(self, partitions: Sequence[PartitionPlan]) -> dict[NodeId, tuple[str, ...]]:
        """Return the segments that each node sets aside."""
        chosen = {(number, one.file.name) for number, each in enumerate(partitions) for one in each.segments}

        def stays(found: FoundSegment) -> bool:
            if found.why is not None:
                return False  # its name must be free for a whole copy
            is_chosen = (found.partition, found.file.name) in chosen
            contained = found.file.end_offset <= partitions[found.partition].log_end
            return is_chosen or (contained and self._planners[found.partition].belongs(found))

        return {
            node: tuple(f"{each.partition}/{each.file.name}" for each in folder.segments if not stays(each))
            for node, folder in self._folders.items()
        }

    def files_aside(
        self, partitions: Sequence[PartitionPlan], files: Mapping[int, tuple[str, tuple[NodeId, ...]]]
    ) -> tuple[dict[NodeId, tuple[str, ...]], tuple[str, ...]]:
        """Return the append files that each node sets aside, and those whose rows have no known offsets."""
        holders = dict(files.values())
        contained = self._contained(partitions)
        aside = {
            node: tuple(
                name
                for name in folder.append_files
                if name not in contained and (name not in holders or node not in holders[name])
            )
            for node, folder in self._folders.items()
        }
        unplaced = {name for names in aside.values() for name in names if name not in holders}
        return aside, tuple(sorted(unplaced))

    def _contained(self, partitions: Sequence[PartitionPlan]) -> set[str]:
        """Return the append files whose rows have all expired or are in the chosen segments and chunks."""
        known = self._known
        if known is None:
            return set()
        for described, found in zip(known.partitions, partitions, strict=False):
            if found.log_end < described.log_end or found.log_start > described.log_start:
                return set()
        needed = {chunk.file for each in partitions for chunk in each.chunks}
        rolled = {file.name for number, file in enumerate(known.files, known.first_file) if number not in needed}
        return rolled | {each.key.removeprefix("append/") for each in known.pending_deletions}


def _needed(prefixes: Sequence[LogPrefix]) -> dict[int, set[GoodChunk]]:
    """Return the chosen chunks of each append file."""
    needed: dict[int, set[GoodChunk]] = {}
    for number, prefix in enumerate(prefixes):
        for chunk in prefix.chunks:
            needed.setdefault(chunk.file, set()).add((number, chunk.base_offset))
    return needed


def _producers(known: Topic, partitions: Sequence[PartitionPlan]) -> dict[str, Producer]:
    """Return the producers, each with the number of rows of its last batch that are lost."""
    producers = dict(known.producers)
    for described, found in zip(known.partitions, partitions, strict=False):
        for chunk in described.chunks:
            file = known.file(chunk.file)
            producer = producers.get(file.producer)
            missing = chunk.end_offset - max(chunk.base_offset, found.log_end)
            if missing > 0 and producer is not None and producer.batch_id == file.batch_id:
                lost = producer.rows_lost + missing
                producers[file.producer] = msgspec.structs.replace(producer, rows_lost=lost)
    return producers


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
    def rows(self) -> int:
        """How many rows will be in the log: a keyed segment lacks some of its range."""
        keyed = [(each.end_offset - each.base_offset, each.file.keyed) for each in self.segments]
        return self.log_end - self.log_start - sum(span - counts.rows for span, counts in keyed if counts is not None)

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

    def prefix(self, good: Collection[GoodChunk]) -> LogPrefix:
        """Return the longest run of segments and chunks; `good` are the chunks that any node has whole."""
        segments = self._segments()
        chunks = [each for each in self._chunks() if (self._number, each.base_offset) in good]
        prefix = self._longest(segments, chunks)
        left = sorted(self._salvages, key=lambda each: (each.file.base_offset, -each.file.end_offset))
        # A salvaged segment lengthens the log at its end, or in reverse order at its start, or not if a gap follows.
        for one in (*left, *reversed(left)):
            more = [*segments, ChosenSegment(one.file, (), (), one)]
            longer = self._longest(more, chunks)
            if _is_longer(longer, prefix):
                segments, prefix = more, longer
        return prefix

    def _longest(self, segments: Sequence[ChosenSegment], chunks: Sequence[ChunkRef]) -> LogPrefix:
        """Return the longest run. It begins with keyed segments, or has none: a dense one may be what they replaced."""
        keyed = [each for each in segments if each.file.keyed is not None]
        keyed.sort(key=lambda each: -layout.born_of(each.file.name))  # of two with one range the newer counts
        dense = [each for each in segments if each.file.keyed is None]
        prefix = longest_prefix.longest(dense, chunks, self._log_start)
        if not keyed:
            return prefix
        first: LogPrefix = longest_prefix.longest(keyed, (), self._log_start)
        later = [each for each in dense if each.base_offset >= first.log_end]
        rest = longest_prefix.longest(later, chunks, first.log_end)
        if rest.log_start > first.log_end:
            rest = Prefix(first.log_end, first.log_end, (), ())
        compacted = Prefix(first.log_start, rest.log_end, (*first.segments, *rest.segments), rest.chunks)
        return prefix if _is_longer(prefix, compacted) else compacted

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
