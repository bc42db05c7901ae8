"""One run: a world that a seed chooses, its actors, and the audit of what they leave behind."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from unittest import mock

import msgspec

from pyspark_log.sink import in_passing, sequence, staging
from pyspark_log.source import batch_reader, fetch, stream_reader
from pyspark_log_coordinator import journal, journal_entry, maintenance, replay, upkeep, verify
from pyspark_log_coordinator.log import Log
from pyspark_log_storage.errors import LogError
from tests.simulator import actors
from tests.simulator.invariants import require
from tests.simulator.world import TOPIC, Settings, World, settings_of

OPERATIONS = 3000
BUSY_MS = 10_000

T = TypeVar("T")


class Result(msgspec.Struct):
    """What a run came to. `digest` is of every step: two runs of one seed have the same."""

    seed: int
    digest: str
    failure: BaseException | None
    counts: Counter[str]


def run(
    seed: int,
    operations: int = OPERATIONS,
    tell: Callable[[str], object] | None = None,
    stale_list_seconds: float = 0,
) -> Result:
    """Run a seed. `tell` is told every step; lists may be as old as is said."""
    settings = settings_of(seed, operations)
    weather = msgspec.structs.replace(settings.weather, stale_list_seconds=stale_list_seconds)
    world = World(seed, msgspec.structs.replace(settings, weather=weather), tell)
    with _small(world.settings), _simulated(world):
        _populate(world)
        world.clock.run()
        failure = world.clock.failure
        if failure is None:
            try:
                _audit(world)
            except (LogError, AssertionError) as error:
                failure = error
    assert world.rows is not None or failure is not None
    if world.rows is not None:
        world.counts["entries"] = world.rows.number
        world.counts["strays"] = world.rows.strays
        world.counts["rows"] = sum(map(len, world.rows.rows))
    return Result(seed, world.digest.hexdigest(), failure, world.counts)


def _populate(world: World) -> None:
    settings = world.settings
    for number in range(settings.queries):
        actors.start_query(world, actors.Query(f"query-{number}"))
    versions: list[int] = []
    actors.supervised(world, "application", lambda process: actors.application(process, versions))
    actors.supervised(world, "plain writer", actors.plain_writer)
    actors.supervised(world, "administrator", actors.administrator)
    for number in range(settings.maintainers):
        actors.supervised(world, f"maintainer {number}", actors.maintainer)
    for number in range(settings.readers):
        checkpoint: dict[str, Any] = {}
        read = functools.partial(actors.stream_reader, checkpoint=checkpoint)
        actors.supervised(world, f"stream reader {number}", read)
        actors.supervised(world, f"batch reader {number}", actors.batch_reader)


def _audit(world: World) -> None:
    """Hold what must be true once all have finished, and that cleaning up leaves only what is needed."""
    rows = world.rows
    assert rows is not None

    def look() -> None:
        process = world.begin("auditor")
        _check(world, process.log, process.store)
        handle = actors.open_topic(process)
        for _ in range(4):
            world.clock.pause(BUSY_MS / 1000)
            upkeep.housekeep(process.store, handle)
        _check(world, process.log, process.store)
        stored = {key for key in world.objects.data if key.startswith(rows.topic_folder)}
        left = stored - rows.needed()
        rubbish = sorted(key for key in left if not key.startswith(rows.folder) and not key.endswith("-checkpoint"))
        require(not rubbish, f"cleaning up leaves {rubbish[:5]}")

    world.clock.spawn("auditor", look)
    world.clock.run()
    if world.clock.failure is not None:
        raise world.clock.failure


def _check(world: World, log: Log, store: Any) -> None:
    rows = world.rows
    assert rows is not None
    log.open(create=False)
    handle = log.topic(TOPIC)
    rows.check_all()
    rows.replayed()
    world.cluster.replayed()
    for report in (verify.verify(store, handle), verify.verify_cluster(log)):
        require(report.sound, f"verify finds {report.findings[:3]}")


@contextlib.contextmanager
def _small(settings: Settings) -> Iterator[None]:
    """Make the product's constants small, so that much happens in few steps."""
    with contextlib.ExitStack() as stack:
        for module, name, value in (
            (journal, "SNAPSHOT_EVERY", settings.snapshot_every),
            (journal, "SNAPSHOTS_KEPT", settings.snapshots_kept),
            (replay, "HASHES_MAX", settings.hashes_max),
            (journal_entry, "INLINE_BYTES_MAX", settings.inline_bytes_max),
            (maintenance, "ROLL_CHUNKS", settings.roll_chunks),
            (maintenance, "UNROLLED_CHUNKS_MAX", settings.unrolled_chunks_max),
            (maintenance, "MERGE_COUNT", settings.merge_count),
            (in_passing, "HOUSEKEEPING_EVERY", settings.housekeeping_every),
            (upkeep, "CHUNK_BYTES", 400),
            (upkeep, "SMALL_CHUNK_BYTES", 700),
            (upkeep, "TINY_CHUNK_BYTES", 700),
            (staging, "CHUNK_BYTES", 200),
            (fetch, "BATCH_ROWS", 5),
            (stream_reader, "IDLE_WAIT_SECONDS", 0),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield


@contextlib.contextmanager
def _simulated(world: World) -> Iterator[None]:
    """Let what the product takes from its process come from the simulated one."""

    def open_log(path: str, *, create: bool = False) -> Log:
        world.process.open(create=create)
        return world.process.log

    def log_at(url: str) -> Log:
        return world.process.log

    def retrying(patience: sequence.Patience, attempt: Callable[[], T]) -> T:
        for _ in range(patience.retries):
            try:
                return attempt()
            except LogError as error:
                if not error.retriable:
                    raise
            world.process.wait(0.01)
        return attempt()

    logger = logging.getLogger("pyspark_log")
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(batch_reader, "open_log", open_log))
        stack.enter_context(mock.patch.object(batch_reader, "log_at", log_at))
        stack.enter_context(mock.patch.object(stream_reader, "open_log", open_log))
        stack.enter_context(mock.patch.object(sequence, "retrying", retrying))
        stack.enter_context(mock.patch.object(logger, "disabled", True))
        yield
