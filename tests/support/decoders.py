"""The decoders of what no envelope protects, each with bytes that it reads."""

from collections.abc import Callable
from tempfile import NamedTemporaryFile

import msgspec
import numpy as np
import pyarrow as pa

from pyspark_log.cli.groups import group_offsets
from pyspark_log.options import parse_source
from pyspark_log.reading import source_offset
from pyspark_log.sink import checkpoint as sink_checkpoint
from pyspark_log.writing import row_lines
from pyspark_log_coordinator.assignors import connect, subscription
from pyspark_log_coordinator.assignors.connect import TaskAssignment
from pyspark_log_coordinator.assignors.subscription import Assignment
from pyspark_log_storage.columns import column_ddl, schema
from pyspark_log_storage.columns.compaction_columns import CompactionColumns
from pyspark_log_storage.columns.keys import keys_in
from pyspark_log_storage.delta import delta_checkpoint, delta_log
from pyspark_log_storage.delta.delta_actions import Action, AddFile, Metadata, Transaction
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.files import append_file, chunk, index
from pyspark_log_storage.parquet import parquet_footer, row_group
from pyspark_log_storage.parquet.parquet_segment import ParquetRows, ParquetSegmentWriter
from pyspark_log_storage.segments import segment
from pyspark_log_storage.stores.storage_options import StorageOptions
from tests.support.memory_store import MemoryStore

Decode = Callable[[bytes], object]


def named(decode: Callable[[bytes, str], object]) -> Decode:
    return lambda data: decode(data, "it")


ACTIONS = [
    delta_log.commit_info(1, "WRITE"),
    Action(protocol=delta_log.PROTOCOL),
    Action(metadata=Metadata(id="x", schema_string="{}")),
    Action(txn=Transaction("x", 1)),
    Action(add=AddFile(path="0/a", size=1, modification_time=1, data_change=True, partition_values={})),
]


def read_offsets(data: bytes) -> object:
    """Read the offsets of groups from a file with these bytes."""
    with NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return group_offsets._read_offsets(file.name)


def with_last_checkpoint(data: bytes) -> delta_log.DeltaTable:
    """Read a table with a checkpoint, whose `_last_checkpoint` has these bytes."""
    store, table = MemoryStore(), delta_log.DeltaTable()
    table.apply(ACTIONS)
    delta_log.write_checkpoint(store, "t/", table)
    store.put(f"{delta_log.log_of('t/')}_last_checkpoint", data)
    return delta_log.read(store, "t/")


PLAIN: dict[str, tuple[bytes, Decode]] = {
    "schema": (schema.encode(schema.RECORD_WITH_HEADERS), lambda data: schema.decode(data, "it")),
    "version of a Delta table": (delta_log.encode(ACTIONS), lambda data: delta_log.decode(data, "it")),
    "checkpoint of a Delta table": (delta_checkpoint.encode(ACTIONS), named(delta_checkpoint.decode)),
    "newest checkpoint of a Delta table": (b'{"version":0,"size":5}', with_last_checkpoint),
    "subscription": (subscription.encode_topics(("t", "u")), lambda data: subscription.decode_topics(data, "m")),
    "assignment": (
        subscription.encode_assignment(Assignment({"t": (0, 1)}, 3)),
        lambda data: subscription.decode_assignment(data, "m"),
    ),
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
        read_offsets,
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


def good_chunks() -> list[bytes]:
    """Return chunks of all kinds."""
    rows = [
        {"key": b"k%d" % i, "value": b"v" * (i * 40), "timestamp": i, "headers": [{"key": "h", "value": b"x"}] * i}
        for i in range(9)
    ]
    return [
        chunk.encode(pa.RecordBatch.from_pylist(rows, kind), number, compression)[1]
        for compression in chunk.COMPRESSIONS
        for number, kind in enumerate(schema.RECORD_SCHEMAS)
    ]


def written() -> tuple[bytes, bytes, bytes]:
    """Return an append file, and the two files of a segment."""
    store = MemoryStore()
    chunks = good_chunks()
    writer = segment.SegmentWriter(store, SEGMENT, ((3, 1000), (5, 1004)))
    for data in chunks:
        writer.append(chunk.verify(pa.py_buffer(data), "x"), data)
    writer.close()
    return b"".join(chunks), store.read(f"{SEGMENT}.log"), store.read(f"{SEGMENT}.index")


def written_as_parquet() -> bytes:
    """Return the rows of a Parquet segment."""
    store = MemoryStore()
    kind = ParquetRows(0, schema.RECORD_SCHEMAS, "lz4")
    writer = ParquetSegmentWriter(store, f"{SEGMENT}.parquet", ((3, 1000), (5, 1004)), kind)
    for number, data in enumerate(map(pa.py_buffer, good_chunks())):
        header = chunk.verify(data, "x")
        writer.append(chunk.decode(data, header, schema.RECORD_SCHEMAS, "x"), header.schema_id, number)
    writer.close()
    return store.read(f"{SEGMENT}.parquet")


def written_as_keyed() -> bytes:
    """Return the rows of a keyed segment."""
    store = MemoryStore()
    kind = ParquetRows(0, schema.RECORD_SCHEMAS, "lz4")
    writer = ParquetSegmentWriter(store, f"{SEGMENT}.parquet", ((3, 1000),), kind)
    keys = pa.array([b"a", b"b", b"c"], pa.binary())
    times = pa.array([0, 1, 2], schema.TIMESTAMP)
    rows = pa.record_batch([keys, pa.array([b"1", None, b"3"], pa.binary()), times], schema.RECORD)
    offsets = np.array([1001, 1005, 1009])
    writer.append(rows, schema.RECORD_ID, 3, offsets)
    writer.close(1020, 1)
    return store.read(f"{SEGMENT}.parquet")


def read_as_keyed(data: bytes) -> object:
    """Read all rows and keys of a keyed segment."""
    store, key = of_parquet(data), f"{SEGMENT}.parquet"
    footer = parquet_footer.read(store, key)
    schemas = schema.RECORD_SCHEMAS
    rows = [row_group.keyed_rows(store, key, footer, each, schemas) for each in footer.entries]
    keys = [keys_in(each, CompactionColumns()) for each, _ in rows]
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
        chunk.decode(found, place, schema.RECORD_SCHEMAS, "it").nbytes for place, found in append_file.scan(store, "f")
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

EVERY = PLAIN | GIVEN | FILES_OF_ROWS
