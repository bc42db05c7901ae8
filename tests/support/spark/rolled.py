"""Rolls the oldest chunks of a partition into a segment: of Parquet, as maintenance would do with enough of them.

It is not merged again, so Spark reads it by itself.
"""

from pyspark_log_coordinator.maintenance.roll_task import roll_task_of, run_roll
from pyspark_log_coordinator.segments.roll_plan import LEVEL_MAX, RollJob
from pyspark_log_coordinator.segments.swap import MaintainSegments
from tests.support.plain_log import PlainLog


def roll(log: PlainLog, topic: str, partition: int, chunks: int, *, parquet: bool = True) -> None:
    """Roll so many chunks, or as many as there are. What is not Parquet stays so, as with a row too large for it."""
    handle = log.log.topic(topic)
    one = handle.refresh().partitions[partition]
    taken = tuple(one.chunks[:chunks])
    job = RollJob(partition, one.leader_epoch, LEVEL_MAX, (), taken, one.epoch_starts, parquet=parquet)
    if job.chunks:
        handle.submit(MaintainSegments((run_roll(log.log.store_at, roll_task_of(handle, job), log.log.environment),)))
