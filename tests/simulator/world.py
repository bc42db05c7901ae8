"""A simulated world: one store or several, one clock, one source of chance, and the processes that meet there."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.environment import Environment
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.model.partition import Partition
from pyspark_log_coordinator.segments.roll_plan import RollJob
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    CorruptObject,
    InvalidRecord,
    LogError,
    LogMoved,
    ObjectMissing,
    OutcomeUnknown,
    StaleFile,
    StoreUnavailable,
)
from tests.simulator import lanes
from tests.simulator.clock import BEGIN_MS, Clock
from tests.simulator.compaction import Compaction
from tests.simulator.groups import Checkpoint, GroupHistory
from tests.simulator.invariants import History, Rows, Violation
from tests.simulator.settings import Settings
from tests.simulator.store import CALM, Objects, ProcessState, SimulatedStore
from tests.simulator.tables import Tables, is_table

TOPIC = "t"
_OPENED_AGAIN = 0.2
_DAY_SECONDS = 86_400


class Process:
    """One process: its connection to the store, and the logs that it and its children keep warm."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.chance = world.chance
        self.state = ProcessState(name, world.weather)
        self.stores = world.connect(self.state, self._trace)
        """The stores by their addresses; the first is the cluster root, or one of those where the journals are."""
        self.store = next(iter(self.stores.values()))
        skew = self.chance.uniform(-1, 1) * world.settings.skew_seconds
        far = world.settings.far_clocks
        if far and world.busy and self.chance.random() < far:
            skew += self.chance.choice([-8, 8, 8]) * _DAY_SECONDS
        self.environment = Environment(
            now_ms=lambda: BEGIN_MS + int((world.clock.now + skew) * 1000),
            monotonic=lambda: world.clock.now,
            sleep=self.store.wait,
            uniform=self.chance.uniform,
            nonce=lambda: f"{self.chance.getrandbits(128):032x}",
            store_clock=(lambda store: store.clock_ms()) if far else None,
            store_threads=lambda purpose: lanes.threads(purpose, self.chance),
        )
        self.place = "driver"
        self._logs: dict[str, Log] = {}

    @property
    def log(self) -> Log:
        """The log as the process's present part (driver, executor, commit) keeps it."""
        if self.place not in self._logs:
            self._logs[self.place] = self.world.log(self)
        return self._logs[self.place]

    def open(self, *, create: bool) -> None:
        """Open the log as a new process does, and now and then one that has it open already."""
        if not self.log.cluster.state.cluster_id or self.chance.random() < _OPENED_AGAIN:
            self.log.open(create=create)

    def wait(self, seconds: float) -> None:
        """Do nothing for about so long."""
        self.store.wait(self.chance.uniform(0, 2 * seconds))

    def _trace(self, *what: object) -> None:
        self.world.trace(self.name, *what)


def is_copy_for_people(key: str) -> bool:
    """Return whether an object lies beside a node's files to say what they are, and decides nothing."""
    return key.endswith(("/description", "_last_checkpoint", ".checkpoint.parquet"))


def is_of_member(key: str) -> bool:
    """Return whether an object is a sign of life of a member."""
    return key.startswith(layout.GROUPS) and "/heartbeats/" in key


class World:
    """Everything, and what really happened in it."""

    def __init__(self, seed: int, settings: Settings, tell: Callable[[str], object] | None = None) -> None:
        self.seed = seed
        self.settings = settings
        self.chance = random.Random(f"run of {seed}")
        self.clock = Clock()
        self.objects = Objects()
        self.objects.watcher = self
        self.weather = settings.weather
        self.cluster = History(layout.CLUSTER_JOURNAL, cluster.MACHINE, self.objects)
        self.rows: Rows | None = None
        self.groups: dict[str, GroupHistory] = {}
        """By the folders of their journals."""
        self.checkpoints: dict[str, Checkpoint] = {}
        """Those of the stream readers that have a group, by its id."""
        self.taken: dict[str, set[bytes]] = {}
        """What a fault took or damaged of the journals, as it was, by its key."""
        self.process_of: dict[str, Process] = {}
        self.tables = Tables()
        self.compaction: Compaction | None = None
        """What is known of the compaction of a compacted topic, once there is one."""
        self.jobs: dict[str, RollJob] = {}
        """What each segment was made of, by its name."""
        self.counts: Counter[str] = Counter()
        self.operations = 0
        self.digest = hashlib.blake2b(digest_size=8)
        self._tell = tell
        self._processes: list[Process] = []

    def connect(self, owner: ProcessState, trace: Callable[..., object]) -> dict[str, SimulatedStore]:
        """Return a new process's connections to all stores, by their addresses."""
        return {"simulated": SimulatedStore(self.objects, self.clock, self.chance, self.weather, trace, owner=owner)}

    def log(self, process: Process) -> Log:
        """Return the log as a part of a process sees it that has just begun."""
        return Log(process.store, process.environment)

    def histories(self) -> list[History]:
        """Return all journals."""
        return [self.cluster, *([] if self.rows is None else [self.rows]), *self.groups.values()]

    def journal_stores(self) -> list[Objects]:
        """Return what is on each store that holds journals."""
        return [self.objects]

    def stored_objects(self) -> dict[str, dict[str, bytes]]:
        """Return what the store of each node holds."""
        return {"0": self.objects.data}

    def oldest_version(self) -> int:
        """Return the oldest version of the topic that must be kept."""
        return 0 if self.rows is None else min(self.rows.kept(), default=0)

    def calm_down(self) -> None:
        """End what was wrong with the stores."""

    @property
    def busy(self) -> bool:
        """Whether there is still something to begin."""
        if self.operations > self.settings.operations and self.weather is not CALM:
            self.weather = CALM
            for process in self._processes:
                process.state.weather = CALM
            self.calm_down()
        return self.weather is not CALM

    @property
    def process(self) -> Process:
        """The process that runs now."""
        assert self.clock.current is not None
        return self.process_of[self.clock.current.name]

    def begin(self, name: str) -> Process:
        """Return a new process for the present task, with nothing in its memory."""
        assert self.clock.current is not None
        process = Process(self, name)
        self._processes.append(process)
        self.process_of[self.clock.current.name] = process
        return process

    def trace(self, *what: object) -> None:
        """Note one step: what two runs of a seed must have alike."""
        self.operations += 1
        line = f"{self.clock.now * 1000:10.2f} {' '.join(map(str, what))}"
        self.digest.update(line.encode())
        if self._tell is not None:
            self._tell(line)

    def history_of(self, key: str) -> History | None:
        """Return the journal that a key is of, a new one if it is the first."""
        if key.startswith(self.cluster.folder):
            return self.cluster
        folder, is_of_journal, _ = key.partition("journal/")
        if not is_of_journal:
            return None
        if key.startswith(layout.GROUPS):
            folder += is_of_journal
            if folder not in self.groups:
                self.groups[folder] = GroupHistory(folder, self.objects, self)
            return self.groups[folder]
        if self.rows is None:
            self.rows = self._new_rows(folder)
            if self.settings.compaction is not None:
                self.compaction = Compaction(self.rows, self.jobs, self.counts, self.now_ms)
        return self.rows

    def _new_rows(self, folder: str) -> Rows:
        return Rows(folder, topic.MACHINE, self.objects, self.expected, self.now_ms)

    def created(self, key: str, data: bytes) -> None:
        history = self.history_of(key)
        if history is not None:
            history.created(key, data)
        elif is_table(key):
            assert self.rows is not None
            self.tables.created(self.rows, "0", self.objects.data, key)

    def replaced(self, key: str, data: bytes) -> None:
        if not key.startswith("selftest/") and not is_copy_for_people(key):
            raise Violation(f"{key} is replaced")

    def deleting(self, key: str) -> None:
        history = self.history_of(key)
        if history is not None:
            history.deleting(key)
        elif key.startswith("topics/"):
            assert self.rows is not None
            self.rows.deleting(key)
            if key.endswith(".parquet") and not is_table(key):
                self.tables.deleting(self.rows, "0", self.objects.data, key)
        elif not key.startswith("selftest/") and not is_of_member(key):
            raise Violation(f"{key} is removed")

    def now_ms(self) -> int:
        """Return the time by the slowest clock that there may be."""
        return BEGIN_MS + int((self.clock.now + 2 * self.settings.skew_seconds) * 1000)

    def expected(self, producer: str, batch: int) -> Counter[int]:
        """Return how many rows of a batch belong into each partition: the same however often it is tried."""
        chance = random.Random(f"{self.seed}/{producer}/{batch}")
        partitions = chance.sample(range(self.settings.partitions), chance.randint(1, self.settings.partitions))
        return Counter({p: chance.randint(1, 6) for p in partitions})

    def readable(self, p: int, partition: Partition, begin: int, end: int) -> list[int]:
        """Return the offsets of a partition between two that have a row at one of its states."""
        if self.compaction is None or begin >= end:
            return list(range(begin, end))
        return self.compaction.readable(p, partition, begin, end)

    def excused(self, error: LogError) -> None:
        """Go on after an error that the store's faults explain, else raise it."""
        self.counts[type(error).__name__] += 1
        self.trace("excused", type(error).__name__, error.message)
        match error:
            case StoreUnavailable() | OutcomeUnknown() | StaleFile():
                return
            case LogMoved() if self.settings.nodes.movers:
                return  # who goes on opens the log again
            case ObjectMissing() if self.rows is not None and error.key in self.rows.gone:
                return  # whoever slept longer than the delay
            case CorruptObject() if any(key in error.object for key in self.taken):
                return  # it names what was damaged
            case InvalidRecord() if self.settings.far_clocks and "message.timestamp" in error.message:
                return  # a row of a process that could ask no store for the time
        raise error
