"""A replicated topic to roll and clean up, on nodes that fail."""

import random

from pyspark_log_coordinator.maintenance.roll_task import roll_task_of, run_roll
from pyspark_log_coordinator.segments.swap import MaintainSegments
from tests.support.coordinator.breakable_store import BreakableStore
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic
from tests.support.coordinator.several_nodes import Stores


def breakable(**settings):
    return ReplicatedTopic(Stores(BreakableStore), **settings)


def disk(topic, name):
    return topic.log.node_store(name)


def fill(topic, batches, on=ALL):
    """Append batches of rows that are copied to a segment as they are."""
    dice = random.Random(batches)
    for _ in range(batches):
        topic.append({0: [dice.randbytes(50_000)]}, on=on, acks="all")


def roll(topic, chunks=None):
    """Roll the oldest chunks as a task does, without opening the log."""
    work = roll_task_of(topic.handle, topic.job(chunks))
    task = topic.stores.task()
    swap = run_roll(task.store_at, work, topic.log.environment)
    topic.handle.submit(MaintainSegments((swap,)))
    return swap.segments[0]


def holders(ref):
    return [each.node for each in ref.holders]
