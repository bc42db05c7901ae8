"""The plan of a rebuild: what a topic will be, by what the folders of the nodes hold. Decides; does nothing itself.

lineage      the leader epochs of whoever knows the newest one: a description, a checkpoint, a segment's header
segments     whole copies whose rows belong to the lineage (`truncation.divergence`), of whichever nodes have them;
             of one that is whole nowhere what can be had chunk by chunk (`salvage`), where that makes the log longer
chunks       of append files, where the newest description says what they are, and below its HW
prefix       as much of each partition as follows without a gap (`longest_prefix`)
set aside    all that is neither used nor known to be contained in what is used: it is moved, never removed

Without a description the configuration is the default, but that nothing expires.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster.placement import default_replication_factor
from pyspark_log_coordinator.model.node_order import by_number
from pyspark_log_coordinator.model.partition import ChunkRef, NodeId
from pyspark_log_coordinator.model.topic_config import UNLIMITED, TopicConfig
from pyspark_log_coordinator.rebuild import longest_prefix
from pyspark_log_coordinator.rebuild.folder_scan import Folder, FoundSegment, TopicFolder
from pyspark_log_coordinator.replication import truncation
from pyspark_log_storage.segment import EpochStarts, SegmentFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark_log_coordinator.maintenance.topic_description import Description
    from pyspark_log_coordinator.model.producers import Producer
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.rebuild.longest_prefix import Prefix
    from pyspark_log_coordinator.rebuild.salvage import Salvage

NUMBER_MARGIN = 1_000_000
"""The lost journal had fewer entries than this behind the newest one that anything names: every batch leaves a file."""
EPOCH_MARGIN = 1_000
"""Likewise of leader epochs: a reader may know one that no folder tells of."""
_NO_END = 2**63 - 1

GoodChunk = tuple[int, int]
"""A chunk of a description that a node has whole: its partition and base offset."""


class ChosenSegment(msgspec.Struct, frozen=True):
    """A segment that will be a part of the log, and the nodes that have it whole."""

    file: SegmentFile
    nodes: tuple[NodeId, ...]
    unindexed: tuple[NodeId, ...] = ()
    """Those of them whose index is missing or damaged."""
    salvage: Salvage | None = None
    """Where it is to be written yet, from what is left of a damaged one."""

    @property
    def base_offset(self) -> int:
        """The first row's offset."""
        return self.file.base_offset

    @property
    def end_offset(self) -> int:
        """The offset behind the last row."""
        return self.file.end_offset


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
    """To where each node has what was chosen, from the log start on."""
    known_start: int
    known_end: int
    """The log start, and the highest HW, that any folder tells of."""

    @property
    def lost(self) -> int:
        """How many rows are missing of those that any folder tells of."""
        return max(0, self.log_start - self.known_start) + max(0, self.known_end - self.log_end)


class TopicPlan(msgspec.Struct, frozen=True):
    """What a topic will be."""

    life: TopicFolder
    entry: int
    """The number of its journal's first entry."""
    description: Description | None
    config: TopicConfig
    partitions: tuple[PartitionPlan, ...]
    files: dict[int, tuple[str, tuple[NodeId, ...]]]
    """Name and holders of the append files that chunks are in, by the numbers of the description."""
    producers: dict[str, Producer]
    segments_aside: dict[NodeId, tuple[str, ...]]
    """What each node sets aside: segments, as <partition>/<name> without ending."""
    files_aside: dict[NodeId, tuple[str, ...]]
    """Likewise append files."""
    unplaced: tuple[str, ...]
    """The append files of which nobody knows what they are."""


def next_number(newest: int) -> int:
    """Return the number that a journal begins at in the place of one of which this is the newest entry heard of."""
    return (newest // NUMBER_MARGIN + 2) * NUMBER_MARGIN


def newest_description(folders: Mapping[NodeId, Folder]) -> Description | None:
    """Return the newest of the descriptions. That of a journal's remains lacks what only the cluster knows."""
    found = [each.description for each in folders.values() if each.description is not None]
    newest = max(found, key=lambda each: (each.number, each.created_ms), default=None)
    if newest is None:
        return None
    known = max(found, key=lambda each: (len(each.nodes) > 0, each.number))
    return msgspec.structs.replace(newest, created_ms=known.created_ms, nodes=known.nodes)


def plan_topic(
    life: TopicFolder,
    folders: Mapping[NodeId, Folder],
    good: Mapping[NodeId, frozenset[GoodChunk]],
    nodes: Sequence[NodeId],
    salvages: Sequence[Salvage] = (),
) -> TopicPlan:
    """Return what a topic will be.

    `good` are the chunks of the newest description that each of the nodes has whole, `salvages` what can be had of
    segments that none has whole.
    """
    description = newest_description(folders)
    planning = _Planning(folders, description, good, nodes, salvages)
    partitions, holders = planning.partitions()
    known = description.topic if description is not None else None
    files = {number: (known.file(number).name, nodes) for number, nodes in holders.items()} if known is not None else {}
    aside = planning.segments_aside(partitions)
    files_aside, unplaced = planning.files_aside(partitions, files)
    return TopicPlan(
        life=life,
        entry=next_number(max(each.newest for each in folders.values())),
        description=description,
        config=TopicConfig(retention_ms=UNLIMITED) if known is None else known.config,
        partitions=partitions,
        files=files,
        producers={} if known is None else _producers(known, partitions),
        segments_aside=aside,
        files_aside=files_aside,
        unplaced=unplaced,
    )


class _Planning:
    """Plans one topic."""

    def __init__(
        self,
        folders: Mapping[NodeId, Folder],
        description: Description | None,
        good: Mapping[NodeId, frozenset[GoodChunk]],
        nodes: Sequence[NodeId],
        salvages: Sequence[Salvage],
    ) -> None:
        self._folders = folders
        self._salvages = salvages
        self._known: Topic | None = None if description is None else description.topic
        self._good = good
        self._nodes = sorted(nodes, key=by_number)
        count = max(each.partitions for each in folders.values())
        self._count = max(count, len(self._known.partitions) if self._known is not None else 1)
        histories = [self._histories(number) for number in range(self._count)]
        self._lineages: list[EpochStarts] = [each[-1] if each else ((0, 0),) for each in histories]
        # The first leader epoch that is kept begins at the log start, which never goes back.
        self._log_starts = [max((each[0][1] for each in found), default=0) for found in histories]
        self._bad_files: set[int] = set()

    def partitions(self) -> tuple[tuple[PartitionPlan, ...], dict[int, tuple[NodeId, ...]]]:
        """Return what the partitions will be, and who holds the append files that they need."""
        while True:
            prefixes = [self._prefix(number) for number in range(self._count)]
            holders = self._holders(prefixes)
            # A file of which no node has all that is needed is done without, which may make others unnecessary.
            useless = {number for number, nodes in holders.items() if not nodes}
            if not useless:
                break
            self._bad_files |= useless
        return tuple(self._partition(number, each, holders) for number, each in enumerate(prefixes)), holders

    def segments_aside(self, partitions: Sequence[PartitionPlan]) -> dict[NodeId, tuple[str, ...]]:
        """Return the segments that each node sets aside."""
        chosen = {(number, one.file.name) for number, each in enumerate(partitions) for one in each.segments}

        def stays(found: FoundSegment) -> bool:
            if found.why is not None:
                return False  # its place is left to a whole copy
            is_chosen = (found.partition, found.file.name) in chosen
            contained = found.file.end_offset <= partitions[found.partition].log_end
            return is_chosen or (contained and self._belongs(found))

        return {
            node: tuple(f"{each.partition}/{each.file.name}" for each in folder.segments if not stays(each))
            for node, folder in self._folders.items()
        }

    def files_aside(
        self, partitions: Sequence[PartitionPlan], files: Mapping[int, tuple[str, tuple[NodeId, ...]]]
    ) -> tuple[dict[NodeId, tuple[str, ...]], tuple[str, ...]]:
        """Return the append files that each node sets aside, and those of which nobody knows what they are."""
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
        """Return the append files whose rows are all in what was chosen, or expired."""
        known = self._known
        if known is None:
            return set()
        for described, found in zip(known.partitions, partitions, strict=False):
            if found.log_end < described.log_end or found.log_start > described.log_start:
                return set()
        needed = {chunk.file for each in partitions for chunk in each.chunks}
        rolled = {file.name for number, file in enumerate(known.files, known.first_file) if number not in needed}
        return rolled | {each.key.removeprefix("append/") for each in known.released}

    def _histories(self, number: int) -> list[EpochStarts]:
        """Return the leader epochs of a partition as different places know them, the newest last."""
        found: list[EpochStarts] = [folder.epochs.get(number, ()) for folder in self._folders.values()]
        found += [
            each.epochs for folder in self._folders.values() for each in folder.segments if each.partition == number
        ]
        if self._known is not None and number < len(self._known.partitions):
            found.append(self._known.partitions[number].epoch_starts)
        return sorted((each for each in found if each), key=lambda each: (each[-1][0], len(each)))

    def _belongs(self, found: FoundSegment | Salvage) -> bool:
        """Return whether all rows of a segment are those of the lineage."""
        end = found.file.end_offset
        return truncation.divergence(found.epochs, end, self._lineages[found.partition], _NO_END) >= end

    def _prefix(self, number: int) -> Prefix[ChosenSegment, ChunkRef]:
        copies: dict[str, dict[NodeId, FoundSegment]] = {}
        for node in self._nodes:
            for each in self._folders[node].segments if node in self._folders else ():
                if each.partition == number and each.why is None and self._belongs(each):
                    copies.setdefault(each.file.name, {})[node] = each
        segments = [
            ChosenSegment(
                next(iter(found.values())).file,
                tuple(found),
                tuple(node for node, each in found.items() if not each.indexed),
            )
            for found in copies.values()
        ]
        chunks, log_start = self._chunks(number), self._log_start(number)
        prefix = longest_prefix.longest(segments, chunks, log_start)
        left = [each for each in self._salvages if each.partition == number and self._belongs(each)]
        left.sort(key=lambda each: (each.file.base_offset, -each.file.end_offset))
        # Each makes the log longer at its end, or, on the way back, at its begin; where a gap follows, not at all.
        for one in (*left, *reversed(left)):
            more = [*segments, ChosenSegment(one.file, (), (), one)]
            longer = longest_prefix.longest(more, chunks, log_start)
            if _is_longer(longer, prefix):
                segments, prefix = more, longer
        return prefix

    def _chunks(self, number: int) -> list[ChunkRef]:
        """Return the committed chunks of the description that a node has and that belong to the lineage."""
        known = self._known
        if known is None or number >= len(known.partitions):
            return []
        partition = known.partitions[number]
        end = truncation.divergence(partition.epoch_starts, partition.high_watermark, self._lineages[number], _NO_END)
        there = {base for chunks in self._good.values() for chunked, base in chunks if chunked == number}
        return [
            each
            for each in partition.chunks
            if each.end_offset <= end and each.base_offset in there and each.file not in self._bad_files
        ]

    def _holders(self, prefixes: Sequence[Prefix[ChosenSegment, ChunkRef]]) -> dict[int, tuple[NodeId, ...]]:
        """Return the nodes that have all that was chosen of each append file."""
        needed: dict[int, set[GoodChunk]] = {}
        for number, prefix in enumerate(prefixes):
            for chunk in prefix.chunks:
                needed.setdefault(chunk.file, set()).add((number, chunk.base_offset))
        return {
            file: tuple(node for node in self._nodes if chunks <= self._good.get(node, frozenset()))
            for file, chunks in needed.items()
        }

    def _partition(
        self, number: int, prefix: Prefix[ChosenSegment, ChunkRef], holders: Mapping[int, tuple[NodeId, ...]]
    ) -> PartitionPlan:
        starts = [each for each in self._lineages[number] if each[1] < prefix.log_end]
        before = [each for each in starts if each[1] <= prefix.log_start]
        kept = [(before[-1][0], prefix.log_start)] if before else []
        kept += [each for each in starts if each[1] > prefix.log_start]
        epoch = self._lineages[number][-1][0] + EPOCH_MARGIN
        described = self._described(number, lambda known: known.high_watermark, 0)
        marks = [folder.high_watermarks.get(number, 0) for folder in self._folders.values()]
        return PartitionPlan(
            replicas=self._replicas(number),
            epoch_starts=(*kept, (epoch, prefix.log_end)),
            log_start=prefix.log_start,
            log_end=prefix.log_end,
            segments=prefix.segments,
            chunks=prefix.chunks,
            reached={node: _reached(prefix, holders, node) for node in self._nodes},
            known_start=self._log_start(number),
            known_end=max(*marks, described),
        )

    def _log_start(self, number: int) -> int:
        return max(self._log_starts[number], self._described(number, lambda known: known.log_start, 0))

    def _described(self, number: int, ask: Callable[..., int], default: int) -> int:
        known = self._known
        return ask(known.partitions[number]) if known is not None and number < len(known.partitions) else default

    def _replicas(self, number: int) -> tuple[NodeId, ...]:
        """Return the replicas that there were, as far as they are there; else the nodes that have something of it."""
        known = self._known
        if known is not None and number < len(known.partitions):
            there = tuple(node for node in known.partitions[number].replicas if node in self._nodes)
            if there:
                return there
        having = [
            node
            for node in self._nodes
            if node in self._folders
            and (
                number in self._folders[node].high_watermarks
                or any(each.partition == number for each in self._folders[node].segments)
            )
        ]
        return tuple(having) or tuple(self._nodes[: default_replication_factor(len(self._nodes))])


def _reached(prefix: Prefix[ChosenSegment, ChunkRef], holders: Mapping[int, tuple[NodeId, ...]], node: NodeId) -> int:
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


def _is_longer(new: Prefix[ChosenSegment, ChunkRef], old: Prefix[ChosenSegment, ChunkRef]) -> bool:
    """Return whether a prefix has all rows of another, and more."""
    rows, before = new.log_end - new.log_start, old.log_end - old.log_start
    return rows > before and (before == 0 or (new.log_start <= old.log_start and new.log_end >= old.log_end))


def _producers(known: Topic, partitions: Sequence[PartitionPlan]) -> dict[str, Producer]:
    """Return the producers, each with how many rows of its last batch are not in what was chosen."""
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


__all__ = [
    "ChosenSegment",
    "GoodChunk",
    "PartitionPlan",
    "TopicPlan",
    "newest_description",
    "next_number",
    "plan_topic",
]
