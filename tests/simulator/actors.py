"""Who does what in a simulated world: each actor drives the production code as Spark and the command line do."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pyarrow as pa

from pyspark_log.writing.destination import destination_of
from pyspark_log.writing.rows import Rows
from pyspark_log.writing.staging import Staging
from pyspark_log_coordinator.commit.commit import commit_staged
from pyspark_log_coordinator.commit.inline_maintenance import plan_inline, roll_inline
from pyspark_log_coordinator.journal import trimming
from pyspark_log_coordinator.log.log import TopicHandle
from pyspark_log_coordinator.maintenance import cluster_cleanup, delta_table, roll_task, topic_cleanup, topic_roll
from pyspark_log_coordinator.model.batch import Acks, StagedFile
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_coordinator.segments.swap import MaintainSegments, SwapSegments
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage.errors import (
    BatchMismatch,
    InvalidInput,
    LogError,
    NodeMissing,
    OutcomeUnknown,
    ProducerFenced,
    StoreUnavailable,
)
from tests.simulator import compacted
from tests.simulator.invariants import require
from tests.simulator.store import Crashed
from tests.simulator.world import TOPIC, Process, World

TASK_ATTEMPTS = 3


def supervised(world: World, name: str, live: Callable[[Process], None]) -> None:
    """Begin a process that lives so, and a new one, with nothing in its memory, whenever it has crashed."""

    def run() -> None:
        lives = 0
        while world.busy:
            lives += 1
            process = world.begin(f"{name}.{lives}")
            try:
                live(process)
            except Crashed:
                world.counts["crashes"] += 1
                world.clock.pause(world.chance.uniform(0, 0.1))

    world.clock.spawn(name, run, world.chance.uniform(0, 0.01))


def may_die(process: Process, probability: float) -> None:
    """Let a process die with some probability, in worlds where processes crash."""
    if process.world.weather.crash and process.chance.random() < probability:
        process.world.trace(process.name, "dies")
        raise Crashed


class Succession:
    """Processes of one name, of which the newest counts: the runs of a query, or a member that is replaced."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.runs = 0


class Query(Succession):
    """A streaming query's checkpoint: the last batch that it knows to be written, and how often it was started."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.committed = -1


def start_next(
    world: World, them: Succession, live: Callable[[Process, int], None], *, may_be_zombies: bool = True
) -> None:
    """Start the next process of a succession, and when it has ended another one, until the world calms down.

    One that sleeps may be replaced by the next: it is a zombie from then on.
    """
    them.runs += 1
    number = them.runs

    def is_newest() -> bool:
        return them.runs == number and world.busy

    def run() -> None:
        process = world.begin(f"{them.name}.{number}")

        def seems_dead() -> None:
            if may_be_zombies and is_newest() and world.chance.random() < 0.5:
                world.counts["zombies"] += 1
                start_next(world, them, live)

        process.state.on_sleep = seems_dead
        try:
            live(process, number)
        except Crashed:
            world.counts["crashes"] += 1
        if is_newest():
            start_next(world, them, live, may_be_zombies=may_be_zombies)

    world.clock.spawn(f"{them.name}.{number}", run, world.chance.uniform(0, 0.05))


def start_query(world: World, query: Query) -> None:
    """Start the runs of a query."""
    start_next(world, query, lambda process, number: _run_query(world, query, process, number))


def _run_query(world: World, query: Query, process: Process, number: int) -> None:
    """Write batch after batch, each again until the checkpoint has it, as Spark does. Returns where the run ends."""
    while world.busy:
        batch = query.committed + 1
        claim = ProducerClaim(query.name, query.name, f"{query.name}.{number}", batch, follows=True)
        try:
            write(process, claim, query.name, batch)
        except (ProducerFenced, BatchMismatch) as error:
            if query.runs == number and _has_lost_rows(world, query.name, batch):
                query.committed = batch  # an operator has told the query to do without them
                continue
            require(query.runs != number or query.committed >= batch, f"the newest run was refused: {error}")
            world.counts["fenced"] += 1
            return
        except LogError as error:
            world.excused(error)
            return
        if process.chance.random() < world.weather.crash * 10:
            raise Crashed
        process.wait(0.002)
        if query.committed >= batch:
            return  # Spark: another run has written this batch's place in the checkpoint
        query.committed = batch


def application(process: Process, versions: list[int]) -> None:
    """Write numbered batches under a name of its own (`txnAppId`), each again until it is acknowledged."""
    while process.world.busy:
        try:
            write(process, ProducerClaim("app", "", "", len(versions)), "app", len(versions))
            versions.append(1)
        except LogError as error:
            if _has_lost_rows(process.world, "app", len(versions)):
                versions.append(1)
                continue
            process.world.excused(error)
        process.wait(0.02)


def _has_lost_rows(world: World, producer: str, batch: int) -> bool:
    """Return whether the producer was told rightly that an election has cut rows of its last batch."""
    if world.rows is None:
        return False
    known = world.rows.states[-1].producers.get(producer)
    return known is not None and known.batch_id == batch and known.rows_lost > 0


def plain_writer(process: Process) -> None:
    """Write batches without a name: what failed is not tried again, for it may be in the log."""
    while process.world.busy:
        name = f"plain-{process.environment.nonce()}"
        try:
            write(process, None, name, 0)
        except LogError as error:
            rows = process.world.rows
            if rows and not isinstance(error, OutcomeUnknown):
                rows.refused(name, 0, error)
            process.world.excused(error)
        process.wait(0.02)


def write(process: Process, claim: ProducerClaim | None, producer: str, batch: int) -> None:
    """Write one batch as the sink does: tasks stage files, some twice, and the driver sequences them."""
    world, chance = process.world, process.chance
    process.place = "driver"
    handle = open_topic(process)
    works = plan_inline(handle)
    acks = chance.choice(world.settings.acks)
    rows = [
        (p, b"%s/%d/%d/%d" % (producer.encode(), batch, p, i))
        for p, n in sorted(world.expected(producer, batch).items())
        for i in range(n)
    ]
    bounds = sorted([0, len(rows), *(chance.randint(0, len(rows)) for _ in range(chance.randint(0, 2)))])
    files, swaps = [], []
    for task, (start, end) in enumerate(itertools.pairwise(bounds)):
        for attempt in range(TASK_ATTEMPTS):
            process.place = f"executor {task}"
            try:
                staged = _stage(process, handle, rows[start:end], acks)
            except (StoreUnavailable, NodeMissing):
                if attempt == TASK_ATTEMPTS - 1:
                    raise
                continue
            done: tuple[SwapSegments, ...] = ()
            if task < len(works):
                done = roll_inline(process.log.store_at, works[task], process.environment)
            if attempt > 0 or chance.random() > 0.1:  # else another attempt of the task wins
                break
        files.append(staged)
        swaps += done
    process.place = chance.choice(["driver", "commit"])
    process.open(create=False)
    patience = RetryPolicy(retries=5, session_timeout_ms=world.settings.nodes.session_timeout_ms)
    offsets = commit_staged(process.log, files, claim, acks, patience, TOPIC, swaps=swaps)[TOPIC]
    assert world.rows is not None
    world.rows.acknowledged(producer, batch, acks, offsets)
    world.counts["offsets acknowledged"] += len(offsets)
    world.counts["batches"] += 1
    world.counts[f"acks={acks}"] += 1


def _stage(process: Process, handle: TopicHandle, rows: list[tuple[int, bytes]], acks: Acks) -> list[StagedFile]:
    staging = Staging(
        handle.log.store_at,
        lambda _: destination_of(handle, None, 10**6, acks),
        TOPIC,
        environment=process.environment,
        durable=acks != "0",
        sticky=0,
    )
    try:
        if rows:
            times = [(handle.now_ms() - process.chance.randint(0, 50)) * 1000 for _ in rows]
            names = [name for _, name in rows]
            record = compacted.record_of(process.world, handle.config, names, times)
            staging.add(Rows(record, None, pa.array([p for p, _ in rows], pa.int32())))
        return staging.finish()
    except BaseException:
        staging.discard()
        raise


def open_topic(process: Process) -> TopicHandle:
    """Return the topic, made if it is not there; it is as new as when it was asked for, and what really is."""
    world = process.world
    process.open(create=True)
    before = 0 if world.rows is None else world.rows.number
    handle = process.log.ensure_topic(TOPIC, world.settings.partitions, world.settings.config)
    assert world.rows is not None
    number = handle.journal.number
    require(number >= before, f"entry {number} is shown as the newest, and {before} was there")
    require(handle.journal.state == world.rows.states[number], f"the state at entry {number} is not what was decided")
    return handle


def maintainer(process: Process) -> None:
    """Roll, merge, expire and clean up, by all ways that there are."""
    world, chance = process.world, process.chance
    older: list[tuple[int, Topic]] = []
    while world.busy:
        try:
            handle = open_topic(process)
            if handle.journal.state.config.segment_format == "parquet":
                publish_older(process, handle, older)
            match chance.randrange(5):
                case 0:
                    if world.settings.config.segment_format == "parquet" and chance.random() < 0.5:
                        handle.submit(AlterConfig({"segment.format": chance.choice(["log", "parquet"])}))
                    topic_roll.roll_and_merge(handle)
                case 1 | 2:
                    topic_cleanup.clean_up_topic(handle)
                case 3:
                    trimming.trim(handle.journal)
                    cluster_cleanup.clean_up_cluster(process.log)
                case 4:
                    for work in plan_inline(handle):
                        swap = roll_task.run_roll(process.log.store_at, work, process.environment)
                        process.wait(chance.choice([0, 0.1]))
                        handle.submit(MaintainSegments((swap,)))
        except LogError as error:
            world.excused(error)
        process.wait(0.02)


def publish_older(process: Process, handle: TopicHandle, older: list[tuple[int, Topic]]) -> None:
    """Publish the table of a node by a state that may be old, as a process does that was suspended."""
    older.append((handle.journal.number, handle.journal.state))
    if process.chance.random() < 0.2:
        entry, state = process.chance.choice(older)
        node = process.chance.choice(sorted(process.log.cluster.state.nodes))
        now = handle.now_ms()
        delta_table.publish(process.log.node_store(node), handle, state, node, entry=entry, now=now)


def administrator(process: Process) -> None:
    """Delete records, and change the configuration, now and then."""
    world, chance = process.world, process.chance
    while world.busy:
        try:
            handle = open_topic(process)
            number = chance.randrange(world.settings.partitions)
            partition = handle.journal.state.partitions[number]
            match chance.randrange(3):
                case 0 if world.settings.compaction is not None and chance.random() < 0.7:
                    pass  # else few rows are left to compact
                case 0:
                    handle.submit(DeleteRecords(number, chance.randint(partition.log_start, partition.high_watermark)))
                case 1 if chance.random() < 0.2:
                    handle.submit(DeleteRecords(number, -1))
                case 2:
                    handle.submit(AlterConfig({"retention.ms": chance.choice(["-1", "300", "3000"])}))
        except InvalidInput:
            assert world.rows is not None
            require(world.rows.unclean, "an offset below the HW is refused, and no committed rows were cut in between")
        except LogError as error:
            world.excused(error)
        process.wait(0.3)
