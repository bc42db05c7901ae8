"""The survey before a rebuild: what the folders of the nodes hold, and what can be made of it. Changes nothing.

It reads every segment on every node. Where the cluster's journal can be read there is nothing to rebuild, and it is
refused. Where a journal may be alive on nodes that were not given, it says so: two clusters that go on with the same
offsets would never be one again.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.nodes import Node
from pyspark_log_coordinator.journal import journal_nodes
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.journal_nodes import JournalNode, JournalNodes
from pyspark_log_coordinator.journal.place import JournalPlace, OneStore, SeveralStores
from pyspark_log_coordinator.journal.quorum import Member, Members
from pyspark_log_coordinator.model.node_order import by_number, named
from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_coordinator.rebuild import folder_scan, rebuild_plan, salvage
from pyspark_log_coordinator.rebuild.folder_scan import Folder, TopicFolder
from pyspark_log_coordinator.rebuild.rebuild_plan import GoodChunk, TopicPlan
from pyspark_log_storage import append_file, layout, node
from pyspark_log_storage.errors import CorruptObject, InvalidOption, LogError, NewerFormat, ObjectMissing
from pyspark_log_storage.node import Marker
from pyspark_log_storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.maintenance.topic_description import Description
    from pyspark_log_coordinator.rebuild.salvage import Salvage

OPTION = "nodes"
_PATIENCE_MS = 2_000
"""How long one looks for a journal on several stores that do not answer."""


class Given(msgspec.Struct, frozen=True):
    """A node that was given: its store, and who it says it is."""

    store: Store
    marker: Marker

    @property
    def node_id(self) -> NodeId:
        """The node's id."""
        return self.marker.node


class Unplaced(msgspec.Struct, frozen=True):
    """An append file of which nobody knows where its rows belong."""

    topic: str
    key: str
    nodes: tuple[NodeId, ...]
    bytes: int
    rows: int


class Survey(msgspec.Struct, frozen=True):
    """What was found, and what will be made of it."""

    cluster_id: str
    given: tuple[Given, ...]
    journal_stores: tuple[Store, ...]
    """Where the journals will be: one store, which is the root then, or several."""
    topics: tuple[TopicPlan, ...]
    left_out: tuple[tuple[TopicFolder, str], ...]
    """Lives of topics that are left as they are, and why."""
    unplaced: tuple[Unplaced, ...]
    absent: tuple[Node, ...]
    """Nodes that the cluster had, and that were not given."""
    damaged: tuple[str, ...]
    """What is wrong with checkpoints and descriptions."""
    racks: dict[NodeId, str]
    former: frozenset[tuple[NodeId, str]]
    """The incarnations that the nodes had."""
    journals_may_live: str | None
    """Why a journal may be alive somewhere else; None where the nodes that had them are given."""
    generation: int
    """Of the stores of the journals that will be: one that no store tells of, unless they were never moved."""
    newest: int
    """The largest number of an entry in what is left of the cluster's journal."""

    @property
    def lost(self) -> int:
        """How many rows are missing of those that any folder tells of. Those in unplaced files are not among them."""
        return sum(each.lost for one in self.topics for each in one.partitions)


def survey(
    stores: Sequence[Store],
    environment: Environment,
    journal_urls: Sequence[str] = (),
    *,
    open_node: Callable[[str], Store],
    progress: Callable[[int], object] = bool,
) -> Survey:
    """Return what can be made of the nodes at these stores.

    The journals will be on the stores at `journal_urls`, or, where none is named, where they were. `open_node` opens
    the store at another address, to look for journals. `progress` is told how many bytes were read since it was told
    last. Raises `InvalidOption` where the cluster's journal can be read, or the stores are not different nodes of one
    cluster; `NewerFormat`, `StoreError`.
    """
    given = _given(stores)
    journals = {each.node_id: _journal_nodes(each.store) for each in given}
    journal_stores = _journal_stores(given, journals, journal_urls)
    _refuse_living(given, journals, environment, open_node)
    found: dict[TopicFolder, dict[NodeId, Folder]] = {}
    for each in given:
        for life in folder_scan.topic_folders(each.store):
            found.setdefault(life, {})[each.node_id] = folder_scan.look(each.store, life, environment, progress)
    chosen, left_out = _choose(found)
    plans = [_plan(given, life, found[life]) for life in chosen]
    known = sorted((one for plan in plans if (one := plan.description) is not None), key=lambda one: one.number)
    nodes = {each.node_id: each for one in known for each in one.nodes}
    former = {(each.node_id, each.marker.incarnation) for each in given}
    former |= {(each.node_id, each.incarnation) for one in known for each in one.nodes}
    former |= {pair for one in known for pair in one.topic.incarnations.items()}
    here = {each.node_id for each in given}
    return Survey(
        cluster_id=given[0].marker.cluster,
        given=given,
        journal_stores=journal_stores,
        topics=tuple(plans),
        left_out=left_out,
        unplaced=tuple(_unplaced(given, found[plan.life], plan.life, name) for plan in plans for name in plan.unplaced),
        absent=tuple(nodes[name] for name in sorted(nodes, key=by_number) if name not in here),
        damaged=tuple(text for each in found.values() for folder in each.values() for text in folder.damaged),
        racks={name: each.rack for name, each in nodes.items()},
        former=frozenset(former),
        journals_may_live=_may_live(given, journals),
        generation=_next_generation([each.generation for each in journals.values() if each is not None]),
        newest=max(_newest_in_cluster(each.store) for each in given),
    )


def _given(stores: Sequence[Store]) -> tuple[Given, ...]:
    """Return who the stores say they are. Raises `InvalidOption` where they are not different nodes of one cluster."""
    found: dict[NodeId, Given] = {}
    for store in stores:
        marker = node.read_marker(store)
        if marker is None:
            raise _refused(
                f"the store at {store.url} has no marker: it is no node, or its disk is not mounted. Mount it, or "
                "leave it out"
            )
        if marker.node in found:
            other = found[marker.node].store.url
            raise _refused(
                f"{other} and {store.url} both say that they are node {marker.node!r}: give the one that was in use "
                "last"
            )
        found[marker.node] = Given(store, marker)
    if not found:
        raise _refused("no node was given")
    first = next(iter(found.values()))
    for each in found.values():
        if each.marker.cluster != first.marker.cluster:
            raise _refused(
                f"{first.store.url} is a node of cluster {first.marker.cluster}, and {each.store.url} of cluster "
                f"{each.marker.cluster}; give the nodes of one"
            )
    return tuple(found[name] for name in sorted(found, key=by_number))


def _journal_nodes(store: Store) -> JournalNodes | None:
    with contextlib.suppress(CorruptObject):
        return journal_nodes.read(store)
    return None


def _journal_stores(
    given: Sequence[Given], journals: Mapping[NodeId, JournalNodes | None], urls: Sequence[str]
) -> tuple[Store, ...]:
    """Return where the journals will be. Raises `InvalidOption`."""
    by_url = {each.store.url: each.store for each in given}
    for url in urls:
        if url not in by_url:
            raise _refused(f"the journals cannot be at {url}: it is none of the nodes that were given")
    if urls:
        if 1 < len(set(urls)) < journal_nodes.LEAST:
            raise _refused(f"journals are on one node, or on {journal_nodes.LEAST} or more: two survive no loss")
        return tuple(by_url[url] for url in dict.fromkeys(urls))
    for nodes in journals.values():
        if nodes is not None and all(each.node in journals for each in nodes.nodes):
            ids = {each.node_id: each.store for each in given}
            return tuple(ids[each.node] for each in nodes.nodes)
    return (next((each.store for each in given if each.marker.root), given[0].store),)


def _refuse_living(
    given: Sequence[Given],
    journals: Mapping[NodeId, JournalNodes | None],
    environment: Environment,
    open_node: Callable[[str], Store],
) -> None:
    """Raise `InvalidOption` where the cluster's journal can be read, where it is said to be or went from there."""
    here = {each.store.url: each.store for each in given}
    told = max((nodes.generation for nodes in journals.values() if nodes is not None), default=1)

    def place_of(nodes: Sequence[JournalNode], generation: int) -> JournalPlace:
        members = [Member(here.get(one.url) or open_node(one.url), one.node, one.incarnation) for one in nodes]
        return SeveralStores(Members(members), generation)

    def state_at(place: JournalPlace) -> cluster.Cluster:
        return Journal(place, layout.CLUSTER_JOURNAL, cluster.MACHINE, environment, _PATIENCE_MS).refresh()

    for each in given:
        nodes = journals[each.node_id]
        place = OneStore(each.store) if nodes is None else place_of(nodes.nodes, nodes.generation)
        try:
            state = state_at(place)
            while (moved := state.journals).generation > place.generation:
                there = place_of(moved.nodes, moved.generation)
                next_state = state_at(there)
                if not next_state.cluster_id and moved.generation > told:
                    break  # the move was cut short before the journal began there
                state, place = next_state, there
        except NewerFormat:
            raise
        except (CorruptObject, ObjectMissing):
            continue  # it is there, and of no use
        except LogError:
            if nodes is None:
                raise
            continue  # no majority of the journal nodes answers
        if state.cluster_id:
            raise _refused(
                f"the journal of cluster {state.cluster_id} is at {place.url}, and can be read: there is nothing to "
                "rebuild. A node that was wiped is brought back with `pyspark-log nodes renew`"
            )


def _next_generation(known: Sequence[int]) -> int:
    """Return the generation that begins: a node that was not given, and comes back, tells of an older one."""
    newest = max(known, default=1)
    return newest + 1 if newest > 1 else 1


def _may_live(given: Sequence[Given], journals: Mapping[NodeId, JournalNodes | None]) -> str | None:
    """Return why a journal may be alive somewhere else."""
    if any(each.marker.root for each in given):
        return None
    for nodes in journals.values():
        if nodes is None:
            continue
        away = [each for each in nodes.nodes if each.node not in journals]
        # Of those that were given none counts any more, once they have another incarnation.
        if len(away) <= len(nodes.nodes) // 2:
            return None
        urls = ", ".join(each.url for each in away)
        return f"the journals were also on node {named({each.node for each in away})} at {urls}, which is not given"
    return "none of the nodes that were given has had the journals, as far as they know"


def _choose(
    found: Mapping[TopicFolder, Mapping[NodeId, Folder]],
) -> tuple[list[TopicFolder], tuple[tuple[TopicFolder, str], ...]]:
    """Return the lives of topics to rebuild, and those to leave, with the reason."""
    left: list[tuple[TopicFolder, str]] = []
    chosen: dict[str, TopicFolder] = {}
    for life in sorted(found, key=lambda life: _age(found[life])):
        description = rebuild_plan.newest_description(found[life])
        if description is not None and description.topic.deleted:
            left.append((life, "it was deleted"))
            continue
        if description is None and not any(each.append_files or each.partitions for each in found[life].values()):
            left.append((life, "there is nothing in it"))
            continue
        if life.topic in chosen:
            left.append((chosen[life.topic], f"the topic was created again, as {life.topic_id}"))
        chosen[life.topic] = life
    return sorted(chosen.values()), tuple(left)


def _age(folders_of: Mapping[NodeId, Folder]) -> tuple[int, int]:
    """Return what orders the lives of a topic: when it was created, as far as anybody says, and its newest row."""
    description = rebuild_plan.newest_description(folders_of)
    newest = max((one.file.max_timestamp for each in folders_of.values() for one in each.segments), default=0)
    return (0 if description is None else description.created_ms), newest


def _plan(given: Sequence[Given], life: TopicFolder, found: Mapping[NodeId, Folder]) -> TopicPlan:
    description = rebuild_plan.newest_description(found)
    good = {each.node_id: _good_chunks(each.store, life, description) for each in given if each.node_id in found}
    return rebuild_plan.plan_topic(life, found, good, [each.node_id for each in given], _salvages(given, life, found))


def _salvages(given: Sequence[Given], life: TopicFolder, found: Mapping[NodeId, Folder]) -> list[Salvage]:
    """Return what can be had of the segments that no node has whole."""
    damaged: dict[tuple[int, str], dict[NodeId, Store]] = {}
    whole: set[tuple[int, str]] = set()
    for each in given:
        for one in found[each.node_id].segments if each.node_id in found else ():
            name = one.partition, one.file.name
            if one.why is None:
                whole.add(name)
            else:
                damaged.setdefault(name, {})[each.node_id] = each.store
    looked = (salvage.look(stores, life.folder, *name) for name, stores in damaged.items() if name not in whole)
    return [each for each in looked if each is not None]


def _good_chunks(store: Store, life: TopicFolder, description: Description | None) -> frozenset[GoodChunk]:
    """Return the chunks of the description, below its HW, that a store has whole."""
    good: set[GoodChunk] = set()
    if description is None:
        return frozenset()
    state = description.topic
    for number, partition in enumerate(state.partitions):
        for chunk in partition.chunks:
            if chunk.end_offset > partition.high_watermark:
                break
            key = layout.append_file(*life, state.file(chunk.file).name)
            where = f"topic {life.topic!r}, partition {number}, offset {chunk.base_offset}"
            with contextlib.suppress(CorruptObject, ObjectMissing):
                append_file.read_bytes(store, key, chunk.place(number), where)
                good.add((number, chunk.base_offset))
    return frozenset(good)


def _unplaced(given: Sequence[Given], found: Mapping[NodeId, Folder], life: TopicFolder, name: str) -> Unplaced:
    key = layout.append_file(*life, name)
    having = [each for each in given if each.node_id in found and name in found[each.node_id].append_files]
    copies = [(folder_scan.rows_in(each.store, key), each.store.size(key)) for each in having]
    rows, size = max(copies)
    return Unplaced(life.topic, key, tuple(each.node_id for each in having), size, rows)


def _newest_in_cluster(store: Store) -> int:
    remains = tuple(store.list(layout.CLUSTER_JOURNAL))
    return folder_scan.newest_in(store, layout.CLUSTER_JOURNAL, remains)


def _refused(message: str) -> InvalidOption:
    return InvalidOption(OPTION, message)
