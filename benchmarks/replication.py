"""Replication: the cost of three replicas, the time to restore a lost one, and the pause in writing after a failure.

All nodes are folders of one disk, so the product gains nothing from three disks working in parallel.
"""

from __future__ import annotations

import os
import shutil
import statistics
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.report import Line, at_least, information
from benchmarks.rows import persisted_rows
from benchmarks.stopwatch import by_turns
from pyspark_log.opening import forget_logs, open_log
from pyspark_log.writing.destination import destination_of
from pyspark_log.writing.rows import Rows
from pyspark_log.writing.staging import Staging
from pyspark_log_coordinator.commit.commit import commit_staged
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log import bootstrap, node_admin
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_coordinator.sync import catch_up
from pyspark_log_storage.columns import schema
from pyspark_log_storage.stores.addresses import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.batch import Acks

NODES = 3
PARTITIONS = 8
WRITE_TARGET = 0.85
COPY_TARGET = 0.5
REFILL_BYTES = 1024**3
REFILL_FILE_BYTES = 64 * 1024**2
VALUE_BYTES = 8 * 1024
FAILOVERS = 3
TIGHT_MS = 500
MEGA = 1_000_000
COMMITS = 100
SLOW_SECONDS = 0.05


def found(folder: Path, name: str) -> tuple[Log, list[Path]]:
    """Return a cluster of three nodes with the journals on all, and their folders."""
    folders = [folder / f"{name}-{number}" for number in range(NODES)]
    bootstrap.mark([open_store(str(each)) for each in folders], real_environment())
    return open_log(",".join(map(str, folders)), create=True), folders


def measure_replicated_write(
    spark: SparkSession, folder: Path, rows: int, runs: int, say: Callable[[str], object]
) -> list[Line]:
    """Return the line of writing with acks=all to three nodes, compared with one node of the same cluster."""
    say(f"writing {rows:,} rows to {NODES} nodes and to one")
    log, folders = found(folder, "write")
    frame, _ = persisted_rows(spark, rows, PARTITIONS)
    path = ",".join(map(str, folders))
    topics = iter(range(10_000))

    def save(factor: int) -> None:
        topic = f"rows-{next(topics)}"
        log.create_topic(topic, PARTITIONS, replication_factor=factor)
        frame.write.format("pyspark_log").mode("append").option("topic", topic).save(path)

    three, one = by_turns(lambda: save(NODES), lambda: save(1), runs)
    frame.unpersist(blocking=True)
    return [
        Line(
            name=f"write with acks=all to {NODES} nodes beside one, {rows:,} rows",
            unit="M rows/s",
            product=rows / three.wall / MEGA,
            ceiling=rows / one.wall / MEGA,
            target=at_least(WRITE_TARGET),
            ratio=one.wall / three.wall,
            cpu_ratio=one.cpu / three.cpu,
        )
    ]


def measure_refill(folder: Path, size: int, say: Callable[[str], object]) -> list[Line]:
    """Return the line of a wiped node's return to the ISR, compared with a plain copy of the same files."""
    say(f"filling a node with {size:,} bytes again")
    log, folders = found(folder, "refill")
    handle = log.create_topic("t", 1, TopicConfig(compression_type="none"), replication_factor=NODES)
    _fill(handle, size)
    ours: list[float] = []
    plain: list[float] = []
    for _ in range(FAILOVERS):
        lost = (folders[-1] / "topics").rename(folder / f"lost-{len(ours)}")  # at once: it may still be written to
        shutil.rmtree(lost)
        (folders[-1] / "node").unlink()
        begun = time.perf_counter()
        node_admin.renew(log, "2")
        log.probe_nodes()
        catch_up.catch_up(handle, "2")
        ours.append(time.perf_counter() - begun)
        assert "2" in handle.journal.state.partitions[0].isr
        plain.append(_plain_copy(folders[0] / "topics", folder / "plain"))
    product, ceiling = statistics.median(ours), statistics.median(plain)
    return [
        Line(
            name=f"a wiped node of {size / 2**30:.2g} GiB is back in the ISR",
            unit="MB/s",
            product=size / product / MEGA,
            ceiling=size / ceiling / MEGA,
            target=at_least(COPY_TARGET),
            ratio=ceiling / product,
            note="ceiling: the same files copied, and flushed",
        )
    ]


def measure_failover(folder: Path, say: Callable[[str], object]) -> list[Line]:
    """Return the time from the loss of the leader's disk to the next write that succeeds."""
    cases: list[tuple[str, Acks, int]] = [
        ("acks=all", "all", RetryPolicy().session_timeout_ms),
        ("acks=1, default time-outs", "1", RetryPolicy().session_timeout_ms),
        (f"acks=1, broker.session.timeout.ms={TIGHT_MS}", "1", TIGHT_MS),
    ]
    lines = []
    for name, acks, timeout in cases:
        say(f"losing the leader's disk: {name}")
        times = [_failover(folder, f"{acks}-{timeout}-{number}", acks, timeout) for number in range(FAILOVERS)]
        lines.append(information(f"leader's disk lost until the next write, {name}", "ms", statistics.median(times)))
    return lines


def measure_slow_node(folder: Path, say: Callable[[str], object]) -> list[Line]:
    """Return the latency of a commit if one of three nodes is slow, with the ISR and with a quorum."""
    say("one slow node: ISR and quorum")
    times = {}
    for mode in ("isr", "quorum"):
        log, _ = found(folder, f"slow-{mode}")
        config = TopicConfig(replication_mode=mode, min_insync_replicas=2)
        handle = log.create_topic("t", 1, config, replication_factor=NODES)
        slow = log.node_store("2")
        opened = slow.open_write

        def open_write(key: str, *, opened: Callable[..., object] = opened, **how: bool) -> object:
            time.sleep(SLOW_SECONDS)
            return opened(key, **how)

        slow.open_write = open_write  # type: ignore[method-assign, assignment]
        taken = []
        for _ in range(COMMITS):
            begun = time.perf_counter()
            _write(handle, [b"row"], "all", RetryPolicy())
            taken.append((time.perf_counter() - begun) * 1000)
        times[mode] = statistics.median(taken)
        for thread in threading.enumerate():
            if thread.name.startswith("write to"):
                thread.join()  # the quorum did not wait for it
    return [
        information(
            f"a batch with one of {NODES} nodes {SLOW_SECONDS * 1000:.0f} ms slower, quorum beside isr",
            "ms",
            times["quorum"],
            times["isr"],
        )
    ]


def _failover(folder: Path, name: str, acks: Acks, timeout_ms: int) -> float:
    log, folders = found(folder, f"lost-{name}")
    replicas = (("0", "1", "2"),)
    handle = log.create_topic("t", 1, TopicConfig(min_insync_replicas=2), replicas=replicas)
    _write(handle, [b"row"], acks, RetryPolicy())
    shutil.rmtree(folders[0])
    begun = time.perf_counter()
    log.probe_nodes()
    _write(handle, [b"row"], acks, RetryPolicy(session_timeout_ms=timeout_ms))
    taken = (time.perf_counter() - begun) * 1000
    assert handle.journal.state.partitions[0].leader != "0"
    forget_logs()
    return taken


def _write(handle: TopicHandle, values: Sequence[bytes], acks: Acks, patience: RetryPolicy) -> None:
    log = handle.log
    handle.refresh()
    destination = destination_of(handle, None, 2**31 - 1, acks)
    staging = Staging(
        log.store_at, lambda _: destination, handle.name, environment=log.environment, durable=True, sticky=0
    )
    columns = [pa.nulls(len(values), pa.binary()), pa.array(values, pa.binary())]
    times = pa.repeat(pa.scalar(log.environment.now_ms() * 1000, schema.TIMESTAMP), len(values))
    staging.add(Rows(pa.RecordBatch.from_arrays([*columns, times], schema=schema.RECORD), None, None))
    commit_staged(log, [staging.finish()], None, acks, patience, None)


def _fill(handle: TopicHandle, size: int) -> None:
    dice = np.random.default_rng(1)
    for _ in range(size // REFILL_FILE_BYTES):
        block = dice.bytes(REFILL_FILE_BYTES)
        _write(
            handle,
            [block[at : at + VALUE_BYTES] for at in range(0, REFILL_FILE_BYTES, VALUE_BYTES)],
            "all",
            RetryPolicy(),
        )


def _plain_copy(source: Path, target: Path) -> float:
    """Copy and flush the files of a folder; return the seconds."""
    shutil.rmtree(target, ignore_errors=True)
    begun = time.perf_counter()
    for each in source.rglob("*"):
        if each.is_file():
            copy = target / each.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(each, copy)
            with copy.open("rb") as file:
                os.fdatasync(file.fileno())
    return time.perf_counter() - begun


def measure_replicas(folder: Path, say: Callable[[str], object], *, quick: bool) -> list[Line]:
    """Return the lines that need no Spark."""
    size = REFILL_BYTES // 16 if quick else REFILL_BYTES
    return [*measure_refill(folder, size, say), *measure_failover(folder, say), *measure_slow_node(folder, say)]
