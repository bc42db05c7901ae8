"""A topic moves to other nodes while it is written and read: every row is read once, in order, and nobody stops."""

import pyarrow as pa
import pytest

from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, find_again, split_of
from pyspark_log.writing.destination import destination_of
from pyspark_log.writing.rows import Rows
from pyspark_log.writing.staging import Staging
from pyspark_log_coordinator.commit.commit import commit_staged
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.model.topic_config import UNLIMITED, TopicConfig
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_coordinator.sync import follower, reassigner
from tests.support.coordinator.several_nodes import Stores
from tests.support.elsewhere import PlainStore
from tests.support.plain_log import record

OLD, NEW = ("0", "1", "2"), ("3", "4", "5")
PARTITIONS = 2
ROWS = 5
"""Of each batch, in each partition."""


class Writer:
    """A process that writes numbered rows, as a query does: told where before, and sequenced later."""

    def __init__(self, stores):
        self.log = stores.log(real_environment())
        self.handle = self.log.topic("t")
        self.batches = 0
        self.staged = None

    def values(self, batch):
        return [b"%d" % (batch * ROWS + row) for row in range(ROWS)]

    def stage(self):
        """Write the next batch where the nodes say now; it is sequenced by the next `commit`."""
        self.handle.refresh()
        destination = destination_of(self.handle, None, 1000)
        staging = Staging(
            self.log.store_at,
            lambda _: destination,
            "t",
            environment=self.log.environment,
            durable=True,
            sticky=0,
        )
        values = self.values(self.batches)
        for number in range(PARTITIONS):
            staging.add(Rows(record(values), None, pa.array([number] * ROWS, pa.int32())))
        self.staged = staging.finish()

    def commit(self):
        claim = ProducerClaim("p", "q", "r", self.batches)
        patience = RetryPolicy(retries=2, retry_backoff_ms=1)
        commit_staged(self.log, [self.staged], claim, "all", patience, None)
        self.batches += 1


class Reader:
    """A process that reads on and on; the rows of each partition, in the order in which they came."""

    def __init__(self, stores):
        self.log = stores.log(real_environment())
        self.rows = [[] for _ in range(PARTITIONS)]

    def read(self):
        handle = self.log.topic("t")
        for number, partition in enumerate(handle.journal.state.partitions):
            reached = len(self.rows[number])
            if reached < partition.high_watermark:
                split = split_of(handle, Range("t", number, reached, partition.high_watermark))
                self.rows[number] += rows_of(self.log, split)


def rows_of(log, split):
    batches = fetch(log.store_at, split, lambda offset: find_again(log, split, offset))
    return [value for _, batch in batches for value in batch.column("value").to_pylist()]


@pytest.fixture
def stores():
    """Six nodes with topic t on the first three; node 0 is the root, with the journals."""
    stores = Stores(PlainStore)
    log = stores.with_nodes(6, real_environment())
    config = TopicConfig(min_insync_replicas=2, segment_bytes=4096, flush_messages=4 * ROWS, retention_ms=UNLIMITED)
    log.create_topic("t", PARTITIONS, config, replicas=[OLD, ("1", "2", "0")])
    return stores


def test_a_topic_moves_to_new_nodes_while_it_is_written_and_read(stores):
    writer, reader = Writer(stores), Reader(stores)
    for _ in range(20):
        writer.stage()
        writer.commit()
    reader.read()
    late = split_of(reader.log.topic("t"), Range("t", 0, 0, 10))

    log = stores.log(real_environment())
    handle = log.topic("t")
    wanted = reassigner.placement_on(handle, list(NEW))
    reassigner.begin(handle, wanted)
    writer.stage()
    passes = 0

    def meanwhile(_):
        nonlocal passes
        passes += 1
        if passes % 4 == 0 and writer.batches < 60:
            writer.commit()
            reader.read()
            writer.stage()

    done = reassigner.run(handle, meanwhile)
    assert (done.unfinished, done.failures) == ((), ())
    during = writer.batches
    assert during >= 30, "the writer went on while it was copied"
    assert [each.replicas for each in handle.refresh().partitions] == list(wanted)
    assert {each.leader for each in handle.journal.state.partitions} <= set(NEW)

    for _ in range(10):
        writer.commit()
        writer.stage()
    writer.commit()
    reader.read()
    everything = [value for batch in range(writer.batches) for value in writer.values(batch)]
    assert reader.rows == [everything] * PARTITIONS

    # The old nodes are not needed for a single row, not by a reader that was planned before either.
    wipe(stores)
    assert rows_of(reader.log, late) == everything[:10]
    again = Reader(stores)
    again.read()
    assert again.rows == [everything] * PARTITIONS
    writer.stage()
    writer.commit()
    assert [each.high_watermark for each in handle.refresh().partitions] == [len(everything) + ROWS] * PARTITIONS
    assert all(each.isr == each.replicas for each in handle.journal.state.partitions)


def wipe(stores):
    """Take the disks of nodes 1 and 2 away, and the rows of node 0; what is left at the root are the journals."""
    for url in ("/disk/1", "/disk/2"):
        for key in list(stores.at[url].list("")):
            stores.at[url].delete(key)
    for key in list(stores.at["/cluster"].list("topics/")):
        if is_of_rows(key):
            stores.at["/cluster"].delete(key)


def test_the_new_nodes_have_the_bytes_that_the_old_ones_had(stores):
    writer = Writer(stores)
    for _ in range(10):
        writer.stage()
        writer.commit()
    log = stores.log(real_environment())
    handle = log.topic("t")
    reassigner.begin(handle, reassigner.placement_on(handle, list(NEW)))
    reassigner.run(handle)
    for node in NEW:
        follower.Follower(log, node).round()
        for key in rows_in(log, node):
            assert log.node_store(node).read(key) == log.node_store("0").read(key)
    assert rows_in(log, "3") == rows_in(log, "4") == rows_in(log, "5") != []


def rows_in(log, node):
    return [key for key in log.node_store(node).list("topics/t/") if is_of_rows(key)]


def is_of_rows(key):
    return "/append/" in key or key.endswith((".log", ".index"))
