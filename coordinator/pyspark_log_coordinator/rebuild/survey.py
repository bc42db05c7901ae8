"""The survey before a rebuild: the newest state of each topic that the given nodes know, and which files are whole.

A state comes from the topic's description on any node, or from its journal if that is at the root and can be read: the
cluster's journal alone may be lost. Every file that it names is read and checked on every node. Changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster.nodes import Node
from pyspark_log_coordinator.log.topic_description import Description
from pyspark_log_coordinator.model.partition import NodeId, by_number
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.rebuild import folder_scan, known_files
from pyspark_log_coordinator.rebuild.folder_scan import NodeFolder, TopicFolder
from pyspark_log_coordinator.rebuild.known_files import Loss
from pyspark_log_coordinator.rebuild.lost_journals import GivenNode, LostJournals, identify
from pyspark_log_coordinator.sync import replica_file
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, LogError, NewerFormat
from pyspark_log_storage.stores.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark_log_coordinator.environment import Environment


class FoundTopic(msgspec.Struct, frozen=True):
    """A topic, and which of its files are there."""

    description: Description
    """The newest that was found."""
    number: int
    """The number of its new journal's first entry."""
    state: Topic
    """That of the description without the rows that are lost."""
    losses: tuple[Loss, ...]
    copies: dict[str, tuple[NodeId, ...]]
    """The nodes that have each file whole, by key, of a segment without ending."""
    newer: dict[str, int]
    """The sizes of append files that were written after the description, by key. They may have acknowledged rows."""

    def reached(self, number: int, node: NodeId) -> int:
        """Return the end of the rows of a partition that a node has without a gap."""
        return known_files.reached(self.state, number, self.copies, node)


class Survey(msgspec.Struct, frozen=True):
    """What was found, and what will be made of it."""

    cluster_id: str
    given: tuple[GivenNode, ...]
    journal_stores: tuple[Store, ...]
    """The stores of the new journals. A single one becomes the root."""
    topics: tuple[FoundTopic, ...]
    left_out: tuple[tuple[TopicFolder, str], ...]
    """Folders of topics that are left as they are, and why."""
    absent: tuple[Node, ...]
    """Nodes of the cluster that were not given."""
    damaged: tuple[str, ...]
    """Errors of descriptions."""
    racks: dict[NodeId, str]
    former: frozenset[tuple[NodeId, str]]
    """The incarnations that the nodes had."""
    journals: LostJournals

    @property
    def lost(self) -> int:
        """How many rows are lost that a description names."""
        return sum(loss.rows for each in self.topics for loss in each.losses)


def survey(
    stores: Sequence[Store],
    environment: Environment,
    journal_urls: Sequence[str] = (),
    *,
    open_node: Callable[[str], Store],
) -> Survey:
    """Return what can be made of the nodes at these stores.

    The new journals will be on the stores at `journal_urls`, or if it is empty, where they were. `open_node` opens the
    store at another address, to look for journals. Raises `InvalidOption` if the cluster's journal can be read, or the
    stores are not different nodes of one cluster; `NewerFormat`, `StoreError`.
    """
    given = identify(stores, environment)
    journals = LostJournals(given)
    journals.refuse_readable(environment, open_node)
    journal_stores = journals.stores_to_begin_on(journal_urls)
    folders: dict[TopicFolder, list[NodeFolder]] = {}
    for each in given:
        for folder in folder_scan.topic_folders(each.store):
            folders.setdefault(folder, []).append(NodeFolder(each.store, folder))
    damaged: list[str] = []
    described = {name: _newest(name, found, environment, damaged) for name, found in folders.items()}
    chosen, left_out = _choose(described)
    nodes = {each.node_id: each.store for each in given}
    topics = tuple(_found(each, folders[_folder_of(each)], nodes) for each in chosen)
    known = sorted((each for each in described.values() if each is not None), key=lambda each: each.number)
    members = {each.node_id: each for one in known for each in one.nodes}
    former = {(each.node_id, each.marker.incarnation) for each in given}
    former |= {(each.node_id, each.incarnation) for one in known for each in one.nodes}
    former |= {pair for one in known for pair in one.topic.incarnations.items()}
    return Survey(
        cluster_id=given[0].marker.cluster,
        given=given,
        journal_stores=journal_stores,
        topics=topics,
        left_out=left_out,
        absent=tuple(members[name] for name in sorted(members, key=by_number) if name not in nodes),
        damaged=tuple(damaged),
        racks={name: each.rack for name, each in members.items()},
        former=frozenset(former),
        journals=journals,
    )


def _folder_of(description: Description) -> TopicFolder:
    return TopicFolder(description.topic.name, description.topic.topic_id)


def _newest(
    name: TopicFolder, folders: Sequence[NodeFolder], environment: Environment, damaged: list[str]
) -> Description | None:
    """Return the newest description of a topic, or None. Add errors of descriptions to `damaged`."""
    found: list[Description] = []
    for each in folders:
        try:
            stored = each.description()
        except CorruptObject as error:
            damaged.append(str(error))
        else:
            found += [] if stored is None else [stored]
    known = max(found, key=lambda each: each.number, default=None)
    for folder in folders:
        state, number = _of_journal(folder, environment)
        if state is not None and (state.name, state.topic_id) == name and (known is None or number > known.number):
            created_ms, nodes = (0, ()) if known is None else (known.created_ms, known.nodes)
            known = Description(number, created_ms, nodes, state)
    return known


def _of_journal(folder: NodeFolder, environment: Environment) -> tuple[Topic | None, int]:
    """Return the state of a topic by the journal in a folder, and its entry; None if it says nothing.

    The first entry of a rebuild that was interrupted says only what that found: another one may be given more nodes.
    """
    journal = folder.journal(environment)
    try:
        state = journal.refresh()
    except NewerFormat:
        raise
    except LogError:
        return None, 0
    is_known = state.started and state.restored != journal.number
    return (state if is_known else None), journal.number


def _choose(
    described: Mapping[TopicFolder, Description | None],
) -> tuple[list[Description], tuple[tuple[TopicFolder, str], ...]]:
    """Return the topics to rebuild, and the folders to leave, with the reason."""
    left: list[tuple[TopicFolder, str]] = []
    chosen: dict[str, Description] = {}
    for folder, found in sorted(described.items(), key=lambda each: 0 if each[1] is None else each[1].created_ms):
        if found is None:
            left.append((folder, "no node has a description of it; put one into its folder, and look again"))
        elif found.topic.deleted:
            left.append((folder, "it was deleted"))
        else:
            if folder.topic in chosen:
                older = _folder_of(chosen[folder.topic])
                left.append((older, f"the topic was created again, as {folder.topic_id}"))
            chosen[folder.topic] = found
    return [chosen[name] for name in sorted(chosen)], tuple(left)


def _found(
    description: Description,
    folders: Sequence[NodeFolder],
    nodes: Mapping[NodeId, Store],
) -> FoundTopic:
    known = description.topic
    copies = {
        file.key: tuple(node for node, store in nodes.items() if _has_whole(store, file))
        for file in replica_file.files_of(known)
    }
    state, losses = known_files.cut(known, copies)
    newer = {
        layout.append_file(known.name, known.topic_id, name): each.store
        for each in folders
        for name in each.append_files
        if layout.born_of(name) >= description.number
    }
    return FoundTopic(
        description=description,
        number=known_files.next_number(max(description.number, *(each.newest for each in folders))),
        state=state,
        losses=losses,
        copies=copies,
        newer={key: store.size(key) for key, store in sorted(newer.items())},
    )


def _has_whole(store: Store, file: replica_file.ReplicaFile) -> bool:
    if not replica_file.is_stored(store, file):
        return False
    try:
        replica_file.check(store, file, dry_run=True)
    except CorruptObject:
        return False
    return True
