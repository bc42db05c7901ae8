"""A topic on three nodes, written as a task and then the driver do."""

import msgspec
import pyarrow as pa

from pyspark_log.writing.destination import destination_of
from pyspark_log.writing.rows import Rows
from pyspark_log.writing.staging import Staging
from pyspark_log_coordinator.commit.commit import commit_staged
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.retry import RetryPolicy
from tests.support.coordinator.breakable_store import BreakableStore
from tests.support.coordinator.several_nodes import Stores
from tests.support.plain_log import record

QUICK = RetryPolicy(retries=2, retry_backoff_ms=1)
ALL = ("0", "1", "2")


class ThreeNodes:
    """A topic t of two partitions on three nodes, whose disks can be taken away; node 0 is the root."""

    def __init__(self, **config):
        self.passed = 0.0
        """Seconds that a test lets pass at once, on top of those of the real clock."""
        environment = real_environment()
        passing = msgspec.structs.replace(environment, monotonic=lambda: environment.monotonic() + self.passed)
        self.stores = Stores(BreakableStore)
        self.log = self.stores.with_nodes(3, passing)
        replicas = [ALL, ALL] if "replicas" not in config else config.pop("replicas")
        self.handle = self.log.create_topic("t", 2, TopicConfig(**config), replicas=replicas)

    def disk(self, node):
        return self.stores.at["/cluster" if node == "0" else f"/disk/{node}"]

    def stage(self, *values, partition=0, acks="all"):
        """What a task does, as the driver knew the nodes before."""
        destination = destination_of(self.handle, None, 1000, acks)
        return self.write(destination, *values, partition=partition)

    def write(self, destination, *values, partition=0):
        log = self.log
        staging = Staging(log.store_at, lambda _: destination, "t", environment=log.environment, durable=True, sticky=0)
        staging.add(Rows(record(values), None, pa.array([partition] * len(values), pa.int32())))
        return staging.finish()

    def commit(self, staged, acks="all", batch=None, patience=QUICK):
        claim = None if batch is None else ProducerClaim("p", "q", "r", batch)
        return commit_staged(self.log, [staged], claim, acks, patience, None)

    def refresh(self):
        self.log.probe_nodes()
        return self.handle.refresh()

    @property
    def partition(self):
        return self.handle.journal.state.partitions[0]


def holders(topic):
    return [sorted(holder.node for holder in file.holders) for file in topic.handle.journal.state.files]
