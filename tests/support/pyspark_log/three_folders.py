"""A topic on three nodes that are folders, which can be taken away, for clients that open the log by its path."""

import os

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_storage.stores.addresses import open_store


class ThreeFolders:
    """A topic t on nodes 1, 2 and 3, each a folder; the journals are in a fourth."""

    def __init__(self, path, **config):
        self.path = str(path / "root")
        self.nodes = [str(path / f"node-{number}") for number in (1, 2, 3)]
        self.log = Log(open_store(self.path), real_environment())
        self.log.open(create=True)
        for node in self.nodes:
            os.mkdir(node)
            node_admin.join(self.log, node)
        self.handle = self.log.create_topic("t", 1, TopicConfig(**config), replicas=[("1", "2", "3")])

    def take_away(self, number):
        os.rename(self.nodes[number - 1], f"{self.nodes[number - 1]}-away")

    def bring_back(self, number):
        os.rename(f"{self.nodes[number - 1]}-away", self.nodes[number - 1])

    @property
    def partition(self):
        return self.handle.refresh().partitions[0]
