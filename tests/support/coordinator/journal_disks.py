"""The disks of journal nodes, by address."""

from pyspark_log_coordinator.log import bootstrap
from pyspark_log_coordinator.log.log import Log
from pyspark_log_storage.errors import (
    StoreUnavailable,
)
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.several_nodes import one_after_another
from tests.support.coordinator.troubled_store import TroubledStore
from tests.support.memory_store import MemoryStore

URLS = ("/disk/a", "/disk/b", "/disk/c")


class Disks:
    """Stores by address, the same for every process; some may be unreachable."""

    def __init__(self, *urls):
        self.at = {url: MemoryStore(url) for url in urls or URLS}
        self.away = set()

    def open(self, url):
        store = TroubledStore(self.at.setdefault(url, MemoryStore(url)))
        reading, creating = store.read, store.create

        def check():
            if url in self.away:
                raise StoreUnavailable(url, "", "it is away")

        def read(*args, **more):
            check()
            return reading(*args, **more)

        def create(*args):
            check()
            return creating(*args)

        store.read, store.create = read, create
        return store

    def found(self, *urls):
        return bootstrap.mark([self.open(url) for url in urls or URLS], fake_environment())

    def log(self, *urls, create=False, environment=None):
        """Return the log of a process that was given these addresses."""
        stores = [self.open(url) for url in urls or URLS]
        log = Log(stores, environment or fake_environment(), open_node=self.open, probe=one_after_another)
        log.open(create=create)
        return log
