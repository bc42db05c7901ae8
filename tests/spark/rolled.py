"""Rolls the oldest chunks of a partition into a Parquet segment, as maintenance would do with enough of them."""

from pyspark_log_coordinator.maintenance.roll_job import roll_task_of
from pyspark_log_coordinator.maintenance.roll_run import run_roll
from pyspark_log_coordinator.segments.roll_plan import RollJob
from pyspark_log_coordinator.topic.machine import MaintainSegments
from tests.plain_log import PlainLog


def roll(log: PlainLog, topic: str, partition: int, chunks: int, *, parquet: bool = True) -> None:
    """Roll so many chunks, or as many as there are."""
    handle = log.log.topic(topic)
    one = handle.refresh().partitions[partition]
    job = RollJob(partition, one.leader_epoch, 1, (), tuple(one.chunks[:chunks]), one.epoch_starts, parquet=parquet)
    if job.chunks:
        handle.submit(MaintainSegments((run_roll(log.log.store_at, roll_task_of(handle, job), log.log.environment),)))
