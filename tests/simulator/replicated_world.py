"""A world of three nodes, each with a disk of its own, and the journals on one of them or on all."""

from __future__ import annotations

from collections.abc import Callable

from pyspark_log_coordinator.cluster import machine as cluster
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
    StoreRefused,
    StoreUnfit,
    StoreUnwritable,
)
from tests.simulator import lanes
from tests.simulator.departures import Departures
from tests.simulator.disks import Disk
from tests.simulator.invariants import History, Violation, require
from tests.simulator.replicas import Ballots, ReplicatedRows
from tests.simulator.store import Objects, ProcessState, SimulatedStore
from tests.simulator.world import TOPIC, Process, Settings, World


class ReplicatedWorld(World):
    """Everything, and what really happened in it."""

    def __init__(self, seed: int, settings: Settings, tell: Callable[[str], object] | None = None) -> None:
        super().__init__(seed, settings, tell)
        self.disks = {
            name: Disk(name, f"/disk/{name}", lambda: self.clock.now) for name in map(str, range(settings.nodes.count))
        }
        self.files = Objects()
        """What is in each file and segment, as it was first written."""
        self.root = self.disks["0"]
        self.several_journals = settings.nodes.journals > 1
        self.ballots = Ballots(self.disks, Objects())
        self.objects = self.ballots.decided if self.several_journals else self.root.real
        self.cluster = History(layout.CLUSTER_JOURNAL, cluster.MACHINE, self.objects)
        if self.several_journals:
            self.spared = ("entries",)
        for each in self.disks.values():
            each.real.watcher = _DiskWatcher(self, each)

    def journal_stores(self) -> list[Objects]:
        return [each.real for each in self.disks.values()] if self.several_journals else [self.root.real]

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
        roots = list(process.stores.values()) if self.several_journals else process.store
        return Log(roots, process.environment, open_node=process.stores.__getitem__, probe=lanes.probe)

    def note(self, who: str, what: str) -> None:
        """Note what happens to a disk."""
        self.counts[what] += 1
        self.trace(who, what)

    def stored_objects(self) -> list[dict[str, bytes]]:
        return [each.real.data for each in self.disks.values()]

    def oldest_version(self) -> int:
        if self.rows is None or not self.several_journals:
            return super().oldest_version()
        # Which of the older snapshots trimming left is not to be told while one store is silent.
        return max(self.rows.kept(), default=0)

    def calm_down(self) -> None:
        for each in self.disks.values():
            each.come_back()

    def is_data(self, key: str) -> bool:
        """Return whether a key is that of a file or segment of the topic."""
        return "/append/" in key or key.endswith((".log", ".index"))

    def stored(self, disk: Disk, key: str, data: bytes) -> None:
        """Take in what was created on a disk."""
        if self.is_data(key):
            known = self.files.data.setdefault(key, data)
            require(data == known, f"{key} is written to node {disk.node_id} with other bytes than elsewhere")
            disk.written(key)
        if key == layout.MARKER:
            disk.marked()
        history = self._history(key)
        if history is None:
            return
        if self.several_journals:
            if key != layout.JOURNAL_NODES:
                self.ballots.created(history, disk, key, data)
        elif disk is self.root:
            history.created(key, data)
        else:
            raise Violation(f"{key} is written to node {disk.node_id}, which is no journal node")

    def put(self, disk: Disk, key: str, data: bytes) -> None:
        """Take in what replaces an object, or is put where none was."""
        if self.is_data(key):
            # Where nothing is now, somebody who slept creates it again; as an orphan, if it was removed meanwhile.
            is_due = key not in disk.real.data or key in disk.lost or disk.real.data[key] == data
            require(is_due, f"{key} is replaced on node {disk.node_id}")
            require(data == self.files.data[key], f"{key} is replaced by something else on node {disk.node_id}")
            disk.written(key)
        else:
            self.replaced(key, data)

    def removing(self, disk: Disk, key: str) -> None:
        """Hold that what goes from a disk may go."""
        history = self._history(key)
        if history is not None and self.several_journals:
            self.ballots.deleting(history, disk, key)
        elif history is not None:
            history.deleting(key)
        elif self.is_data(key):
            assert self.rows is not None
            if disk.has_lost_of(key):
                disk.lost.add(key)  # it is made again, both files of a segment together
            else:
                self.rows.deleting(key)
        elif not key.startswith("selftest/"):
            raise Violation(f"{key} is removed from node {disk.node_id}")

    def _history(self, key: str) -> History | None:
        """Return the journal that a key is of."""
        if key.startswith(self.cluster.folder):
            return self.cluster
        if not key.startswith(f"topics/{TOPIC}/") or "/journal/" not in key:
            return None
        if self.rows is None:
            folder = key.partition("journal/")[0]
            told = folder, topic.MACHINE, self.objects, self.expected, self.now_ms, self.files
            nodes = self.settings.nodes
            departures = Departures(lambda: self.clock.now, nodes.session_timeout_ms, self.counts)
            self.rows = ReplicatedRows(self.disks, self.counts, nodes.replicas, departures, *told)
        return self.rows

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
        except (StoreRefused, InvalidOption):  # the markers, or the list of journal nodes, are not found
            if sum(disk.was_away or disk.was_read_only for disk in self.disks.values()) < 2:
                raise
        except ObjectMissing as missing:
            if not self._was_taken(missing.url, missing.key):
                raise
        except CorruptObject:
            if not any(disk.flips for disk in self.disks.values()):
                raise

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
