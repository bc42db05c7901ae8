"""What a seed chooses of a simulated world: how many nodes, how small, how stormy."""

from __future__ import annotations

import random

import msgspec

from pyspark_log_coordinator.model.batch import Acks
from pyspark_log_coordinator.model.topic_config import TopicConfig
from tests.simulator.store import Weather

_MORE_WITH_NODES, _MORE_WITH_MOVES = 3, 2
"""A world of several nodes has so many times the operations, as a call takes some; one whose nodes move has more."""
_CALM_TO_MOVE, _CRASH_TO_MOVE = 0.1, 0.002
"""A longer calm and fewer crashes, so that much is moved."""
_UNCLEAN = 0.42
"""In how many of the worlds of several nodes an election may be unclean."""
_QUORUM = 0.2
"""In how many of the worlds of several nodes a majority commits."""
_GROUPED = 0.5
"""In how many of the worlds stream readers have groups."""
_PARQUET = 0.5
"""In how many of the worlds the history is Parquet."""
_MOVING = 0.5
"""In how many of the worlds of several nodes these join and leave, and journals migrate."""
_COMPACTED = 0.25
"""In how many of the worlds the topic is compacted."""
_FAR_CLOCKS = 0.25
"""In how many of the worlds the clocks of some processes are days off."""
_MORE_WITH_KEYS = 3
"""A compacted world has so many times the operations: rows are written, compacted, and compacted again."""


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


class CompactionSettings(msgspec.Struct, frozen=True):
    """What a seed chooses about a compacted topic. The constants are the product's, made small."""

    keys: int
    """How many keys a partition has rows of."""
    tombstones: float
    """How many of the rows delete their key, as a share."""
    headers: float
    """How many of the batches have headers in every row; a row without a value always has some."""
    compactors: int
    policy_changes: bool
    """Whether somebody sets cleanup.policy=delete now and then, and back."""
    dirty_rows_max: int
    clean_chunks: int


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
    roll_chunks: int
    unrolled_chunks_max: int
    merge_count: int
    clean_up_every: int
    checkpoint_every: int
    """How many versions of the Delta table have one checkpoint."""
    nodes: NodeSettings
    acks: tuple[Acks, ...]
    """What a writer chooses from, for each batch."""
    rewinds: float
    """How often a stream reader goes back to where it has been, as a probability for each micro-batch."""
    grouped: bool
    """Whether each stream reader has a group, which an operator rewinds."""
    members: int
    """How many members a group has that shares the topic."""
    compaction: CompactionSettings | None = None
    """Of a world whose topic is compacted."""
    far_clocks: float = 0
    """How many of the processes have a clock that is days off, as a share; then all ask the stores for the time."""


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
        roll_chunks=roll,
        unrolled_chunks_max=roll * chance.choice([2, 4]),
        merge_count=chance.choice([2, 3]),
        clean_up_every=chance.choice([4, 16]),
        checkpoint_every=20,
        nodes=NodeSettings(),
        acks=chance.choice([("all", "all", "1"), ("all", "all", "1"), ("all", "all", "1", "0")]),
        rewinds=chance.choice([0, 0.1]),
        grouped=chance.random() < _GROUPED,
        members=chance.choice([0, 3]),
    )
    settings = _with_compaction(seed, _with_table(seed, settings))
    chance = random.Random(f"clocks of {seed}")
    if chance.random() < _FAR_CLOCKS:
        settings = msgspec.structs.replace(settings, far_clocks=chance.choice([0.1, 0.3]))
    # Every other world has one node, and is what it is whatever the others are.
    return settings if seed % 2 == 0 else _with_nodes(seed, settings)


def _with_table(seed: int, settings: Settings) -> Settings:
    """Return the settings of a world that may have Parquet segments, and so a table."""
    chance = random.Random(f"table of {seed}")
    if chance.random() >= _PARQUET:
        return settings
    config = msgspec.structs.replace(
        settings.config, segment_format="parquet", segment_bytes=chance.choice([500, 2_000, 4_000])
    )
    every = chance.choice([2, 4, 20])
    config = msgspec.structs.replace(config, parquet_max_lag_ms=chance.choice([-1, 0, 50, 500]))
    return msgspec.structs.replace(settings, config=config, checkpoint_every=every)


def _with_compaction(seed: int, settings: Settings) -> Settings:
    """Return the settings of a world whose topic may be compacted."""
    chance = random.Random(f"compaction of {seed}")
    if chance.random() >= _COMPACTED:
        return settings
    config = msgspec.structs.replace(
        settings.config,
        cleanup_policy=chance.choice(["compact", "compact", "compact,delete"]),
        min_cleanable_dirty_ratio=chance.choice([0.01, 0.3, 0.6]),
        min_compaction_lag_ms=chance.choice([0, 0, 30, 200]),
        max_compaction_lag_ms=chance.choice([50, 500, 10**9]),
        delete_retention_ms=chance.choice([0, 300, 2_000]),
        segment_bytes=chance.choice([2_000, 10_000, 10**9]),
    )
    compaction = CompactionSettings(
        keys=chance.choice([2, 4, 12]),
        tombstones=chance.choice([0.1, 0.3, 0.5]),
        headers=chance.choice([0, 0.5]),
        compactors=chance.choice([1, 2]),
        policy_changes=chance.random() < 0.3,
        dirty_rows_max=chance.choice([4, 12, 100]),
        clean_chunks=chance.choice([1, 4]),
    )
    operations = _MORE_WITH_KEYS * settings.operations
    return msgspec.structs.replace(settings, config=config, operations=operations, members=0, compaction=compaction)


def _with_nodes(seed: int, settings: Settings) -> Settings:
    """Return the settings of a world of three nodes, with the journals on one of them or on all."""
    chance = random.Random(f"nodes of {seed}")
    replicas = chance.choice([2, 3, 3, 3])
    unclean = chance.random() < _UNCLEAN
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
        if nodes.journals > 1 and settings.compaction is None:
            settings = msgspec.structs.replace(settings, members=3)  # whose group's journal migrates, too
        operations *= _MORE_WITH_MOVES
    return msgspec.structs.replace(settings, config=config, nodes=nodes, operations=operations)
