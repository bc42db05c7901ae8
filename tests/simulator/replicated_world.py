"""A world of several nodes, each with a disk of its own, and the journals on one of them or on three."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from pyspark_log_coordinator.cluster.nodes import FormerNode
from pyspark_log_coordinator.journal import journal_nodes
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    CorruptObject,
    InvalidOption,
    LogError,
    NodeMissing,
    NotEnoughReplicas,
    ObjectMissing,
    StoreError,
    StoreRefused,
    StoreUnfit,
    StoreUnwritable,
)
from tests.simulator import lanes, losses
from tests.simulator.ballots import Ballots, ClusterHistory
from tests.simulator.departures import Departures
from tests.simulator.disks import Disk
from tests.simulator.invariants import History, Rows, Violation, Write, require
from tests.simulator.replicas import ReplicatedRows
from tests.simulator.settings import Settings
from tests.simulator.store import Crashed, Objects, ProcessState, SimulatedStore
from tests.simulator.tables import is_table
from tests.simulator.world import Process, World, is_of_member


class ReplicatedWorld(World):
    """Everything, and what really happened in it."""

    def __init__(self, seed: int, settings: Settings, tell: Callable[[str], object] | None = None) -> None:
        super().__init__(seed, settings, tell)
        nodes = settings.nodes
        self.disks = {
            name: Disk(name, f"/disk/{name}", lambda: self.clock.now)
            for name in map(str, range(nodes.count + nodes.spares))
        }
        """All that there ever are, by the ids that their nodes have, will have, or have had."""
        self.first = dict(itertools.islice(self.disks.items(), nodes.count))
        """Those of the nodes that there are at the beginning."""
        self.files = Objects()
        """What is in each file and segment, as it was first written."""
        self.root = self.disks["0"]
        self.several_journals = nodes.journals > 1
        self.ballots = Ballots(self.disks, Objects(), lambda: self.cluster)
        self.objects = self.ballots.decided if self.several_journals else self.root.real
        with_journals = self.first if self.several_journals else {"0": self.root}
        self.cluster: ClusterHistory = ClusterHistory(self.objects, with_journals, self._changed)
        self.addresses = [each.url for each in with_journals.values()]
        """The addresses of the journal nodes that a new process gets."""
        self._former_addresses = self.addresses
        self.candidates: dict[str, tuple[str, ...]] = {}
        """The nodes to which somebody migrated the journals last, or is about to, by the name of who does it."""
        for each in self.disks.values():
            each.real.watcher = _DiskWatcher(self, each)

    def members(self) -> dict[str, Disk]:
        """Return the disks of the nodes that there are now."""
        return {name: self.disks[name] for name in self.cluster.state.nodes}

    def journal_disks(self) -> list[Disk]:
        """Return the disks that hold the journals now."""
        newest = self.cluster.state.journals.generation
        return [self.disks[name] for name in self.cluster.journal_nodes(newest)]

    def former_journal_nodes(self) -> set[str]:
        """Return the nodes that should hold the journals, and have another disk than they had then."""
        nodes = self.cluster.journal_nodes(self.cluster.state.journals.generation)
        return {name for name, incarnation in nodes.items() if self.disks[name].incarnation != incarnation}

    def journals_need(self, disk: Disk) -> bool:
        """Return whether journals may be lost with a disk: only one of those that hold them may be away or lost."""
        if not self.several_journals:
            return disk is self.root
        if self.holds_journals(disk) and any(losses.are_damaged(self, each.real) for each in self.journal_disks()):
            return True
        now = [{name: self.disks[name].incarnation for name in nodes} for nodes in self.candidates.values()]
        return any(
            disk.node_id in nodes
            and not all(self._is_there(name, nodes[name]) for name in nodes if name != disk.node_id)
            for nodes in (*self.cluster.in_use(), *now)
        )

    def _is_there(self, name: str, incarnation: str) -> bool:
        disk = self.disks[name]
        return disk.mounted and disk.incarnation == incarnation != ""

    def holds_journals(self, disk: Disk) -> bool:
        """Return whether a disk holds journals, or is about to."""
        in_use = [disk.node_id in nodes for nodes in (*self.cluster.in_use(), *self.candidates.values())]
        return any(in_use)

    def journal_stores(self) -> list[Objects]:
        return [each.real for each in self.journal_disks()]

    def connect(self, owner: ProcessState, trace: Callable[..., object]) -> dict[str, SimulatedStore]:
        def traced(disk: Disk) -> Callable[..., None]:
            return lambda *what: trace(disk.node_id, *what)

        return {
            each.url: SimulatedStore(
                each, self.clock, self.chance, self.weather, traced(each), owner=owner, url=each.url
            )
            for each in self.disks.values()
        }

    def log(self, process: Process) -> Log:
        roots = [process.stores[each] for each in self._addresses()] if self.several_journals else process.store
        return Log(roots, process.environment, open_node=process.stores.__getitem__, probe=lanes.probe)

    def _addresses(self) -> list[str]:
        """Return what somebody gives as the cluster's address: now and then the one before the last migration."""
        gone = {self.disks[each.node_id].url for each in self.removed()}
        if self._former_addresses == self.addresses or gone.intersection(self._former_addresses):
            return self.addresses
        return self.chance.choice([self.addresses, self._former_addresses])

    def _changed(self, what: str) -> None:
        """Take in what happened to the nodes."""
        self.note("cluster", what)
        if what == "JournalsMoved":
            self._former_addresses, self.addresses = self.addresses, [each.url for each in self.journal_disks()]

    def note(self, who: str, what: str) -> None:
        """Note what happens to a disk."""
        self.counts[what] += 1
        self.trace(who, what)

    def stored_objects(self) -> dict[str, dict[str, bytes]]:
        return {name: each.real.data for name, each in self.members().items()}

    def oldest_version(self) -> int:
        if self.rows is None or not self.several_journals:
            return super().oldest_version()
        # Which of the older snapshots trimming left is not to be told while one store is silent.
        return max(self.rows.kept(), default=0)

    def calm_down(self) -> None:
        for name, each in self.disks.items():
            each.come_back()
            each.is_gone = each.is_gone or any(former.node_id == name for former in self.removed())

    def removed(self) -> list[FormerNode]:
        """Return the nodes that were removed."""
        state = self.cluster.state
        return [each for each in state.former_nodes if each.node_id not in state.nodes]

    def is_data(self, key: str) -> bool:
        """Return whether a key is that of a file or segment of the topic."""
        return "/append/" in key or (key.endswith((".log", ".index", ".parquet")) and not is_table(key))

    def stored(self, disk: Disk, key: str, data: bytes) -> None:
        """Take in what was created on a disk."""
        if self.is_data(key):
            known = self.files.data.setdefault(key, data)
            require(data == known, f"{key} is written to node {disk.node_id} with other bytes than elsewhere")
            disk.written(key)
        if key == layout.MARKER:
            disk.marked()
        if is_table(key):
            assert self.rows is not None
            told = self.rows, disk.node_id, disk.real.data, key
            self.tables.created(*told, was_away=disk.was_away)
            return
        history = self.history_of(key)
        if history is None:
            return
        if self.several_journals:
            if not key.startswith(layout.JOURNAL_NODES):
                self.ballots.created(history, disk, key, data)
                self._note(history, disk, key, data)
        elif disk is self.root:
            history.created(key, data)
        else:
            raise Violation(f"{key} is written to node {disk.node_id}, which is no journal node")

    def _note(self, history: History, disk: Disk, key: str, data: bytes | None) -> None:
        """Note what a store got of a journal, or lost, and from whom."""
        name = key.removeprefix(history.folder)
        writer = f"{self._processes.index(self.process)} {self.process.place}"
        history.writes.append(Write(disk.incarnation, name, data, writer, history.number))

    def put(self, disk: Disk, key: str, data: bytes) -> None:
        """Take in what replaces an object, or is put where none was."""
        if self.is_data(key):
            # Where nothing is now, somebody who slept creates it again; as an orphan, if it was removed meanwhile.
            is_due = key not in disk.real.data or key in disk.lost or disk.real.data[key] == data
            require(is_due, f"{key} is replaced on node {disk.node_id}")
            require(data == self.files.data[key], f"{key} is replaced by something else on node {disk.node_id}")
            disk.written(key)
        elif key == layout.JOURNAL_NODES:
            named, newest = journal_nodes.decode(data, key).generation, self.cluster.state.journals.generation
            require(named <= newest, f"node {disk.node_id} lists journal nodes of a generation that has not begun")
        elif key in self.taken and self.several_journals:
            holders = sum(each.real.data.get(key) == data for each in self.disks.values())
            require(holders >= 2, f"{key} is replaced on node {disk.node_id} by what no majority has")
        else:
            self.replaced(key, data)

    def removing(self, disk: Disk, key: str) -> None:
        """Hold that what goes from a disk may go."""
        history = self.history_of(key)
        if history is not None and self.several_journals:
            self.ballots.deleting(history, disk, key)
            self._note(history, disk, key, None)
        elif history is not None:
            history.deleting(key)
        elif self.is_data(key):
            assert self.rows is not None
            if disk.has_lost_of(key):
                disk.lost.add(key)  # it is made again, both files of a segment together
            else:
                self.rows.deleting(key)
                if key.endswith(".parquet") and not disk.was_read_only:
                    self.tables.deleting(self.rows, disk.node_id, disk.real.data, key)
        elif key == layout.MARKER and disk.node_id not in self.cluster.state.nodes:
            pass  # somebody who was about to add the node finds that it was added and removed
        elif not key.startswith("selftest/") and not is_of_member(key) and not is_table(key):
            raise Violation(f"{key} is removed from node {disk.node_id}")

    def _new_rows(self, folder: str) -> Rows:
        told = folder, topic.MACHINE, self.objects, self.expected, self.now_ms, self.files
        nodes = self.settings.nodes
        departures = Departures(lambda: self.clock.now, nodes.session_timeout_ms, self.counts)
        return ReplicatedRows(self.disks, self.members, self.counts, nodes.replicas, departures, *told)

    def hold(self) -> None:
        """Hold that a fault has left at least one copy of what is committed: else the world was too hard."""
        if self.rows is not None and self.rows.number:
            assert isinstance(self.rows, ReplicatedRows)
            self.rows.hold_replicas(self.rows.states[-1])

    @property
    def state(self) -> Topic:
        """The newest state of the topic."""
        assert self.rows is not None
        newest: Topic = self.rows.states[-1]
        return newest

    def excused(self, error: LogError) -> None:
        if self._is_stranded() and isinstance(error, StoreError | InvalidOption):
            self.note(self.process.name, "told the new addresses")
            raise Crashed
        try:
            super().excused(error)
        except (NodeMissing, NotEnoughReplicas):
            return
        except StoreUnwritable as refused:
            if not any(disk.url == refused.url and disk.was_read_only for disk in self.disks.values()):
                raise
        except StoreUnfit:
            if not any(disk.was_away for disk in self.disks.values()):
                raise  # else it was another disk in the middle of the self-test
        except (StoreRefused, InvalidOption) as refused:
            # The markers, the list of journal nodes, or a register on a majority are not found.
            is_damaged = any(key in refused.message for key in self.taken)
            if is_damaged + sum(disk.was_away or disk.was_read_only for disk in self.disks.values()) < 2:
                raise
        except ObjectMissing as missing:
            if not self._was_taken(missing.url, missing.key):
                raise
        except CorruptObject:
            if not any(disk.flips for disk in self.disks.values()):
                raise

    def _is_stranded(self) -> bool:
        """Return whether the present process knows only journal nodes of which some were taken away."""
        known = self.process.log.journals.nodes
        return known is not None and any(self.disks[each.node].is_gone for each in known.nodes)

    def _was_taken(self, url: str, key: str) -> bool:
        """Return whether a fault explains that an object is not there."""
        disk = next((each for each in self.disks.values() if each.url == url), None)
        if disk is None:
            return False
        return disk.was_away or key in disk.lost | disk.made_again


class _DiskWatcher:
    """Tells the world what happens on one disk."""

    def __init__(self, world: ReplicatedWorld, disk: Disk) -> None:
        self._world = world
        self._disk = disk

    def created(self, key: str, data: bytes) -> None:
        self._world.stored(self._disk, key, data)

    def replaced(self, key: str, data: bytes) -> None:
        self._world.put(self._disk, key, data)

    def deleting(self, key: str) -> None:
        self._world.removing(self._disk, key)
