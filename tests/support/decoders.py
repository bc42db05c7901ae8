"""The decoders of the product, each with bytes that it reads."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from pyspark_log.cli.groups import group_offsets
from pyspark_log.history import backfill
from pyspark_log.options import parse_source
from pyspark_log.reading import source_offset
from pyspark_log.sink import checkpoint as sink_checkpoint
from pyspark_log.writing import row_lines
from pyspark_log_coordinator.assignors import connect, subscription
from pyspark_log_coordinator.assignors.connect import TaskAssignment, WorkerState
from pyspark_log_coordinator.assignors.subscription import Assignment, Subscription
from pyspark_log_coordinator.backup import backup
from pyspark_log_coordinator.backup import manifest as backup_manifest
from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.group import machine as group
from pyspark_log_coordinator.group.joining import JoinGroup
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit
from pyspark_log_coordinator.group.state import MemberDetails, Protocol
from pyspark_log_coordinator.journal import journal_nodes, registers, snapshot
from pyspark_log_coordinator.journal.inbox import Answer, decode_answer, encode_answer
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.journal_nodes import JournalNode, JournalNodes
from pyspark_log_coordinator.journal.paxos import NIL, Register
from pyspark_log_coordinator.journal.place import OneStore
from pyspark_log_coordinator.journal.replay import Replay
from pyspark_log_coordinator.journal.state_machine import Machine
from pyspark_log_coordinator.log import topic_description
from pyspark_log_coordinator.log.log import topic_inbox
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.machine import AlterConfig, CommitBatch
from pyspark_log_storage import layout
from pyspark_log_storage.columns import column_ddl, schema
from pyspark_log_storage.columns.compaction_columns import CompactionColumns
from pyspark_log_storage.delta import delta_checkpoint, delta_log
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.files import append_file, chunk, index
from pyspark_log_storage.objects import node
from pyspark_log_storage.objects.envelope import seal
from pyspark_log_storage.parquet import keyed_segment, parquet_footer
from pyspark_log_storage.parquet.keyed_segment import KeyedSegmentWriter
from pyspark_log_storage.parquet.parquet_segment import ParquetRows, ParquetSegmentWriter
from pyspark_log_storage.segments import segment
from pyspark_log_storage.stores.storage_options import StorageOptions
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic
from tests.support.coordinator.several_nodes import Stores
from tests.support.memory_store import MemoryStore
from tests.support.storage import delta_tables, hostile_chunks

Decode = Callable[[bytes], object]


SUBSCRIPTION = subscription.encode_subscription(Subscription(("t", "u"), {"t": (0, 1)}, 3))


def filled() -> ReplicatedTopic:
    """Return a topic with segments and chunks, which are on three nodes, and with rows that are not on all of them."""
    made = ReplicatedTopic(Stores(MemoryStore), replicas=(ALL, ("1", "2", "0")), retention_ms="-1")
    for _ in range(6):
        made.append({0: [b"a"] * 3, 1: [b"b"]}, on=ALL, acks="all")
    made.roll(3)
    made.append({0: [b"a"] * 3, 1: [b"b"]}, on=ALL[:2])
    joined = made.log.group("g", create=True)
    joined.submit(OffsetCommit({made.handle.topic_id: {0: Offset(3, metadata="m"), 1: Offset(1)}}))
    joined.submit(JoinGroup(MemberDetails("m", (Protocol("range", *SUBSCRIPTION),)), "consumer"))
    return made


FILLED = filled()
HANDLE = FILLED.handle
GROUP = FILLED.log.group("g").journal
FOLDER = layout.topic_folder("t", HANDLE.topic_id)


def entry_of(journal: Journal[Any, Any]) -> bytes:
    """Return a journal's newest entry."""
    return journal.entries.read(journal.number) or b""


def snapshot_of(journal: Journal[Any, Any]) -> bytes:
    return journal.encoded_snapshot()[1]


def named(decode: Callable[[bytes, str], object]) -> Decode:
    return lambda data: decode(data, "it")


def as_entry(journal: Journal[Any, Any], number: int | None = None) -> Decode:
    """Return what reads an entry as that of a number, by default the newest, after a journal's entries before it."""
    before = journal.begin()
    while before.number < (number or journal.number) - 1:
        before.take_next()

    def read(data: bytes) -> object:
        past = before.copy()
        past._fold(data, past._decode(data, "the entry"))
        return past.state

    return read


def as_snapshot(journal: Journal[Any, Any], machine: Machine[Any, Any]) -> Decode:
    past = Replay(OneStore(MemoryStore()), "j/", machine, real_environment())
    return lambda data: past.state_in(snapshot.decode_of(journal.folder, journal.number, data, "the snapshot"))


def in_inbox(data: bytes) -> object:
    """Read a command of another process, which is passed over if it is none."""
    store, inbox = MemoryStore(), topic_inbox(HANDLE.journal.folder, real_environment())
    store.put("command", data)
    found = inbox._command(store, "command")
    if found is None:
        raise CorruptObject("the command", "it is passed over")
    return found


FILES = tuple(topic.SequencedFile(each.name, each.holders, ()) for each in HANDLE.journal.state.files)
NODES = JournalNodes("c", tuple(JournalNode(name, f"/{name}", name) for name in "abc"), 2)
VOTE, CLAIM = Register(1), Register(1, is_claim=True)
MARKER = node.Marker("c", "0", "i", root=True)
EVENTS = msgspec.msgpack.encode(topic.decide(HANDLE.refresh(), AlterConfig({"retention.ms": "5"}), 0))

SINK = sink_checkpoint.SinkRecord("/data/log", "c", "t", "9f")
BACKFILL = backfill.BackfillPlan("b", "t", "9f", ("n",), 10, "struct<n:int>", bounds=("5",))
BACKUP = backup.back_up(FILLED.log, MemoryStore("backups"))[0]

ENVELOPED: dict[str, tuple[bytes, Decode]] = {
    "entry of a topic": (entry_of(HANDLE.journal), as_entry(HANDLE.journal)),
    "entry of a cluster": (entry_of(FILLED.log.cluster), as_entry(FILLED.log.cluster)),
    "snapshot of a topic": (snapshot_of(HANDLE.journal), as_snapshot(HANDLE.journal, topic.MACHINE)),
    "snapshot of a cluster": (snapshot_of(FILLED.log.cluster), as_snapshot(FILLED.log.cluster, cluster.MACHINE)),
    "entry of a group": (entry_of(GROUP), as_entry(GROUP)),
    "snapshot of a group": (snapshot_of(GROUP), as_snapshot(GROUP, group.MACHINE)),
    "command in an inbox": (
        seal(b"PLIB", 1, msgspec.msgpack.encode(CommitBatch(ProducerClaim("p", "q", "r", 1), (FILES[0],)))),
        in_inbox,
    ),
    "answer to a command": (
        encode_answer(Answer(7, {0: (3, 5), 1: (0, 1)}), "it"),
        lambda data: decode_answer(data, "it"),
    ),
    "vote": (registers.encode(VOTE, b"a value"), lambda data: registers.decode(VOTE, data, "it")),
    "empty vote": (registers.encode(VOTE, NIL), lambda data: registers.decode(VOTE, data, "it")),
    "claim": (registers.encode(CLAIM, b"f" * 32), lambda data: registers.decode(CLAIM, data, "it")),
    "node marker": (node.encode(MARKER), lambda data: node.decode(data, "it")),
    "journal nodes": (journal_nodes.encode(NODES), lambda data: journal_nodes.decode(data, "it")),
    "description": (topic_description.encode(HANDLE.description()), named(topic_description.decode)),
    "backup": (backup_manifest.encode(BACKUP), named(backup_manifest.decode)),
    "plan of a backfill": (backfill.encode(BACKFILL), named(backfill.decode)),
    "sink in a checkpoint": (sink_checkpoint.encode(SINK), named(sink_checkpoint.decode)),
}
PLAIN: dict[str, tuple[bytes, Decode]] = {
    "schema": (schema.encode(schema.RECORD_WITH_HEADERS), lambda data: schema.decode(data, "it")),
    "version of a Delta table": (delta_log.encode(delta_tables.ACTIONS), lambda data: delta_log.decode(data, "it")),
    "checkpoint of a Delta table": (delta_checkpoint.encode(delta_tables.ACTIONS), named(delta_checkpoint.decode)),
    "newest checkpoint of a Delta table": (b'{"version":0,"size":5}', delta_tables.with_last_checkpoint),
    "subscription": (SUBSCRIPTION[0], lambda data: subscription.decode_subscription(data, b"", "m")),
    "partitions owned": (SUBSCRIPTION[1], lambda data: subscription.decode_subscription(SUBSCRIPTION[0], data, "m")),
    "assignment": (
        subscription.encode_assignment(Assignment({"t": (0, 1)})),
        lambda data: subscription.decode_assignment(data, "m"),
    ),
    "state of a worker": (connect.encode_state(WorkerState(("a", "b"), ("c",), 3)), named(connect.decode_state)),
    "tasks of a worker": (
        connect.encode_assignment(TaskAssignment(("a", "b"), ("c",), 3)),
        named(connect.decode_assignment),
    ),
}


def text(data: bytes) -> str:
    """Return what a process takes bytes for that come from its arguments, or from the JVM."""
    return data.decode(errors="surrogateescape")


def offset_of(data: bytes) -> object:
    """Read an offset as Spark hands it over: it has parsed the JSON, which must be an object."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise CorruptObject("the offset", "Spark refuses it") from None
    if not isinstance(value, dict):
        raise CorruptObject("the offset", "Spark refuses it")
    return source_offset.parse(value)


def option(name: str, *, streaming: bool = True) -> Decode:
    """Return what reads an option of a query."""
    return lambda data: parse_source(
        {"path": "/x", **({} if name == "assign" else {"subscribe": "t"}), name: text(data)}, streaming=streaming
    )


GIVEN: dict[str, tuple[bytes, Decode]] = {
    "offset in a checkpoint": (
        b'{"version":1,"topics":{"t":{"id":"9f","end":{"0":[120,0]},"begin":{"0":[0,0]}}},"group":["g",1]}',
        offset_of,
    ),
    "metadata of a checkpoint": (b'{"id":"9f"}', sink_checkpoint.query_of),
    "assign": (b'{"t":[0,1],"u":[2]}', option("assign")),
    "topicIds": (b'{"t":"5f0c"}', option("topicIds", streaming=False)),
    "compactions": (b'{"t":{"0":3,"1":2}}', option("compactions", streaming=False)),
    "startingOffsets": (b'{"t":{"0":23,"1":-2},"u":"latest"}', option("startingOffsets")),
    "startingOffsetsByTimestamp": (b'{"t":{"0":23,"1":5}}', option("startingOffsetsByTimestamp")),
    "storage_options": (
        b'{"key":"a","s3://b":{"key":"c"}}',
        lambda data: StorageOptions.parse(text(data)).at("s3://b/x"),
    ),
    "file of offsets": (
        b'g,t,0,5\n"g,2",t,1,7\n',
        lambda data: group_offsets._read(data.decode(errors="replace").splitlines(keepends=True), "it"),
    ),
    "rows in JSON": (
        b'{"key":"k","value":{"a":[1,2]},"headers":[{"key":"h","value":"v"}],"partition":1,"timestamp":5}\n',
        lambda data: row_lines.decode_json(data.split(b"\n"), 1),
    ),
    "schema in DDL": (b"id BIGINT NOT NULL, s STRUCT<a: INT>", lambda data: column_ddl.parse(text(data))),
    "schema in JSON": (
        b'{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}',
        lambda data: column_ddl.parse(text(data)),
    ),
    "rows in text": (b"k:v\nk:w", lambda data: row_lines.decode_text(data.split(b"\n"), 1, b":")),
}
"""What people and Spark give. The JSON of `offset in a checkpoint` is parsed by Spark."""

SEGMENT = "t/0/00000000000000001000-00000000000000000007-abc"


def written() -> tuple[bytes, bytes, bytes]:
    """Return an append file, and the two files of a segment."""
    store = MemoryStore()
    chunks = hostile_chunks.good_chunks()
    writer = segment.SegmentWriter(store, "t/0/", SEGMENT.rsplit("/", 1)[1], 1000, ((3, 1000), (5, 1004)))
    for data in chunks:
        writer.append(chunk.verify(pa.py_buffer(data), "x"), data)
    writer.close()
    return b"".join(chunks), store.read(f"{SEGMENT}.log"), store.read(f"{SEGMENT}.index")


def written_as_parquet() -> bytes:
    """Return the rows of a Parquet segment."""
    store = MemoryStore()
    kind = ParquetRows(0, schema.RECORD_SCHEMAS, "lz4")
    name = f"{SEGMENT.rsplit('/', 1)[1]}.parquet"
    writer = ParquetSegmentWriter(store, "t/0/", name, 1000, ((3, 1000), (5, 1004)), kind)
    for number, data in enumerate(map(pa.py_buffer, hostile_chunks.good_chunks())):
        header = chunk.verify(data, "x")
        writer.append(chunk.decode(data, header, schema.RECORD_SCHEMAS, "x"), header.schema_id, number)
    writer.close()
    return store.read(f"{SEGMENT}.parquet")


def written_as_keyed() -> bytes:
    """Return the rows of a keyed segment."""
    store = MemoryStore()
    kind = ParquetRows(0, schema.RECORD_SCHEMAS, "lz4")
    writer = KeyedSegmentWriter(store, "t/0/", f"{SEGMENT.rsplit('/', 1)[1]}.parquet", 1000, ((3, 1000),), kind)
    keys = pa.array([b"a", b"b", b"c"], pa.binary())
    times = pa.array([0, 1, 2], schema.TIMESTAMP)
    rows = pa.record_batch([keys, pa.array([b"1", None, b"3"], pa.binary()), times], schema.RECORD)
    offsets = np.array([1001, 1005, 1009])
    writer.append_at(rows, offsets, schema.RECORD_ID, 3)
    writer.close_at(1020, 1)
    return store.read(f"{SEGMENT}.parquet")


def read_as_keyed(data: bytes) -> object:
    """Read all rows and keys of a keyed segment."""
    store, key = of_parquet(data), f"{SEGMENT}.parquet"
    footer = parquet_footer.read(store, key)
    schemas = schema.RECORD_SCHEMAS
    rows = [keyed_segment.read_rows(store, key, footer, each, schemas) for each in footer.entries]
    keys = [
        keyed_segment.read_keys(store, key, footer, each, schemas, CompactionColumns())[0] for each in footer.entries
    ]
    return [keys, footer.segment.keyed, rows, segment.scan(store, key, schemas)]


APPENDED, LOG, INDEX = written()
PARQUET = written_as_parquet()
KEYED = written_as_keyed()


def of_parquet(data: bytes) -> MemoryStore:
    store = MemoryStore()
    store.put(f"{SEGMENT}.parquet", data)
    return store


def scanned(data: bytes) -> object:
    """Read an append file as a maintainer does that trusts nobody, and all its rows."""
    store = MemoryStore()
    store.put("f", data)
    return [
        chunk.decode(found, header, schema.RECORD_SCHEMAS, "it").nbytes
        for _, header, found in append_file.scan(store, "f")
    ]


def segment_with(log: bytes, its_index: bytes) -> MemoryStore:
    store = MemoryStore()
    store.put(f"{SEGMENT}.log", log)
    store.put(f"{SEGMENT}.index", its_index)
    return store


def indexed(data: bytes) -> object:
    return index.read(segment_with(LOG, data), SEGMENT)


FILES_OF_ROWS: dict[str, tuple[bytes, Decode]] = {
    "append file": (APPENDED, scanned),
    "segment": (LOG, lambda data: segment.scan(segment_with(data, INDEX), SEGMENT, schema.RECORD_SCHEMAS)),
    "Parquet segment": (
        PARQUET,
        lambda data: segment.scan(of_parquet(data), f"{SEGMENT}.parquet", schema.RECORD_SCHEMAS),
    ),
    "keyed segment": (KEYED, read_as_keyed),
    "index": (INDEX, indexed),
}
"""Their chunks, blocks and row groups have checksums of their own, so every changed byte is noticed."""

EVERY = ENVELOPED | PLAIN | GIVEN | FILES_OF_ROWS
