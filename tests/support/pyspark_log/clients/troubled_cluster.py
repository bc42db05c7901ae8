"""A cluster in memory whose store goes wrong where a test says so, and clients of it.

Time passes only while somebody waits for the store, so a test that waits for half a minute takes none.
"""

import contextlib

from pyspark_log import Consumer, Producer
from pyspark_log_coordinator.log.log import Log
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.troubled_store import TroubledStore
from tests.support.memory_store import MemoryStore


class TroubledCluster:
    """The store of the cluster, as each client sees it: with troubles of its own."""

    def __init__(self, monkeypatch):
        self.inner = MemoryStore("/cluster")
        self.stores = []
        Log(self.inner, fake_environment()).open(create=True)
        for module in ("producer", "consumer", "housekeeper"):
            monkeypatch.setattr(f"pyspark_log.clients.{module}.own_log", self.log)
        monkeypatch.setattr("pyspark_log.clients.housekeeper.own_stores_at", lambda *_: lambda _: self.inner)

    def log(self, path="/cluster", options=None):
        self.stores.append(TroubledStore(self.inner))
        return Log(self.stores[-1], fake_environment())

    @contextlib.contextmanager
    def producer(self, **options):
        """A producer that has written one row, and its store."""
        with Producer("/cluster", linger_ms=0, **options) as producer:
            store = self.stores[-1]
            producer.send("t", b"first").result(60)
            yield producer, store
            store.forget_troubles()

    def values(self):
        with Consumer("/cluster") as consumer:
            consumer.assign(consumer.partitions("t"), "earliest")
            rows = []
            while found := consumer.poll():
                rows += [row.value for row in found]
            return rows

    @property
    def entries(self):
        """The folder of the topic's entries."""
        (folder,) = {key.rpartition("/")[0] for key in self.inner.list("topics/t/") if "/journal/entries/" in key}
        return f"{folder}/"
