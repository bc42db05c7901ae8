"""A cluster whose nodes are stores in memory."""

from collections.abc import Callable, Sequence

from pyspark_log_coordinator.cluster.nodes import Node
from pyspark_log_coordinator.environment import Environment
from pyspark_log_coordinator.log import node_admin, node_probe
from pyspark_log_coordinator.log.log import Log
from pyspark_log_storage.errors import LogError
from pyspark_log_storage.stores.store import Store
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.memory_store import MemoryStore


class Stores:
    """The stores of a cluster, by address; the root is at /cluster."""

    def __init__(self, make: Callable[[str], Store] = MemoryStore) -> None:
        self._make = make
        self.at: dict[str, Store] = {}

    def open(self, url: str) -> Store:
        """Return the store at an address, empty where there was none."""
        if url not in self.at:
            self.at[url] = self._make(url)
        return self.at[url]

    def log(self, environment: Environment | None = None) -> Log:
        """Return the log as a process sees it that has just begun."""
        log = Log(
            self.open("/cluster"), environment or fake_environment(), open_node=self.open, probe=one_after_another
        )
        log.open(create=True)
        return log

    def task(self) -> Log:
        """Return the log as a task sees it, which is told where to read and write and opens nothing."""
        return Log(self.open("/cluster"), fake_environment(), open_node=self.open)

    def with_nodes(self, count: int, environment: Environment | None = None) -> Log:
        """Return a log whose cluster has nodes 0, at the root, to count - 1, at /disk/N."""
        log = self.log(environment)
        for number in range(1, count):
            node_admin.join(log, f"/disk/{number}")
        return log


def one_after_another(members: Sequence[tuple[Node, Store]]) -> dict[str, LogError]:
    """Ask for the markers without threads."""
    asked = ((node.node_id, node_probe.check_node(node, store)) for node, store in members)
    return {name: error for name, error in asked if error is not None}
