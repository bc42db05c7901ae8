"""Stored bytes: the size of a row of the benchmark on disk, compared with Kafka and lz4.

The lengths of all files below the topic's folder count: segments and append files, indexes, journal entries, snapshots,
checkpoints. The rows have a key of about 10 bytes and a value of about 90; Kafka 4 with lz4 and its defaults
took 56 bytes for each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.prefill import PARTITIONS, Clock, SmallBatches, another_process, without_flushing
from benchmarks.report import Line, at_most, detail
from benchmarks.rows import fresh_rows
from pyspark_log.opening import open_log
from pyspark_log_coordinator.maintenance import topic_cleanup, topic_roll
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage.layout import topic_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pyspark_log_coordinator.log.log import TopicHandle

SMALL_BATCH_ROWS = 1_000
SMALL_BATCH_TASKS = 1
KAFKA_BYTES = 56
WRITTEN_TARGET = 1.0
MERGED_TARGET = 0.75
UNROLLED_BATCHES = 60
"""Too few for anything to be rolled inline."""
PAUSE_STEPS = 600
"""A minute at ten batches a second: after that, replaced files are deleted."""


def bytes_per_row(root: Path, handle: TopicHandle) -> float:
    """Return the mean number of stored bytes per row of a topic."""
    folder = root / topic_folder(handle.name, handle.topic_id)
    rows = sum(each.high_watermark for each in handle.refresh().partitions)
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / rows


def merge_everything(handle: TopicHandle) -> None:
    """Roll and merge everything, and delete replaced files, as `pyspark-log maintain` does."""
    handle.submit(AlterConfig({"segment.ms": "1", "file.delete.delay.ms": "0"}))
    topic_roll.roll_and_merge(handle)
    topic_cleanup.clean_up_topic(handle)
    assert not any(each.chunks for each in handle.refresh().partitions), "some rows were not rolled"


def measure_stored(spark: SparkSession, folder: Path, small_batches: int, log: Callable[[str], object]) -> list[Line]:
    """Return the lines about the bytes of rows that were written at once, and in many small batches."""
    path, rows = folder / "stored", small_batches * SMALL_BATCH_ROWS
    log(f"storing {rows:,} rows at once, and {small_batches:,} batches of {SMALL_BATCH_ROWS:,} rows")
    whole = open_log(str(path), create=True)
    handle = whole.create_topic("whole", PARTITIONS)
    fresh_rows(spark, rows, PARTITIONS).write.format("pyspark_log").mode("append").option("topic", "whole").save(
        str(path)
    )
    written = bytes_per_row(path, handle)
    with without_flushing():
        merge_everything(handle)
    lines = [
        _line(f"stored per row, {rows:,} rows written at once", written, WRITTEN_TARGET),
        _line("stored per row, the same after all is merged", bytes_per_row(path, handle), MERGED_TARGET),
    ]
    arrow = fresh_rows(spark, rows, 1).toArrow()
    clock = Clock.before_now(small_batches + PAUSE_STEPS)
    another = another_process(path, clock.environment())
    with without_flushing():
        small = SmallBatches(another, clock, "small", arrow, SMALL_BATCH_ROWS, SMALL_BATCH_TASKS)
        small.send(UNROLLED_BATCHES)
        unrolled = bytes_per_row(path, small.handle)
        small.send(small_batches - UNROLLED_BATCHES)
        newest = bytes_per_row(path, small.handle)
        # A minute later the next cleaning up deletes replaced files.
        clock.step(PAUSE_STEPS)
        topic_cleanup.clean_up_topic(small.handle, thorough=False)
        kept = bytes_per_row(path, small.handle)
        segments = small.segments
        merge_everything(small.handle)
    name = f"stored per row, batches of {SMALL_BATCH_ROWS:,} rows"
    return [
        *lines,
        _line(f"{name}, nothing rolled yet", unrolled, WRITTEN_TARGET),
        _line(f"{name}, kept by their writers", kept, WRITTEN_TARGET, f"{segments:,} segments made in passing"),
        detail("with what was replaced in the last minute", "bytes", newest, float(KAFKA_BYTES)),
        _line(f"{name}, after all is merged", bytes_per_row(path, small.handle), MERGED_TARGET),
    ]


def _line(name: str, product: float, target: float, note: str = "") -> Line:
    return Line(
        name=name,
        unit="bytes",
        product=product,
        ceiling=float(KAFKA_BYTES),
        target=at_most(target),
        ratio=product / KAFKA_BYTES,
        note=note or "ceiling: Kafka with lz4",
    )
