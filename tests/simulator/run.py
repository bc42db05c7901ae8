"""One run: a world that a seed chooses, its actors, and the audit of what they leave behind."""

from __future__ import annotations

import contextlib
import functools
import logging
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from unittest import mock

import msgspec

from pyspark_log import opening
from pyspark_log.reading import failover, fetch, stream_planner
from pyspark_log.reading.fetch import RecentChunks
from pyspark_log.source import topic_columns  # noqa: F401 -- not first in a run, when it would keep a world's `open_log`
from pyspark_log.writing import staging
from pyspark_log_coordinator.audit import repair, verify
from pyspark_log_coordinator.commit import inline_maintenance, settling
from pyspark_log_coordinator.journal import (
    journal,
    trimming,
)
from pyspark_log_coordinator.log import bootstrap, group_handle, node_admin
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.maintenance import roll_task, topic_cleanup, topic_roll
from pyspark_log_coordinator.membership import group_member
from pyspark_log_coordinator.segments import compaction_plan, roll_plan, tiers
from pyspark_log_coordinator.sync import reassigner
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage.delta import delta_log
from pyspark_log_storage.parquet import parquet_segment, row_group
from tests.simulator import actors, compacted, groups, lanes, losses, members, moves, nemesis, readers, tables
from tests.simulator.invariants import History, require
from tests.simulator.replicas import ReplicatedRows
from tests.simulator.replicated_world import ReplicatedWorld
from tests.simulator.settings import Settings, settings_of
from tests.simulator.store import CALM
from tests.simulator.tables import is_table
from tests.simulator.world import TOPIC, Process, World, is_copy_for_people

OPERATIONS = 3000
BUSY_MS = 15_000
AVOID_SECONDS = 0.2
ROUNDS = 12
"""How often followers, maintenance and an operator may go round until all replicas are whole again."""

T = TypeVar("T")


class Result(msgspec.Struct):
    """What a run came to. `digest` is of every step: two runs of one seed have the same."""

    seed: int
    digest: str
    failure: BaseException | None
    counts: Counter[str]
    journals: list[History] = []


def run(
    seed: int,
    operations: int = OPERATIONS,
    tell: Callable[[str], object] | None = None,
) -> Result:
    """Run a seed; `tell` is called with every step."""
    settings = settings_of(seed, operations)
    kind = World if settings.nodes.count == 1 else ReplicatedWorld
    world = kind(seed, settings, tell)
    with _small(world.settings), _simulated(world):
        if isinstance(world, ReplicatedWorld):
            _found(world)
        if world.clock.failure is None:
            _populate(world)
            world.clock.run()
        failure = world.clock.failure
        if failure is None:
            try:
                _audit(world)
            except Exception as error:  # noqa: BLE001 -- whatever it is, it is what the seed finds
                failure = error
    assert world.rows is not None or failure is not None
    if world.rows is not None:
        world.counts["entries"] = world.rows.number
        world.counts["versions of tables"] = world.tables.published
        world.counts["strays"] = world.rows.strays
        world.counts["conversions to Parquet"] = world.rows.conversions
        world.counts["unclean elections"] = world.rows.unclean
        world.counts["rows"] = sum(map(len, world.rows.rows))
        world.counts[f"{world.settings.config.replication_mode} worlds"] += 1
        world.counts["compacted worlds"] += world.settings.compaction is not None
    return Result(seed, world.digest.hexdigest(), failure, world.counts, world.histories())


def _found(world: ReplicatedWorld) -> None:
    """Make the cluster with its nodes and the topic, before anything goes wrong."""

    def make() -> None:
        process = world.begin("founder")
        process.state.weather = CALM
        if world.several_journals:
            bootstrap.mark([process.stores[each] for each in world.addresses], process.environment)
        process.log.open(create=True)
        for each in list(world.first.values())[len(process.log.cluster.state.nodes) :]:
            node_admin.join(process.log, each.url)
        names = sorted(world.first)
        count, wide = world.settings.partitions, world.settings.nodes.replicas
        replicas = [[names[(p + i) % len(names)] for i in range(wide)] for p in range(count)]
        process.log.create_topic(TOPIC, count, world.settings.config, replicas=replicas)

    world.clock.spawn("founder", make)
    world.clock.run()


def _populate(world: World) -> None:
    settings = world.settings
    world.clock.spawn("loss", functools.partial(losses.lose, world))
    if isinstance(world, ReplicatedWorld):
        world.clock.spawn("nemesis", functools.partial(nemesis.trouble, world))
        actors.supervised(world, "operator", nemesis.operator)
        for name in world.disks:
            actors.supervised(world, f"follower {name}", functools.partial(nemesis.follower, node=name))
        for number in range(settings.nodes.movers):
            actors.supervised(world, f"mover {number}", moves.mover)
    for number in range(settings.queries):
        actors.start_query(world, actors.Query(f"query-{number}"))
    versions: list[int] = []
    actors.supervised(world, "application", lambda process: actors.application(process, versions))
    actors.supervised(world, "plain writer", actors.plain_writer)
    actors.supervised(world, "administrator", actors.administrator)
    for number in range(settings.maintainers):
        actors.supervised(world, f"maintainer {number}", actors.maintainer)
    for number in range(settings.readers):
        name = f"stream reader {number}"
        checkpoint = world.checkpoints[f"group-{number}"] = {}
        read = functools.partial(readers.stream_reader, checkpoint=checkpoint, name=f"group-{number}")
        actors.supervised(world, name, read)
        actors.supervised(world, f"batch reader {number}", readers.batch_reader)
    if settings.grouped:
        actors.supervised(world, "group operator", groups.group_operator)
    for number in range(settings.members):
        members.start_member(world, f"member {number}")
    if settings.members:
        actors.supervised(world, "rewinder", groups.rewinder)
    compacted.start(world)


def _audit(world: World) -> None:
    """Hold what must be true once all have finished, and that cleaning up leaves only what is needed."""

    def look() -> None:
        process = world.begin("auditor")
        if not isinstance(world, ReplicatedWorld):
            _mend(process)
            _check(world, process.log)
        if isinstance(world, ReplicatedWorld):
            world.clock.pause(BUSY_MS / 1000)  # until all disks are mounted
        handle = actors.open_topic(process)
        rows = world.rows
        assert rows is not None
        _mend(process)
        if isinstance(world, ReplicatedWorld):
            whole = nemesis.put_right(world, process, handle, ROUNDS)
            require(whole, f"the replicas are not whole again: {world.state.partitions}")
        if world.settings.config.segment_format == "parquet":
            handle.submit(AlterConfig({"segment.format": "parquet"}))
            topic_roll.roll_and_merge(handle)  # converts what was rolled while the format was another
        for _ in range(4):
            world.clock.pause(BUSY_MS / 1000)
            topic_cleanup.clean_up_topic(handle)
        _check(world, process.log)
        readers.read_all(process)
        for name, checkpoint in world.checkpoints.items():
            readers.finish(process, checkpoint, name)
            history = groups.group_of(world, name)
            if history is not None and not rows.unclean:
                history.hold_finished(checkpoint)
        members.finish(world, process)
        if isinstance(rows, ReplicatedRows):
            rows.hold_equal()
        if world.settings.config.segment_format == "parquet":
            for node, data in world.stored_objects().items():
                world.counts["rows of tables"] += tables.hold_finished(rows, node, data)
        for data in world.stored_objects().values():
            stored = {key for key in data if key.startswith(rows.topic_folder)}
            left = stored - rows.needed()
            rubbish = sorted(
                key
                for key in left
                if not key.startswith(rows.folder) and not is_copy_for_people(key) and not is_table(key)
            )
            require(not rubbish, f"cleaning up leaves {rubbish[:5]}")

    world.clock.spawn("auditor", look)
    world.clock.run()
    if world.clock.failure is not None:
        raise world.clock.failure


def _mend(process: Process) -> None:
    """Replace the damaged objects of the journals, as `verify --repair` does."""
    handle = actors.open_topic(process)
    repair.repair_journals(process.log)
    repair.repair(handle)


def _check(world: World, log: Log) -> None:
    rows = world.rows
    assert rows is not None
    log.open(create=False)
    handle = log.topic(TOPIC)
    rows.check_all()
    for each in world.histories():
        each.hold_kept()
    for report in (verify.verify(handle), verify.verify_cluster(log)):
        found = report.findings
        if isinstance(world, ReplicatedWorld) and world.several_journals:
            # A journal node that was wiped takes part no more: that is said, and right.
            former = {f"journal node {name!r}" for name in world.former_journal_nodes()}
            told = {each.what for each in found if each.what.startswith("journal node")}
            require(report.topic is not None or told == former, f"verify says {told}, where {former} were wiped")
            found = [each for each in found if each.what not in former]
        require(not found, f"verify finds {found[:3]}")


@contextlib.contextmanager
def _small(settings: Settings) -> Iterator[None]:
    """Make the product's constants small, so that much happens in few steps."""
    compaction = settings.compaction
    rows_max = compaction_plan.DIRTY_ROWS_MAX if compaction is None else compaction.dirty_rows_max
    clean_chunks = compaction_plan.INLINE_CHUNKS if compaction is None else compaction.clean_chunks
    with contextlib.ExitStack() as stack:
        for module, name, value in (
            (journal, "SNAPSHOT_EVERY", settings.snapshot_every),
            (trimming, "SNAPSHOTS_KEPT", settings.snapshots_kept),
            (roll_plan, "ROLL_CHUNKS", settings.roll_chunks),
            (roll_plan, "UNROLLED_CHUNKS_MAX", settings.unrolled_chunks_max),
            (tiers, "MERGE_COUNT", settings.merge_count),
            (roll_plan, "INLINE_LAG_MS", 200),
            (compaction_plan, "DIRTY_ROWS_MAX", rows_max),
            (compaction_plan, "INLINE_CHUNKS", clean_chunks),
            (inline_maintenance, "CLEAN_UP_EVERY_ENTRIES", settings.clean_up_every),
            (group_handle, "CLEAN_UP_EVERY_ENTRIES", settings.clean_up_every),
            (delta_log, "CHECKPOINT_EVERY", settings.checkpoint_every),
            (parquet_segment, "ROW_GROUP_BYTES", 400),
            (roll_task, "CHUNK_BYTES", 400),
            (roll_task, "SMALL_CHUNK_BYTES", 700),
            (roll_task, "TINY_CHUNK_BYTES", 700),
            (staging, "CHUNK_BYTES", 200),
            (fetch, "BATCH_ROWS", 5),
            (stream_planner, "IDLE_WAIT_SECONDS", 0),
            (settling, "TURN_EVERY_SECONDS", 0.2),
            (reassigner, "PATIENCE_SECONDS", 0.02),
            (group_member, "NEWS_SECONDS", 0.1),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield


@contextlib.contextmanager
def _simulated(world: World) -> Iterator[None]:
    """Let what the product takes from its process come from the simulated one."""

    def open_log(path: str, options: object = None, *, create: bool = False) -> Log:
        world.process.open(create=create)
        return world.process.log

    def stores_at(address: str, options: object = None) -> Callable[[str], Any]:
        return world.process.log.store_at

    reads: weakref.WeakKeyDictionary[Any, lanes.InlineReads] = weakref.WeakKeyDictionary()

    def lane_of(store: Any) -> lanes.InlineReads:
        return reads.setdefault(store, lanes.InlineReads(lambda: world.clock.now, AVOID_SECONDS))

    run_job = roll_task._run

    def noted(store_at: Any, work: Any, environment: Any) -> Any:
        made = run_job(store_at, work, environment)
        job = msgspec.structs.replace(work.job)  # one of its own for each run
        world.jobs |= dict.fromkeys((each.name for each in made.segments), job)
        return made

    logger = logging.getLogger("pyspark_log")
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(opening, "open_log", open_log))
        stack.enter_context(mock.patch.object(opening, "stores_at", stores_at))
        stack.enter_context(mock.patch.object(opening, "own_stores_at", stores_at))
        stack.enter_context(mock.patch.object(roll_task, "_run", noted))
        stack.enter_context(mock.patch.object(failover, "lane_of", lane_of))
        stack.enter_context(mock.patch.object(fetch, "_recent", RecentChunks()))
        stack.enter_context(mock.patch.object(row_group, "_footers", OrderedDict()))
        stack.enter_context(mock.patch.object(logger, "disabled", True))
        yield
