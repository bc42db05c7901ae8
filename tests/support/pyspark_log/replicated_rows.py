"""Rows of a topic on three nodes, read as a task reads them while nodes fail."""

from collections import Counter

from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, split_of
from pyspark_log_coordinator.sync import catch_up
from tests.support.memory_store import MemoryStore

BATCHES = 30
LARGE = 700_000
"""Rows of so many bytes are not all joined into one batch, so that something can happen between two."""


class Fallible(MemoryStore):
    """Notes what is read of rows, and fails or hangs where a test says so."""

    def __init__(self, url):
        super().__init__(url)
        self.reads = []
        self.error = None
        self.gate = None

    def read(self, key, start=0, length=None):
        if "/append/" in key or key.endswith((".log", ".parquet", ".index")):
            self.reads.append(key)
            if self.gate is not None:
                self.gate.wait(60)
            if self.error is not None:
                raise self.error(self.url, key, "the test made this up")
        return super().read(key, start, length)


def row(number):
    return b"%d" % number * (LARGE // len(b"%d" % number))


ROWS = [row(number) for number in range(BATCHES)]


def planned(topic, start=0, end=None, rack=""):
    end = topic.partition().high_watermark if end is None else end
    return split_of(topic.handle, Range("t", 0, start, end), rack)


def read(topic, split, between=bool, again=None):
    """Return the rows of a split; `between` is told how many came so far after each batch."""
    rows = []
    for offsets, batch in fetch(topic.log.store_at, split, again):
        assert offsets[0] == split.start + len(rows)
        rows += batch.column("value").to_pylist()
        between(len(rows))
    return rows


def store(topic, name):
    return topic.log.node_store(name)


def reads(topic):
    """Return how often each node was read since this was asked last."""
    found = Counter({name: len(store(topic, name).reads) for name in topic.log.cluster.state.nodes})
    for name in found:
        store(topic, name).reads.clear()
    return +found


def damage(topic, name, key, position=-1):
    data = bytearray(store(topic, name).read(key))
    data[position] ^= 1
    store(topic, name).put(key, bytes(data))


def lose(topic, name):
    """Remove all that a node has of the topic."""
    for key in list(store(topic, name).list("topics/t/")):
        if "/journal/" not in key:
            store(topic, name).delete(key)


def rolled(topic, chunks):
    """Roll the oldest chunks, and let all nodes have the segment; return its key."""
    name = topic.roll(chunks)
    for node in ("1", "2"):
        catch_up.catch_up(topic.handle, node)
    topic.handle.refresh()
    reads(topic)
    return topic.handle.segment(0, name)
