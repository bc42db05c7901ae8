"""Files of a writing task: chunks by partition, in the order of the rows, within bounds."""

import msgspec
import pyarrow as pa
import pytest

from pyspark_log.writing import staging as module
from pyspark_log.writing.destination import check_kind, destination_of
from pyspark_log.writing.partitioner import partition_of
from pyspark_log.writing.rows import Rows, TypedSchema
from pyspark_log.writing.staging import Staging
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage import layout
from pyspark_log_storage.columns import schema
from pyspark_log_storage.columns.column_ddl import parse
from pyspark_log_storage.errors import InvalidRecord, NodeMissing
from pyspark_log_storage.files.append_file import scan
from pyspark_log_storage.files.chunk import CHUNK_BYTES
from pyspark_log_storage.objects import node
from tests.support.elsewhere import PlainStore
from tests.support.plain_log import PlainLog, record


@pytest.fixture
def log():
    made = PlainLog()
    made.create("t", 4)
    made.create("u", 2)
    return made


def staging(log, topic="t", *, sticky=0, max_message_bytes=2**30):
    return Staging(
        log.log.store_at,
        lambda name: destination_of(log.log.topic(name), None, max_message_bytes),
        topic,
        environment=log.log.environment,
        durable=True,
        sticky=sticky,
    )


def staged(log, *rows, topic="t", **options):
    task = staging(log, topic, **options)
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


def test_a_task_without_rows_writes_nothing(log):
    before = list(log.log.store.list(""))
    assert staged(log, Rows(record([]), None, None)) == []
    assert list(log.log.store.list("")) == before


def test_rows_without_key_go_to_the_tasks_sticky_partition(log):
    [file] = staged(log, Rows(record([b"a", b"b"]), None, None), sticky=6)
    assert chunks(file) == [(2, 2)]


def test_rows_with_a_key_get_the_partition_that_kafka_gives_them(log):
    made = record([b"v"] * 40, [b"key-%d" % i for i in range(40)])
    [file] = staged(log, Rows(made, None, None))
    ids = partition_of(made.column("key"), None, 4, 0).tolist()
    assert chunks(file) == [(p, ids.count(p)) for p in range(4)]


def test_batches_are_gathered_and_keep_the_order_of_their_rows(log):
    batches = [Rows(record([b"%d-%d" % (b, r) for r in range(5)], [b"same"] * 5), None, None) for b in range(10)]
    log.append_rows("t", *batches)
    handle = log.log.topic("t")
    assert len(handle.journal.state.files) == 1
    assert [len(p.chunks) for p in handle.journal.state.partitions if p.log_end] == [1]


def test_a_block_is_written_before_it_outgrows_its_bound(log, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_BYTES", 1000)
    batches = [Rows(record([b"x" * 300]), None, None) for _ in range(7)]
    [file] = staged(log, *batches)
    assert [rows for _, rows in chunks(file)] == [3, 3, 1]


def test_a_block_is_written_before_it_has_too_many_rows(log, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ROWS_MAX", 3)
    [file] = staged(log, *(Rows(record([b"x"]), None, None) for _ in range(7)))
    assert [rows for _, rows in chunks(file)] == [3, 3, 1]


def test_large_blocks_are_cut_into_chunks_of_a_few_megabytes(log):
    full = CHUNK_BYTES // 1000
    [file] = staged(log, Rows(record([b"x" * 980] * 4 * full), None, None))
    assert chunks(file) == [(0, full)] * 4


def test_a_row_larger_than_a_chunk_is_a_chunk_of_its_own(log):
    [file] = staged(log, Rows(record([b"x" * CHUNK_BYTES, b"y" * CHUNK_BYTES]), None, None))
    assert chunks(file) == [(0, 1), (0, 1)]


def test_batches_with_and_without_headers_are_gathered(log):
    plain, with_headers = record([b"a"]), record([b"b"], headers=[[{"key": "k", "value": b"v"}]])
    [file] = staged(log, Rows(plain, None, None), Rows(with_headers, None, None), Rows(plain, None, None))
    assert chunks(file) == [(0, 3)]


def test_rows_that_name_their_topics_go_to_a_file_each(log):
    topics = pa.array(["u", "t", "u"])
    files = staged(log, Rows(record([b"a", b"b", b"c"]), topics, pa.array([1, 0, 1], pa.int32())), topic=None)
    assert [(file.topic, chunks(file)) for file in files] == [("t", [(0, 1)]), ("u", [(1, 2)])]


def test_some_rows_may_name_their_partition(log):
    made = record([b"a", b"b", b"c"], [None, b"k", b"k"])
    [file] = staged(log, Rows(made, None, pa.array([1, None, 3], pa.int32())), sticky=2)
    by_key = int(partition_of(pa.array([b"k"]), None, 4, 0)[0])
    assert chunks(file) == sorted([(1, 1), (3, 1), (by_key, 1)])


def test_batches_with_and_without_partitions_are_gathered(log):
    log.create("one")
    named = pa.array([0, 0], pa.int32())
    rows = [Rows(record([b"a"]), None, None), Rows(record([b"b", b"c"]), None, named), Rows(record([b"d"]), None, None)]
    [file] = staged(log, *rows, topic="one")
    assert chunks(file) == [(0, 4)]
    [file] = staged(log, *rows, sticky=3)
    assert chunks(file) == [(0, 2), (3, 2)]


def test_rows_whose_columns_differ_in_length_are_refused():
    for columns in ((pa.array(["t"]), None), (None, pa.array([0, 0, 0], pa.int32()))):
        with pytest.raises(AssertionError, match="rows"):
            Rows(record([b"a", b"b"]), *columns)


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_partition_that_the_topic_does_not_have_is_refused(log, partition):
    with pytest.raises(InvalidRecord, match=rf"topic 't': a row names partition {partition}, .* partitions 0 to 3;"):
        staged(log, Rows(record([b"a"]), None, pa.array([partition], pa.int32())))


def test_a_row_larger_than_allowed_is_refused(log):
    with pytest.raises(InvalidRecord, match=r"topic 't': a row of 101 bytes is larger than max.message.bytes \(100\)"):
        staged(log, Rows(record([b"x" * 100, b"y" * 98], [b"k", None]), None, None), max_message_bytes=100)


def test_the_headers_of_a_row_count(log):
    headers = [[{"key": "h", "value": b"x" * 99}], None]
    assert staged(log, Rows(record([b"", b"y"], headers=headers), None, None), max_message_bytes=100)
    with pytest.raises(InvalidRecord, match="a row of 101 bytes is larger"):
        staged(log, Rows(record([b"z", b"y"], headers=headers), None, None), max_message_bytes=100)


def test_a_write_may_choose_another_compression_than_its_topic(log):
    handle = log.log.topic("t")
    assert destination_of(handle, "zstd", 1).compression == "zstd"
    assert destination_of(handle, None, 1).compression == "lz4"


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


def test_a_row_as_large_as_allowed_is_taken(log):
    assert staged(log, Rows(record([b"x" * 99] * 50, [b"k"] * 50), None, None), max_message_bytes=100)


def test_a_discarded_staging_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_BYTES", 1000)
    log = PlainLog(tmp_path)
    log.create("t", 4)

    def files():
        return {each for each in tmp_path.rglob("*") if each.is_file()}

    before = files()
    task = staging(log)
    task.add(Rows(record([b"x" * 1000]), None, None))
    task.add(Rows(record([b"y"]), None, None))
    assert files() > before
    task.discard()
    assert files() == before


def test_a_file_says_which_entry_its_writer_knew(log):
    log.append("t", {0: [b"a"]})
    [file] = staged(log, Rows(record([b"b"]), None, None))
    assert layout.born_of(file.file.name) == log.log.topic("t").version > 0


@pytest.mark.on_disk("a bucket is not mounted, so its marker is not read again")
def test_a_node_of_another_incarnation_after_the_write_is_noticed(log):
    store = log.log.store
    assert isinstance(store, PlainStore)
    task = staging(log)
    task.add(Rows(record([b"x"]), None, None))
    marker = node.read_marker(store)
    assert marker is not None
    store.put(layout.MARKER, node.encode(node.Marker(marker.cluster, marker.node, "another")))
    with pytest.raises(NodeMissing, match="of another incarnation: is its disk mounted, or was it wiped"):
        task.finish()
