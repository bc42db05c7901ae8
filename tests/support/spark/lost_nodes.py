"""A log on three nodes that a test takes away: folders, or two and a bucket, with the journals on all of them."""

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log import bootstrap
from pyspark_log_coordinator.log.log import Log, TopicHandle
from pyspark_log_coordinator.model.topic_config import UNLIMITED, TopicConfig
from pyspark_log_storage.files.append_file import read_chunk
from pyspark_log_storage.stores.addresses import open_store
from pyspark_log_storage.stores.storage_options import NO_OPTIONS, StorageOptions
from tests.servers.running import Server

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

    storage_options = NO_OPTIONS

    def __init__(self, folder: Path) -> None:
        self.folders = {node: folder / f"disk-{node}" for node in NODES}
        self._begin([str(each) for each in self.folders.values()])

    @property
    def options(self) -> dict[str, str]:
        """What Spark needs to reach it."""
        return {}

    def _begin(self, addresses: list[str]) -> None:
        self.address = ",".join(addresses)
        stores = [open_store(each, self.storage_options) for each in addresses]
        bootstrap.mark(stores, real_environment())
        self.log = Log(stores, real_environment(), open_node=lambda url: open_store(url, self.storage_options))
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


class TwoDisksAndABucket(ThreeDisks):
    """The same with a bucket as the last node."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.server, self.bucket = server, server.new_bucket()
        self.storage_options = StorageOptions.given(server.options)
        self.folders = {node: folder / f"disk-{node}" for node in NODES[:2]}
        self._begin([*(str(each) for each in self.folders.values()), f"s3://{self.bucket}/log"])

    @property
    def options(self) -> dict[str, str]:
        return {"storage_options": json.dumps(self.server.options)}

    def lose(self, node: str) -> None:
        if node in self.folders:
            super().lose(node)
            return
        client = self.server.client()
        for _ in range(100):  # somebody writes meanwhile
            listed = client.list_objects_v2(Bucket=self.bucket).get("Contents", ())
            for each in listed:
                client.delete_object(Bucket=self.bucket, Key=each["Key"])
            with contextlib.suppress(client.exceptions.ClientError):
                client.delete_bucket(Bucket=self.bucket)
                return
        raise AssertionError("the bucket cannot be deleted")
