"""The survey before a rebuild: what the folders of the given nodes hold, and what can be made of it. Changes nothing.

It reads every segment on every node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster.nodes import Node
from pyspark_log_coordinator.model.partition import NodeId, by_number
from pyspark_log_coordinator.rebuild import folder_scan, found_columns, journal_remains, salvage, topic_plan
from pyspark_log_coordinator.rebuild.folder_scan import FolderContents, NodeFolder, TopicFolder
from pyspark_log_coordinator.rebuild.lost_journals import GivenNode, LostJournals, identify
from pyspark_log_coordinator.rebuild.topic_plan import GoodChunk, TopicPlan
from pyspark_log_storage import layout
from pyspark_log_storage.columns import schema
from pyspark_log_storage.stores.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.maintenance.topic_description import Description
    from pyspark_log_coordinator.rebuild.salvage import Salvage


class Unplaced(msgspec.Struct, frozen=True):
    """An append file whose rows have no known offsets."""

    topic: str
    key: str
    nodes: tuple[NodeId, ...]
    bytes: int
    rows: int


class Survey(msgspec.Struct, frozen=True):
    """What was found, and what will be made of it."""

    cluster_id: str
    given: tuple[GivenNode, ...]
    journal_stores: tuple[Store, ...]
    """The stores of the new journals. A single one becomes the root."""
    topics: tuple[TopicPlan, ...]
    left_out: tuple[tuple[TopicFolder, str], ...]
    """Folders of topics that are left as they are, and why."""
    unplaced: tuple[Unplaced, ...]
    absent: tuple[Node, ...]
    """Nodes of the cluster that were not given."""
    damaged: tuple[str, ...]
    """Errors of checkpoints and descriptions."""
    racks: dict[NodeId, str]
    former: frozenset[tuple[NodeId, str]]
    """The incarnations that the nodes had."""
    journals_may_live: str | None
    """Why a journal may be alive on nodes that were not given, or None if it cannot be."""
    generation: int
    """The generation of the new journals."""
    newest: int
    """The largest number of an entry in the remains of the cluster's journal."""

    @property
    def lost(self) -> int:
        """How many rows are lost that any folder knows of. Rows in unplaced files are not counted."""
        return sum(each.lost for one in self.topics for each in one.partitions)


def survey(
    stores: Sequence[Store],
    environment: Environment,
    journal_urls: Sequence[str] = (),
    *,
    open_node: Callable[[str], Store],
    progress: Callable[[int], object] = lambda _: None,
) -> Survey:
    """Return what can be made of the nodes at these stores.

    The new journals will be on the stores at `journal_urls`, or if it is empty, where they were. `open_node` opens the
    store at another address, to look for journals. `progress` is called with the number of bytes read since the last
    call. Raises `InvalidOption` if the cluster's journal can be read, or the stores are not different nodes of one
    cluster; `NewerFormat`, `StoreError`.
    """
    given = identify(stores, environment)
    journals = LostJournals(given)
    journals.refuse_readable(environment, open_node)
    journal_stores = journals.stores_to_begin_on(journal_urls)
    node_stores = {each.node_id: each.store for each in given}
    found: dict[TopicFolder, dict[NodeId, FolderContents]] = {}
    for name, store in node_stores.items():
        for folder in folder_scan.topic_folders(store):
            found.setdefault(folder, {})[name] = folder_scan.scan(store, folder, progress)
    decided_ends = {
        folder: _use_remains(node_stores, folder, contents, environment) for folder, contents in found.items()
    }
    chosen, left_out = _choose(found)
    schemas = {folder: found_columns.schemas_of(node_stores, folder, found[folder]) for folder in chosen}
    left_out += tuple((folder, found_columns.NONE) for folder, known in schemas.items() if known is None)
    plans = [
        _plan(node_stores, folder, found[folder], known, decided_ends[folder])
        for folder, known in schemas.items()
        if known is not None
    ]
    known = sorted((one for plan in plans if (one := plan.description) is not None), key=lambda one: one.number)
    nodes = {each.node_id: each for one in known for each in one.nodes}
    former = {(each.node_id, each.marker.incarnation) for each in given}
    former |= {(each.node_id, each.incarnation) for one in known for each in one.nodes}
    former |= {pair for one in known for pair in one.topic.incarnations.items()}
    return Survey(
        cluster_id=given[0].marker.cluster,
        given=given,
        journal_stores=journal_stores,
        topics=tuple(plans),
        left_out=left_out,
        unplaced=tuple(
            _unplaced(node_stores, found[plan.folder], plan.folder, name) for plan in plans for name in plan.unplaced
        ),
        absent=tuple(nodes[name] for name in sorted(nodes, key=by_number) if name not in node_stores),
        damaged=tuple(text for each in found.values() for folder in each.values() for text in folder.damaged),
        racks={name: each.rack for name, each in nodes.items()},
        former=frozenset(former),
        journals_may_live=journals.may_live,
        generation=journals.generation,
        newest=journals.newest,
    )


def _choose(
    found: Mapping[TopicFolder, Mapping[NodeId, FolderContents]],
) -> tuple[list[TopicFolder], tuple[tuple[TopicFolder, str], ...]]:
    """Return the topic folders to rebuild, and those to leave, with the reason."""
    left: list[tuple[TopicFolder, str]] = []
    chosen: dict[str, TopicFolder] = {}
    for folder in sorted(found, key=lambda folder: _age(found[folder])):
        description = topic_plan.newest_description(found[folder])
        if description is not None and description.topic.deleted:
            left.append((folder, "it was deleted"))
            continue
        if description is None and not any(each.append_files or each.partitions for each in found[folder].values()):
            left.append((folder, "it is empty"))
            continue
        if folder.topic in chosen:
            left.append((chosen[folder.topic], f"the topic was created again, as {folder.topic_id}"))
        chosen[folder.topic] = folder
    return sorted(chosen.values()), tuple(left)


def _age(contents: Mapping[NodeId, FolderContents]) -> int:
    """Return the sort key of folders of one topic name: when it was created or, if unknown, its newest row (ms).

    A topic that was created lately may have no stored description yet. Its first row may have an old timestamp.
    """
    description = topic_plan.newest_description(contents)
    if description is not None and description.created_ms:
        return description.created_ms
    times = [one.file.max_timestamp for each in contents.values() for one in each.segments if one.file.chunks]
    if description is not None:
        times += [chunk.max_timestamp for each in description.topic.partitions for chunk in each.chunks]
    return max(times, default=0) // 1000


def _use_remains(
    stores: Mapping[NodeId, Store],
    folder: TopicFolder,
    found: dict[NodeId, FolderContents],
    environment: Environment,
) -> dict[int, int]:
    """Describe a topic by the remains of its journal, if they are newer than any description.

    Return where rows begin that may not have been decided, by partition.
    """
    rolled: dict[int, int] = {}
    for each in (each for contents in found.values() for each in contents.segments):
        rolled[each.partition] = max(rolled.get(each.partition, 0), each.file.end_offset)
    remains = journal_remains.read([stores[name] for name in found], folder, rolled, environment)
    stored = topic_plan.newest_description(found)
    if remains is None or (stored is not None and remains.description.number <= stored.number):
        return {}
    name, contents = next(iter(found.items()))
    newest = max(contents.newest, remains.description.number)
    described = topic_plan.newest_description(
        {**found, "": msgspec.structs.replace(contents, description=remains.description)}
    )
    found[name] = msgspec.structs.replace(contents, description=described, newest=newest)
    return remains.decided_ends


def _plan(
    stores: Mapping[NodeId, Store],
    folder: TopicFolder,
    found: Mapping[NodeId, FolderContents],
    schemas: tuple[bytes, ...],
    decided_ends: Mapping[int, int],
) -> TopicPlan:
    description = topic_plan.newest_description(found)
    good = {name: _good_chunks(stores[name], folder, description) for name in found}
    decoded = schema.decode_all(schemas, f"topic {folder.topic!r}")
    salvages = _salvages(stores, folder, found, decoded)
    plan = topic_plan.plan_topic(folder, found, good, tuple(stores), salvages, schemas)
    undecided = sum(max(0, plan.partitions[number].log_end - end) for number, end in decided_ends.items())
    return msgspec.structs.replace(plan, undecided=undecided)


def _salvages(
    stores: Mapping[NodeId, Store],
    folder: TopicFolder,
    found: Mapping[NodeId, FolderContents],
    schemas: Sequence[pa.Schema],
) -> list[Salvage]:
    """Return what remains of the segments that no node has whole."""
    damaged: dict[tuple[int, str], dict[NodeId, Store]] = {}
    whole: set[tuple[int, str]] = set()
    for name, contents in found.items():
        for each in contents.segments:
            key = each.partition, each.file.name
            if each.why is None:
                whole.add(key)
            else:
                damaged.setdefault(key, {})[name] = stores[name]
    remains = (
        salvage.find(copies, folder.prefix, *key, schemas) for key, copies in damaged.items() if key not in whole
    )
    return [each for each in remains if each is not None]


def _good_chunks(store: Store, folder: TopicFolder, description: Description | None) -> frozenset[GoodChunk]:
    """Return the chunks of the description, below its high watermark, that a store has whole."""
    good: set[GoodChunk] = set()
    if description is None:
        return frozenset()
    here = NodeFolder(store, folder)
    for number, partition in enumerate(description.topic.partitions):
        committed = [each for each in partition.chunks if each.end_offset <= partition.high_watermark]
        where = f"topic {folder.topic!r}, partition {number}, "
        for chunk, _, wrong in here.chunks(description.topic, number, committed, where=where):
            if wrong is None:
                good.add((number, chunk.base_offset))
    return frozenset(good)


def _unplaced(
    stores: Mapping[NodeId, Store], found: Mapping[NodeId, FolderContents], folder: TopicFolder, name: str
) -> Unplaced:
    key = layout.append_file(*folder, name)
    nodes = tuple(node for node, contents in found.items() if name in contents.append_files)
    rows, size = max(
        (NodeFolder(stores[node], folder).read_append_file(name)[0], stores[node].size(key)) for node in nodes
    )
    return Unplaced(folder.topic, key, nodes, size, rows)
