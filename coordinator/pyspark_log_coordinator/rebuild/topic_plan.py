"""The plan of one topic of a rebuild: its partitions, and the files that have no place in it. Pure.

Files that are neither used nor known to be contained in what is used are set aside: moved, never deleted. Without a
description the topic gets the default configuration, except that no rows expire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import NodeId, by_number
from pyspark_log_coordinator.model.topic_config import UNLIMITED, TopicConfig
from pyspark_log_coordinator.rebuild.folder_scan import TopicFolder
from pyspark_log_coordinator.rebuild.partition_plan import PartitionPlan, PartitionPlanner

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_log_coordinator.maintenance.topic_description import Description
    from pyspark_log_coordinator.model.producers import Producer
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.rebuild.folder_scan import FolderContents, FoundSegment
    from pyspark_log_coordinator.rebuild.partition_plan import GoodChunk, LogPrefix
    from pyspark_log_coordinator.rebuild.salvage import Salvage

NUMBER_MARGIN = 1_000_000
"""The lost journal had fewer entries than this after the newest entry that any file names: each batch leaves a file."""


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
    producers: dict[str, Producer]
    segments_aside: dict[NodeId, tuple[str, ...]]
    """The segments that each node sets aside, as <partition>/<name> without ending."""
    files_aside: dict[NodeId, tuple[str, ...]]
    """The append files that each node sets aside."""
    unplaced: tuple[str, ...]
    """The append files whose rows have no known offsets."""


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
    partitions, holders = planning.partitions()
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

    def partitions(self) -> tuple[tuple[PartitionPlan, ...], dict[int, tuple[NodeId, ...]]]:
        """Return what the partitions will be, and the holders of the append files that they need."""
        bad_files: set[int] = set()
        good = {chunk for chunks in self._good.values() for chunk in chunks}
        while True:
            prefixes = [each.prefix(good, bad_files) for each in self._planners]
            holders = self._holders(prefixes)
            # No node has all that is needed of these. Without them other files may not be needed either.
            useless = {number for number, nodes in holders.items() if not nodes}
            if not useless:
                break
            bad_files |= useless
        plans = (planner.plan(prefix, holders) for planner, prefix in zip(self._planners, prefixes, strict=True))
        return tuple(plans), holders

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

    def _holders(self, prefixes: Sequence[LogPrefix]) -> dict[int, tuple[NodeId, ...]]:
        """Return the nodes that have all chosen chunks of each append file."""
        needed: dict[int, set[GoodChunk]] = {}
        for number, prefix in enumerate(prefixes):
            for chunk in prefix.chunks:
                needed.setdefault(chunk.file, set()).add((number, chunk.base_offset))
        return {
            file: tuple(node for node in self._nodes if chunks <= self._good.get(node, frozenset()))
            for file, chunks in needed.items()
        }


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
