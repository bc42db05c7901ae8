"""A replicated topic on stores that note what is read and that a test can change at any call."""

from pyspark_log_coordinator.sync.catch_up import catch_up
from pyspark_log_storage import layout
from tests.support.memory_store import MemoryStore


class Watched(MemoryStore):
    """Records reads of append files and segments, and may call something else first."""

    def __init__(self, url):
        super().__init__(url)
        self.reads = []
        self.before_read = bool
        self.before_marker = bool

    def read(self, key, start=0, length=None):
        if key == layout.MARKER:
            self.before_marker(key)
        if "/append/" in key or key.endswith((".log", ".index")):
            self.reads.append(key)
            self.before_read(key)
        return super().read(key, start, length)


def copy(topic, name="1", **how):
    return catch_up(topic.handle, name, **how)


def reads(topic, name):
    """Return which files were read from a node since the last call."""
    store = topic.log.node_store(name)
    found = sorted({key.rsplit("/", 1)[1] for key in store.reads})
    store.reads.clear()
    return found
