"""The journals on several stores: what a majority has at one ballot is decided, and goes to the journal's history.

Each move begins a generation, with a list of stores of its own. A journal goes from one to the next with an entry that
is the last one on the former stores and the first one on the new ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.cluster_state import Cluster
from pyspark_log_coordinator.cluster.nodes import NodeChanged, NodeRemoved
from pyspark_log_coordinator.journal import journal_entry, registers, trimming
from pyspark_log_coordinator.journal.journal_entry import digest
from pyspark_log_coordinator.journal.paxos import NIL, majority
from pyspark_log_coordinator.journal.state_machine import JournalEnded
from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_storage import layout
from pyspark_log_storage.layout import number_of_newest_first
from tests.simulator.disks import Disk
from tests.simulator.invariants import History, require
from tests.simulator.store import Objects

_ENTRIES = re.compile(r"entries(?:\.([0-9]+))?/(.*)")
Incarnations = dict[NodeId, str]


class ClusterHistory(History):
    """The cluster's journal: which nodes there are, and which of them have had the journals."""

    def __init__(self, objects: Objects, first: Mapping[str, Disk], changed: Callable[[str], object]) -> None:
        """`first` are the nodes that hold the journals at the beginning."""
        super().__init__(layout.CLUSTER_JOURNAL, cluster.MACHINE, objects)
        self._first = first
        self._changed = changed
        self._later: dict[int, Incarnations] = {}
        self._begun = 1
        """The newest generation in which the journal has begun."""

    @property
    def state(self) -> Cluster:
        """The newest state."""
        newest: Cluster = self.states[-1]
        return newest

    def journal_nodes(self, generation: int) -> Incarnations:
        """Return the nodes that hold the journals in a generation, with the incarnations that count."""
        if generation == 1:
            return {name: disk.first_incarnation for name, disk in self._first.items()}
        return self._later.get(generation, {})

    def in_use(self) -> list[Incarnations]:
        """Return the journal nodes of the generations of which a majority is needed."""
        return [self.journal_nodes(each) for each in {self._begun, self.state.journals.generation}]

    def begun(self, generation: int) -> None:
        """Take in that the journal has begun in a generation: all others have, too."""
        if generation > self._begun:
            self._begun = generation
            self._changed("JournalsMoved")

    def decided(self, events: list[Any], before: Cluster, after: Cluster) -> None:
        changes = []
        for event in events:
            if isinstance(event, JournalEnded):
                self._later[event.generation] = {each.node: each.incarnation for each in event.nodes}
            if isinstance(event, JournalEnded | NodeRemoved):
                changes.append(type(event).__name__)
            if isinstance(event, NodeChanged) and event.node.node_id not in before.nodes:
                changes.append("a node added")
            if isinstance(event, NodeRemoved):
                held = [nodes for nodes in self.in_use() if event.node_id in nodes]
                require(not held, f"node {event.node_id} is removed, and holds journals")
        for what in changes:
            self._changed(what)


class Ballots:
    """The stores' votes.

    `decided` has the decided entries as if they lay on one store, and the snapshots that any store has.
    """

    def __init__(self, disks: Mapping[str, Disk], decided: Objects, history: Callable[[], ClusterHistory]) -> None:
        self._disks = disks
        self._cluster = history
        self.decided = decided
        self._votes: dict[tuple[str, bytes], set[str]] = {}
        """Who ever gave which vote: a store that is wiped afterwards has given it."""
        self._values: dict[str, set[bytes]] = {}
        """The values that were ever voted for in each ballot, by the key of the vote: at most one."""
        self._left: dict[tuple[str, int], int] = {}
        """The last entry of a journal in a generation that it has left."""

    def created(self, history: History, disk: Disk, key: str, data: bytes) -> None:
        """Take in what was written to a disk."""
        name = key.removeprefix(history.folder)
        found = _ENTRIES.fullmatch(name)
        if found is None:
            if name.startswith("snapshots/"):
                self._snapshot(history, disk, key)
            is_new = key not in self.decided.data
            self.decided.data.setdefault(key, data)
            if is_new:
                history.created(key, data)
            return
        generation = int(found[1] or 1)
        nodes = self._cluster().journal_nodes(generation)
        require(
            disk.node_id in nodes,
            f"{key} is written to node {disk.node_id}, and the journal nodes of its generation are {nodes}",
        )
        parsed = registers.parse(found[2])
        assert parsed is not None, key
        number, register = parsed
        if register.is_claim or (value := registers.decode(data, key)) == NIL:
            return
        if disk.incarnation != nodes[disk.node_id]:
            return
        values = self._values.setdefault(key, set())
        values.add(value)
        is_one = len(values) == 1 or number < max(history.snapshots(), default=0)
        require(is_one, f"two values are voted for in ballot {register.ballot} of entry {number} of {history.folder}")
        votes = self._votes.setdefault((key, data), set())
        votes.add(disk.node_id)
        if len(votes) >= majority(len(nodes)):
            self._decided(history, generation, number, value)

    def _snapshot(self, history: History, disk: Disk, key: str) -> None:
        """Hold that only stores that have, or had, the journals get a part of one."""
        generations = range(1, self._cluster().state.journals.generation + 1)
        ever = set().union(*(self._cluster().journal_nodes(each) for each in generations))
        require(
            disk.node_id in ever or history.number == 0, f"{key} is written to node {disk.node_id}: it has no journal"
        )

    def deleting(self, history: History, disk: Disk, key: str) -> None:
        """Hold that a store lets go only of what a newer snapshot of its own stands in for."""
        snapshots = f"{history.folder}snapshots/"
        mine = [
            number_of_newest_first(each.removeprefix(snapshots))
            for each in disk.real.data
            if each.startswith(snapshots)
        ]
        name = key.removeprefix(history.folder)
        found = _ENTRIES.fullmatch(name)
        if found is not None:
            number = journal_entry.slot_of(found[2])
            assert number is not None
            require(
                number < max(mine, default=0), f"a vote of entry {number} goes, and its store's snapshots are {mine}"
            )
        elif key.startswith(snapshots):
            number = number_of_newest_first(key.removeprefix(snapshots))
            require(number < max(mine), f"snapshot {number} goes, which is the newest of its store")
            kept = history.snapshots()[-trimming.SNAPSHOTS_KEPT :]
            # The older ones of a journal that has migrated stay behind, and go.
            is_left = number < self._left.get((history.folder, history.generation - 1), 0)
            require(number not in kept or is_left, f"snapshot {number} goes, which is one of the newest, {kept}")
            if not any(key in each.real.data for each in self._disks.values() if each is not disk):
                del self.decided.data[key]

    def _decided(self, history: History, generation: int, number: int, value: bytes) -> None:
        what = f"entry {number} of {history.folder} is decided in generation {generation}"
        last = self._left.get((history.folder, generation), number)
        require(number <= last, f"{what}, which the journal has left with entry {last}")
        if number > history.number:
            before = history.generation
            require(generation == before or history.number == 0, f"{what}, and the journal is in {before}")
            key = f"{history.folder}entries/{number:020d}"
            self.decided.data[key] = value
            history.created(key, value)
            if history.generation > before and number > 1:
                self._left[history.folder, before] = number
        elif history.hashes[number] == digest(value):
            if isinstance(history, ClusterHistory):
                history.begun(generation)
        else:
            require(number < max(history.snapshots(), default=0), f"two values are decided for entry {number}")
            history.strays += 1
