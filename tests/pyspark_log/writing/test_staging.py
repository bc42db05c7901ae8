"""Files of a writing task: chunks by partition, in the order of the rows, within bounds."""

import msgspec
import pyarrow as pa
import pytest

from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, split_of
from pyspark_log.writing import staging as module
from pyspark_log.writing.destination import check_kind, destination_of
from pyspark_log.writing.rows import Rows, TypedSchema
from pyspark_log.writing.staging import RetryingStaging, Staging
from pyspark_log_coordinator.commit.commit import commit_staged, detect_failures
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage import layout
from pyspark_log_storage.columns import schema
from pyspark_log_storage.columns.column_ddl import parse
from pyspark_log_storage.errors import InvalidRecord, NodeAway, NodeMissing, StoreUnavailable
from pyspark_log_storage.files.append_file import scan
from pyspark_log_storage.files.chunk import CHUNK_BYTES
from pyspark_log_storage.objects import node
from tests.support.coordinator.breakable_store import BreakableStore
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.several_nodes import Stores
from tests.support.memory_store import MemoryStore
from tests.support.plain_log import PlainLog, record


@pytest.fixture
def log():
    made = PlainLog()
    made.create("t", 4)
    made.create("u", 2)
    return made


def staged(log, *rows, topic="t", **options):
    task = log.staging(topic, **options)
    for each in rows:
        task.add(each)
    return task.finish()


def chunks(file):
    return [(chunk.partition, chunk.rows) for chunk in file.file.chunks]


def test_one_file_holds_the_chunks_of_all_partitions(log):
    explicit = pa.array([3, 0, 3, 1], pa.int32())
    [file] = staged(log, Rows(record([b"a", b"b", b"c", b"d"]), None, explicit))
    assert chunks(file) == [(0, 1), (1, 1), (3, 2)]
    assert len(list(scan(log.log.store, log.log.topic("t").append_file(file.file.name)))) == 3


def test_batches_are_gathered_and_keep_the_order_of_their_rows(log):
    batches = [Rows(record([b"%d-%d" % (b, r) for r in range(5)], [b"same"] * 5), None, None) for b in range(10)]
    log.append_rows("t", *batches)
    handle = log.log.topic("t")
    assert len(handle.journal.state.files) == 1
    assert [len(p.chunks) for p in handle.journal.state.partitions if p.log_end] == [1]


@pytest.mark.parametrize(("bound", "most"), [("BLOCK_BYTES", 1000), ("BLOCK_ROWS_MAX", 3)])
def test_a_block_is_written_before_it_outgrows_its_bounds(log, monkeypatch, bound, most):
    monkeypatch.setattr(module, bound, most)
    [file] = staged(log, *(Rows(record([b"x" * 300]), None, None) for _ in range(7)))
    assert [rows for _, rows in chunks(file)] == [3, 3, 1]


def test_large_blocks_are_cut_into_chunks_of_a_few_megabytes(log):
    full = CHUNK_BYTES // 1000
    [file] = staged(log, Rows(record([b"x" * 980] * 4 * full), None, None))
    assert chunks(file) == [(0, full)] * 4


def test_rows_that_name_their_topics_go_to_a_file_each(log):
    topics = pa.array(["u", "t", "u"])
    files = staged(log, Rows(record([b"a", b"b", b"c"]), topics, pa.array([1, 0, 1], pa.int32())), topic=None)
    assert [(file.topic, chunks(file)) for file in files] == [("t", [(0, 1)]), ("u", [(1, 2)])]


def test_batches_with_and_without_partitions_are_gathered(log):
    log.create("one")
    named = pa.array([0, 0], pa.int32())
    rows = [Rows(record([b"a"]), None, None), Rows(record([b"b", b"c"]), None, named), Rows(record([b"d"]), None, None)]
    [file] = staged(log, *rows, topic="one")
    assert chunks(file) == [(0, 4)]
    [file] = staged(log, *rows, sticky=3)
    assert chunks(file) == [(0, 2), (3, 2)]


def test_a_row_larger_than_allowed_is_refused_and_its_headers_count(log):
    with pytest.raises(InvalidRecord, match=r"topic 't': a row of 101 bytes is larger than max.message.bytes \(100\)"):
        staged(log, Rows(record([b"x" * 100, b"y" * 98], [b"k", None]), None, None), bytes_max=100)
    headers = [[{"key": "h", "value": b"x" * 99}], None]
    assert staged(log, Rows(record([b"", b"y"], headers=headers), None, None), bytes_max=100)
    with pytest.raises(InvalidRecord, match="a row of 101 bytes is larger"):
        staged(log, Rows(record([b"z", b"y"], headers=headers), None, None), bytes_max=100)


def test_rows_whose_schema_has_another_number_in_the_topic_are_refused(log):
    """The topic was created again, and got the columns in another order: readers would take the wrong schema."""
    first, second = (schema.encode(schema.typed(parse(ddl))) for ddl in ("a int", "a int, b int"))
    destination = msgspec.structs.replace(destination_of(log.log.topic("t"), None, 1), schemas=(first, second))
    rows = Rows(record([]), None, None, typed=TypedSchema(1, second))
    check_kind(destination, rows)
    for number in (0, 2):
        with pytest.raises(InvalidRecord, match="topic 't' was deleted and created again with other columns"):
            check_kind(destination, msgspec.structs.replace(rows, typed=TypedSchema(number, second)))


def test_a_row_larger_than_the_topic_allows_is_refused_though_the_write_would_allow_it(log):
    log.log.topic("t").submit(AlterConfig({"max.message.bytes": "1000"}))
    with pytest.raises(InvalidRecord, match=r"max\.message\.bytes \(1000\)"):
        staged(log, Rows(record([b"x" * 1001]), None, None))


def test_a_discarded_staging_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_BYTES", 1000)
    log = PlainLog(tmp_path)
    log.create("t", 4)

    def files():
        return {each for each in tmp_path.rglob("*") if each.is_file()}

    before = files()
    task = log.staging("t")
    task.add(Rows(record([b"x" * 1000]), None, None))
    task.add(Rows(record([b"y"]), None, None))
    assert files() > before
    task.discard()
    assert files() == before


def test_a_node_of_another_incarnation_after_the_write_is_noticed(log):
    store = log.log.store
    assert isinstance(store, MemoryStore)
    task = log.staging("t")
    task.add(Rows(record([b"x"]), None, None))
    marker = node.read_marker(store)
    assert marker is not None
    store.put(layout.MARKER, node.encode(node.Marker(marker.cluster, marker.node, "another")))
    with pytest.raises(NodeMissing, match="of another incarnation: is its disk mounted, or was it wiped"):
        task.finish()


AWAY_S = 8


class TwoNodes:
    """A topic on nodes 1 and 2, with the journals on node 0, and a clock that only a wait advances."""

    def __init__(self, replicas=("1", "2")):
        clock = fake_environment()
        self.stores = Stores(BreakableStore)
        self.until = float("inf")

        def sleep(seconds):
            clock.sleep(seconds)
            if clock.monotonic() >= self.until:
                self.take_away("1", "2", error=None)

        self.log = self.stores.with_nodes(3, msgspec.structs.replace(clock, sleep=sleep))
        self.handle = self.log.create_topic("t", 1, TopicConfig(), replicas=[replicas])
        self.begun = 0

    def disk(self, name):
        return self.stores.at[f"/disk/{name}"]

    def take_away(self, *nodes, error=StoreUnavailable, until=float("inf")):
        self.until = until
        for name in nodes:
            self.disk(name).broken = error

    def task(self, acks="all", policy=None):
        policy = policy or RetryPolicy()

        def begin():
            self.begun += 1
            if self.begun > 1:
                detect_failures(self.handle, policy)
            destination = destination_of(self.handle, None, 10**6, acks)
            return Staging(
                self.log.store_at, lambda _: destination, "t", environment=self.log.environment, durable=True, sticky=0
            )

        return RetryingStaging(begin, self.log.environment, policy)

    def values(self):
        """The rows, as the log has them."""
        self.handle.refresh()
        split = split_of(self.handle, Range("t", 0, 0, self.handle.partitions[0].high_watermark))
        return [each for _, batch in fetch(self.log.store_at, split) for each in batch.column("value").to_pylist()]


def rows(*values):
    return Rows(record(values), None, pa.array([0] * len(values), pa.int32()))


def commit(topic, staged, acks="all"):
    commit_staged(topic.log, [staged], None, acks, RetryPolicy(), None)


@pytest.mark.parametrize(("acks", "error"), [("all", StoreUnavailable), ("1", NodeAway)])
def test_a_task_waits_for_nodes_that_are_unreachable_for_eight_seconds(acks, error):
    topic = TwoNodes()
    topic.take_away("1", "2", error=error, until=AWAY_S)
    task = topic.task(acks)
    for value in (b"a", b"b", b"c"):
        task.add(rows(value))
    commit(topic, task.finish(), acks)
    assert topic.values() == [b"a", b"b", b"c"]
    assert AWAY_S <= topic.log.environment.monotonic() < AWAY_S + 2


def test_rows_written_before_the_nodes_failed_are_written_again_and_none_appears_twice(monkeypatch):
    monkeypatch.setattr("pyspark_log.writing.staging.BLOCK_ROWS_MAX", 2)
    topic = TwoNodes()
    task = topic.task()
    for value in (b"a", b"b", b"c"):
        task.add(rows(value))  # the block of a and b is written
    topic.take_away("1", "2", until=AWAY_S)
    for value in (b"d", b"e"):
        task.add(rows(value))
    commit(topic, task.finish())
    assert topic.values() == [b"a", b"b", b"c", b"d", b"e"]


def test_a_node_that_is_another_one_by_the_end_does_not_hold_the_file():
    topic = TwoNodes()
    task = topic.task()
    task.add(rows(b"a"))
    marker = node.read_marker(topic.disk("1"))
    topic.disk("1").put(layout.MARKER, node.encode(msgspec.structs.replace(marker, incarnation="another")))
    [staged] = task.finish()
    assert ([each.node for each in staged.file.holders], staged.failed) == (["2"], ("1",))


def test_retries_end_with_delivery_timeout_ms():
    topic = TwoNodes()
    topic.take_away("1", "2")
    task = topic.task(policy=RetryPolicy(delivery_timeout_ms=5_000))
    task.add(rows(b"a"))
    with pytest.raises(StoreUnavailable, match="/disk/1 was taken away"):
        task.finish()
    assert topic.log.environment.monotonic() == 5


def test_a_task_with_more_rows_than_it_keeps_fails(monkeypatch):
    monkeypatch.setattr("pyspark_log.writing.staging.KEPT_BYTES_MAX", 1000)
    topic = TwoNodes()
    task = topic.task()
    task.add(rows(b"x" * 2000))
    topic.take_away("1", "2")
    with pytest.raises(StoreUnavailable):
        task.finish()
    assert topic.begun == 1
