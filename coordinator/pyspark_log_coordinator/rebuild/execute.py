"""The rebuild of a cluster from its nodes' folders, after every journal was lost.

    1  write the newest description of each topic to every node
    2  copy to one replica of each partition the files that it lacks
    3  give each store a new incarnation, so that writes of processes that know the old journals do not count; name the
       journal nodes
    4  begin the journals (`begin_anew`)

Until the last step there is no cluster, so a rebuild that was stopped can start again from the survey. Only one process
may do it at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.cluster.cluster_state import Cluster
from pyspark_log_coordinator.cluster.journal_stores import JournalStores
from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT, FormerNode, Node
from pyspark_log_coordinator.journal import journal_nodes
from pyspark_log_coordinator.journal.journal_nodes import JournalNode, JournalNodes
from pyspark_log_coordinator.journal.place import JournalPlace, Member, OneStore, SeveralStores
from pyspark_log_coordinator.log import topic_description
from pyspark_log_coordinator.rebuild import begin_anew, known_files
from pyspark_log_coordinator.rebuild.begin_anew import States
from pyspark_log_coordinator.sync import replica_file
from pyspark_log_storage import layout
from pyspark_log_storage.errors import InvalidOption, NodeMissing
from pyspark_log_storage.objects import node
from pyspark_log_storage.objects.node import Marker

if TYPE_CHECKING:
    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.rebuild.survey import FoundTopic, Survey
    from pyspark_log_storage.stores.store import Store


def rebuild(found: Survey, environment: Environment, *, journals_are_lost: bool = False) -> None:
    """Rebuild the cluster.

    Raises `InvalidOption` if a journal may be alive on a node that was not given, unless `journals_are_lost`;
    `NodeMissing` if a store was replaced since the survey; `OutcomeUnknown`, `StoreError`. After any error, start again
    from the survey.
    """
    if found.journals.may_live is not None and not journals_are_lost:
        raise InvalidOption(
            "journals-lost",
            f"{found.journals.may_live}. If that cluster continues, it can never be merged with the rebuilt one. Give "
            "all nodes that are left, or add --journals-lost if those journals are lost for good",
        )
    rebuild = _Rebuild(found, environment)
    rebuild.check_markers()
    rebuild.describe()
    copies = [rebuild.complete(each) for each in found.topics]
    rebuild.renew()
    begin_anew.begin_anew(rebuild.states(copies), rebuild.place, before_last=rebuild.check_markers)


class _Rebuild:
    def __init__(self, found: Survey, environment: Environment) -> None:
        self._found = found
        self._environment = environment
        self._stores = {each.node_id: each.store for each in found.given}
        self._markers = {each.node_id: each.marker for each in found.given if each.has_marker}
        self._is_at_root = len(found.journal_stores) == 1

    def check_markers(self) -> None:
        """Raise `NodeMissing` if a store has another marker than this process saw last."""
        for name, store in self._stores.items():
            if node.read_marker(store) != self._markers.get(name):
                raise NodeMissing(
                    store.url,
                    layout.MARKER,
                    f"the marker of node {name!r} at {store.url} changed during the rebuild: its disk was unmounted, "
                    "or another process rebuilds this cluster too; check both, and start again",
                )

    def describe(self) -> None:
        """Let every node know the newest state: a rebuild that starts again may find no other one."""
        for each in self._found.topics:
            data, state = topic_description.encode(each.description), each.description.topic
            for store in self._stores.values():
                store.put(topic_description.key(state.name, state.topic_id), data)

    def complete(self, found: FoundTopic) -> known_files.Copies:
        """Copy to one replica of each partition what it lacks; return which nodes have each file then."""
        copies = dict(found.copies)
        files = {file.key: file for file in replica_file.files_of(found.state)}
        for key, target in known_files.lacking(found.state, found.copies, list(self._stores)):
            if target not in copies[key]:
                sources, store, file = [self._stores[each] for each in copies[key]], self._stores[target], files[key]
                replica_file.copy_from_first(sources, store, file, replace=replica_file.is_stored(store, file))
                copies[key] = (*copies[key], target)
        return copies

    def renew(self) -> None:
        """Give each store its new marker, and name the journal nodes."""
        for name, store in self._stores.items():
            is_root = self._is_at_root and store is self._found.journal_stores[0]
            marker = Marker(self._found.cluster_id, name, self._environment.nonce(), is_root)
            store.put(layout.MARKER, node.encode(marker))
            self._markers[name] = marker
        for store in self._stores.values():
            if self._is_at_root:
                store.delete(layout.JOURNAL_NODES)
            elif store in self._found.journal_stores:
                journal_nodes.write(self._journal_nodes, store)

    def states(self, copies: list[known_files.Copies]) -> States:
        found, now = self._found, self._environment.now_ms()
        incarnations = {name: self._markers[name].incarnation for name in self._stores}
        topics = [
            msgspec.structs.replace(
                each.description,
                number=each.number,
                created_ms=each.description.created_ms or now,
                topic=known_files.anew(each.state, each.number, there, incarnations, self.place.generation),
            )
            for each, there in zip(found.topics, copies, strict=True)
        ]
        has_more = self._is_at_root and len(self._stores) > 1
        return States(
            number=known_files.next_number(found.journals.newest),
            cluster=Cluster(
                cluster_id=found.cluster_id,
                nodes={
                    name: Node(name, self._url(store), found.racks.get(name, ""), incarnations[name])
                    for name, store in self._stores.items()
                },
                former_nodes=tuple(FormerNode(*each) for each in sorted(found.former)),
                journals=JournalStores()
                if self._is_at_root
                else JournalStores(self.place.generation, self._journal_nodes.nodes),
                address=found.journal_stores[0].url if has_more else "",
            ),
            topics=tuple(topics),
        )

    @property
    def place(self) -> JournalPlace:
        if self._is_at_root:
            return OneStore(self._found.journal_stores[0], self._environment)
        members = [Member(self._stores[each.node], each.node, each.incarnation) for each in self._journal_nodes.nodes]
        return SeveralStores(members, self._environment, self._found.journals.generation)

    @property
    def _journal_nodes(self) -> JournalNodes:
        names = {store.url: name for name, store in self._stores.items()}
        urls = [store.url for store in self._found.journal_stores]
        nodes = tuple(JournalNode(names[url], url, self._markers[names[url]].incarnation) for url in urls)
        return JournalNodes(self._found.cluster_id, nodes, self._found.journals.generation)

    def _url(self, store: Store) -> str:
        return AT_THE_ROOT if self._is_at_root and store is self._found.journal_stores[0] else store.url
