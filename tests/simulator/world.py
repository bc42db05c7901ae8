"""A simulated world: one store or several, one clock, one source of chance, and the processes that meet there."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable

import msgspec

from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.environment import Environment
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.model.batch import Acks
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage import layout, spare
from pyspark_log_storage.errors import LogError, ObjectMissing, OutcomeUnknown, StaleFile, StoreUnavailable
from tests.simulator import lanes
from tests.simulator.clock import Clock
from tests.simulator.groups import Checkpoint, GroupHistory
from tests.simulator.invariants import History, Rows, Violation, require
from tests.simulator.store import CALM, Objects, ProcessState, SimulatedStore, Weather

TOPIC = "t"
_OPENED_AGAIN = 0.2
_MORE_WITH_NODES, _MORE_WITH_MOVES = 3, 2
"""A world of several nodes has so many times the operations, as a call takes some; one whose nodes move has more."""
_CALM_TO_MOVE, _CRASH_TO_MOVE = 0.1, 0.002
"""A longer calm and fewer crashes, so that much is moved."""
_QUORUM = 0.2
"""In how many of the worlds of several nodes a majority commits."""
_GROUPED = 0.5
"""In how many of the worlds stream readers have groups."""
_MOVING = 0.5
"""In how many of the worlds of several nodes these join and leave, and journals migrate."""
BEGIN_MS = 1_700_000_000_000


class NodeSettings(msgspec.Struct, frozen=True):
    """What a seed chooses about nodes. Times in ms, probabilities for each look of the nemesis."""

    count: int = 1
    journals: int = 1
    """On how many of the nodes the journals are."""
    replicas: int = 1
    session_timeout_ms: int = 100
    disk_faults: float = 0
    """How often a disk loses what it had, compared with how often it is only away."""
    calm_seconds: float = 0.3
    """How long nothing happens to the disks, about, from one thing to the next."""
    more_troubles: tuple[str, ...] = ()
    """What happens to disks beside what happens in every world."""
    spares: int = 0
    """How many disks there are that are no nodes yet."""
    movers: int = 0
    """How many operators let nodes join and leave, and migrate the journals."""

    @property
    def fewest(self) -> int:
        """How many nodes must be left."""
        return max(self.replicas, self.journals)


class Settings(msgspec.Struct, frozen=True):
    """What a seed chooses. The constants are the product's, made small, so that much happens in little time."""

    partitions: int
    config: TopicConfig
    weather: Weather
    operations: int
    """How many operations on the store the run has, before the weather calms down and all finish."""
    queries: int
    readers: int
    maintainers: int
    skew_seconds: float
    snapshot_every: int
    snapshots_kept: int
    hashes_max: int
    roll_chunks: int
    unrolled_chunks_max: int
    merge_count: int
    inline_bytes_max: int
    clean_up_every: int
    nodes: NodeSettings
    acks: tuple[Acks, ...]
    """What a writer chooses from, for each batch."""
    rewinds: float
    """How often a stream reader goes back to where it has been, as a probability for each micro-batch."""
    grouped: bool
    """Whether each stream reader has a group, which an operator rewinds."""
    members: int
    """How many members a group has that shares the topic."""


def settings_of(seed: int, operations: int) -> Settings:
    """Return what a seed chooses: some worlds are calm, some stormy."""
    chance = random.Random(f"settings of {seed}")
    every = chance.choice([4, 8, 16])
    roll = chance.choice([3, 6, 12])
    storm = chance.choice([0, 1, 1, 4])
    weather = Weather(
        crash=chance.choice([0, 0.001, 0.004]) * storm,
        unavailable=chance.choice([0, 0.002, 0.01]) * storm,
        lost_answer=chance.choice([0, 0.002, 0.01]) * storm,
        late_answer=chance.choice([0, 0.02, 0.08]),
        sleep=chance.choice([0.0005, 0.002, 0.008]),
        sleep_seconds_max=chance.choice([0.1, 1, 4]),
        latency_seconds=chance.choice([0.0005, 0.002]),
        page=chance.choice([2, 1000]),
        stale_list_seconds=0,
    )
    config = TopicConfig(
        segment_bytes=chance.choice([4_000, 20_000, 10**9]),
        segment_ms=chance.choice([50, 500, 10**9]),
        flush_messages=chance.choice([20, 10**9]),
        retention_ms=chance.choice([-1, 500, 2_000]),
        retention_bytes=chance.choice([-1, -1, 10_000, 40_000]),
        file_delete_delay_ms=chance.choice([0, 20, 200]),
        orphan_retention_ms=chance.choice([0, 50, 500]),
        max_message_bytes=10**6,
    )
    settings = Settings(
        partitions=chance.choice([1, 2, 3]),
        config=config,
        weather=weather,
        operations=operations,
        queries=chance.choice([1, 2, 3]),
        readers=chance.choice([1, 2]),
        maintainers=chance.choice([1, 2]),
        skew_seconds=chance.choice([0, 0, 0, 1]),
        snapshot_every=every,
        snapshots_kept=chance.choice([1, 2, 3]),
        hashes_max=every * chance.choice([1, 2, 8]),
        roll_chunks=roll,
        unrolled_chunks_max=roll * chance.choice([2, 4]),
        merge_count=chance.choice([2, 3]),
        inline_bytes_max=chance.choice([200, 600, 10**6]),
        clean_up_every=chance.choice([4, 16]),
        nodes=NodeSettings(),
        acks=chance.choice([("all", "all", "1"), ("all", "all", "1"), ("all", "all", "1", "0")]),
        rewinds=chance.choice([0, 0.1]),
        grouped=chance.random() < _GROUPED,
        members=chance.choice([0, 3]),
    )
    # Every other world has one node, and is what it is whatever the others are.
    return settings if seed % 2 == 0 else _with_nodes(seed, settings)


def _with_nodes(seed: int, settings: Settings) -> Settings:
    """Return the settings of a world of three nodes, with the journals on one of them or on all."""
    chance = random.Random(f"nodes of {seed}")
    replicas = chance.choice([2, 3, 3, 3])
    unclean = chance.random() < 0.1
    min_insync = 1 if unclean else chance.choice([1, 2, 2])
    config = msgspec.structs.replace(
        settings.config,
        min_insync_replicas=min_insync,
        unclean_leader_election_enable=unclean,
        orphan_retention_ms=chance.choice([200, 1000]),
        replica_lag_time_max_ms=chance.choice([50, 500]),
    )
    nodes = NodeSettings(
        count=3,
        journals=1 if seed % 4 == 1 else 3,
        replicas=replicas,
        session_timeout_ms=chance.choice([20, 100, 500]),
        disk_faults=chance.choice([0, 0.3, 0.7]),
        calm_seconds=chance.choice([0.03, 0.1, 0.5]),
        more_troubles=chance.choice([(), ("read-only",)]),
    )
    if unclean:
        # Else the ISR is hardly ever gone while the disk of another replica is an old one.
        nodes = msgspec.structs.replace(nodes, session_timeout_ms=20, disk_faults=0.5, calm_seconds=0.03)
    if chance.random() < _QUORUM:
        # Of three replicas a majority is two, whatever else is said.
        nodes = msgspec.structs.replace(nodes, replicas=3)
        least = 1 if unclean else 2
        config = msgspec.structs.replace(config, replication_mode="quorum", min_insync_replicas=least)
    operations = _MORE_WITH_NODES * settings.operations
    if chance.random() < _MOVING:
        movers, calm = chance.choice([1, 2]), max(nodes.calm_seconds, _CALM_TO_MOVE)
        nodes = msgspec.structs.replace(nodes, spares=2, movers=movers, calm_seconds=calm)
        # An operator has to live for a while, too, to move anything.
        weather = msgspec.structs.replace(settings.weather, crash=min(settings.weather.crash, _CRASH_TO_MOVE))
        settings = msgspec.structs.replace(settings, queries=1, readers=1, maintainers=1, weather=weather)
        operations *= _MORE_WITH_MOVES
    return msgspec.structs.replace(settings, config=config, nodes=nodes, operations=operations)


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
        self.environment = Environment(
            now_ms=lambda: BEGIN_MS + int((world.clock.now + skew) * 1000),
            monotonic=lambda: world.clock.now,
            sleep=self.store.wait,
            uniform=self.chance.uniform,
            nonce=lambda: f"{self.chance.getrandbits(128):032x}",
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
    return key.endswith(("-checkpoint", "/description"))


def is_of_member(key: str) -> bool:
    """Return whether an object is a sign of life of a member, or its request to join."""
    return key.startswith(layout.GROUPS) and ("/heartbeats/" in key or "/joins/" in key)


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
        """What a fault took or damaged of the journals, as it was."""
        self.process_of: dict[str, Process] = {}
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

    def spared(self, history: History) -> list[str]:
        """Return the folders of a journal's objects that have spares."""
        return [f"{history.folder}{kind}/" for kind in ("entries", "snapshots", "manifests")]

    def histories(self) -> list[History]:
        """Return all journals."""
        return [self.cluster, *([] if self.rows is None else [self.rows]), *self.groups.values()]

    def journal_stores(self) -> list[Objects]:
        """Return what is on each store that holds journals."""
        return [self.objects]

    def stored_objects(self) -> list[dict[str, bytes]]:
        """Return what each store holds."""
        return [self.objects.data]

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
        return self.rows

    def _new_rows(self, folder: str) -> Rows:
        return Rows(folder, topic.MACHINE, self.objects, self.expected, self.now_ms)

    def created(self, key: str, data: bytes) -> None:
        history = self.history_of(key)
        if history is not None:
            history.created(key, data)

    def replaced(self, key: str, data: bytes) -> None:
        if data in self.taken.get(key, ()) or self._is_decided(key, data):
            return
        if f"/{spare.FOLDER}" in f"/{key}":
            of = self.objects.data.get(key.replace(spare.FOLDER, "", 1), data)
            require(data == of, f"{key} is replaced by something else than it is the spare of")
        elif not key.startswith("selftest/") and not is_copy_for_people(key):
            raise Violation(f"{key} is replaced")

    def _is_decided(self, key: str, data: bytes) -> bool:
        """Return whether `data` is the entry that was decided for the slot `key`: its spare is put back."""
        return any(key.startswith(each.folder) and each.has_decided(key, data) for each in self.histories())

    def deleting(self, key: str) -> None:
        history = self.history_of(key)
        if history is not None:
            history.deleting(key)
        elif key.startswith("topics/"):
            assert self.rows is not None
            self.rows.deleting(key)
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

    def excused(self, error: LogError) -> None:
        """Go on after an error that the store's faults explain, else raise it."""
        self.counts[type(error).__name__] += 1
        self.trace("excused", type(error).__name__, error.message)
        match error:
            case StoreUnavailable() | OutcomeUnknown() | StaleFile():
                return
            case ObjectMissing() if self.rows is not None and error.key in self.rows.gone:
                return  # whoever slept longer than the delay
        raise error
