"""A log on three nodes whose disks a test takes away: three folders, with the journals on all of them."""

import time
from collections.abc import Callable
from pathlib import Path

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log import bootstrap
from pyspark_log_coordinator.log.log import Log, TopicHandle
from pyspark_log_coordinator.model.topic_config import UNLIMITED, TopicConfig
from pyspark_log_storage.append_file import read_chunk
from pyspark_log_storage.store import open_store

NODES = ("0", "1", "2")
HANGS_S = 200
"""Of a machine on which much else runs; nothing here takes long by itself."""

Values = list[list[bytes]]
"""Values by partition."""


def wait_for(held: Callable[[], bool], what: str) -> None:
    """Poll until something holds."""
    deadline = time.monotonic() + HANGS_S
    while not held():
        assert time.monotonic() < deadline, f"it has not happened: {what}"
        time.sleep(0.02)


class ThreeDisks:
    """The cluster, seen by a process of its own that runs no query, and its folders."""

    def __init__(self, folder: Path) -> None:
        self.folders = {node: folder / f"disk-{node}" for node in NODES}
        self.address = ",".join(str(each) for each in self.folders.values())
        stores = [open_store(str(each)) for each in self.folders.values()]
        bootstrap.mark(stores, real_environment())
        self.log = Log(stores, real_environment())
        self.log.open(create=True)

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic with a replica on each node; two of them must have what is acknowledged."""
        config = TopicConfig(min_insync_replicas=2, retention_ms=UNLIMITED, max_message_bytes=10**8)
        self.log.create_topic(topic, partitions, config, replication_factor=len(NODES))

    def handle(self, topic: str) -> TopicHandle:
        """The topic, refreshed."""
        self.log.open(create=False)
        return self.log.topic(topic)

    def rows(self, topic: str) -> int:
        """How many rows readers can see."""
        return sum(each.high_watermark for each in self.handle(topic).journal.state.partitions)

    def lose(self, node: str) -> None:
        """Take the disk away for good."""
        self.folders[node].rename(self.folders[node].with_suffix(".lost"))

    def empty(self, node: str) -> None:
        """Put an empty disk in the place of the node's."""
        self.lose(node)
        self.folders[node].mkdir()

    def values_on(self, topic: str, node: str) -> Values:
        """The rows that a node holds, read without the product's readers; all chunks are held to be in order."""
        handle, store = self.handle(topic), self.log.node_store(node)
        state, found = handle.journal.state, []
        for number, partition in enumerate(state.partitions):
            values: list[bytes] = []
            for chunk in partition.chunks:
                assert chunk.base_offset == len(values), f"partition {number}: a gap or an overlap"
                key = handle.append_file(state.file(chunk.file).name)
                rows = read_chunk(store, key, chunk.place(number), handle.schemas, f"node {node}")
                values += rows.column("value").to_pylist()
            assert len(values) == partition.high_watermark == partition.log_end
            found.append(values)
        return found
