"""The destination of rows: what a writing task needs to know of a topic, found before the rows are read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.writing.partitioner import check_explicit
from pyspark_log.writing.rows import largest_above
from pyspark_log_coordinator.model import timestamps
from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_storage.columns import schema
from pyspark_log_storage.columns.compaction_columns import key_columns_of
from pyspark_log_storage.errors import InvalidRecord

if TYPE_CHECKING:
    from pyspark_log.writing.rows import Rows
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.batch import Acks


class NodePlace(msgspec.Struct, frozen=True):
    """A node's store: its address as the cluster knows it, and the incarnation that it must have."""

    url: str
    incarnation: str


class Destination(msgspec.Struct, frozen=True):
    """The facts of a topic that a writing task needs."""

    name: str
    topic_id: str
    targets: tuple[tuple[NodeId, ...], ...]
    """The nodes that get the rows, by partition."""
    nodes: dict[NodeId, NodePlace]
    """The places of these nodes."""
    enough: int | None
    """The number of nodes after which the writer stops waiting for the others. None: all."""
    compression: str
    max_message_bytes: int
    version: int
    """The newest known entry of the topic's journal; part of the names of files."""
    schemas: tuple[bytes, ...] = ()
    """Those of a typed topic, none of a topic of records."""
    needs_keys: bool = False
    """Whether a row without a key is refused: the topic is compacted."""
    config: TopicConfig = TopicConfig()
    """The settings of the topic."""
    clock_offset_ms: int = 0
    """What to add to this machine's clock, which may be wrong."""

    def now_us(self) -> int:
        """Return the time in microseconds: of a row without a time, and by which those of others are checked."""
        return time.time_ns() // 1000 + self.clock_offset_ms * 1000

    @property
    def partitions(self) -> int:
        return len(self.targets)

    @property
    def keyless(self) -> str:
        """Why a row without a key is refused."""
        lack, cure = "no key", "write a key"
        columns = self.config.key_column
        names = key_columns_of(columns)
        if len(names) == 1:
            lack, cure = f"a null in the column {columns!r}, which is its key", "fill it"
        elif names:
            lack, cure = f"a null in one of the columns {columns}, which are its key", "fill it"
        return (
            f"a row has {lack}, and the topic has cleanup.policy=compact, which keeps the newest row of each key; "
            f"{cure}, or set cleanup.policy=delete"
        )


def destination_of(
    handle: TopicHandle, compression: str | None, max_message_bytes: int, acks: Acks = "all"
) -> Destination:
    """Return the topic as it is known now. `compression` None means the topic's own."""
    state, targets = handle.state, handle.write_targets(acks)
    return Destination(
        name=handle.name,
        topic_id=handle.topic_id,
        targets=targets.of_partitions,
        nodes={node: NodePlace(*place) for node, place in targets.nodes.items()},
        enough=targets.enough,
        compression=compression or state.config.compression_type,
        max_message_bytes=min(max_message_bytes, state.config.max_message_bytes),
        version=handle.version,
        schemas=state.schemas if is_typed(handle) else (),
        needs_keys=state.config.is_compacted,
        config=state.config,
        clock_offset_ms=handle.log.clock.offset_ms,
    )


def is_typed(handle: TopicHandle) -> bool:
    """Return whether a topic has columns of its own, as far as this process knows its journal."""
    return schema.is_typed(handle.schemas[0])


def check_kind(destination: Destination, rows: Rows) -> None:
    """Raise `InvalidRecord` if a topic takes other rows than these."""
    name, typed = destination.name, rows.typed
    if typed is None:
        if destination.schemas:
            raise InvalidRecord(
                f"topic {name!r} is typed: it has columns of its own, and takes no records of key and value; write a "
                f"frame with these columns and the option topic={name}"
            )
    elif typed.stored not in destination.schemas[typed.schema_id : typed.schema_id + 1]:
        raise InvalidRecord(
            f"topic {name!r} was deleted and created again with other columns during the write; start the write again"
        )


def check(destination: Destination, rows: Rows) -> None:
    """Raise `InvalidRecord` if the topic or the write refuses a row: for its key, size, time or partition."""
    record = rows.record
    if record.num_rows == 0:
        return
    if destination.needs_keys and not _have_keys(destination, record):
        raise InvalidRecord(f"topic {destination.name!r}: {destination.keyless}")
    if (size := largest_above(record, destination.max_message_bytes)) is not None:
        check_size(destination, size)
    for timestamp in pc.min_max(record.column("timestamp").cast(pa.int64())).as_py().values():
        check_time(destination, timestamp)
    if rows.partition is not None:
        try:
            check_explicit(rows.partition, destination.partitions)
        except InvalidRecord as error:
            raise InvalidRecord(f"topic {destination.name!r}: {error}") from error


def _have_keys(destination: Destination, record: pa.RecordBatch) -> bool:
    has = record.schema.names  # perhaps those of an older schema, without a key.column that was added and set since
    names = key_columns_of(destination.config.key_column) or ("key",)
    return all(each in has and record.column(each).null_count == 0 for each in names)


def check_size(destination: Destination, size: int) -> None:
    """Raise `InvalidRecord` if a row of so many bytes is too large."""
    if size > destination.max_message_bytes:
        raise InvalidRecord(
            f"topic {destination.name!r}: a row of {size} bytes is larger than max.message.bytes "
            f"({destination.max_message_bytes}); raise it for the topic and for the write (max.message.bytes, or "
            "max.request.size of a Producer), or write smaller rows"
        )


def check_time(destination: Destination, timestamp_us: int) -> None:
    """Raise `InvalidRecord` if a topic refuses rows of this time (microseconds).

    One row of the year 50,000, which is a time in microseconds that was taken for milliseconds, would be the newest of
    its topic for ever. This is checked where rows come in, so that only the wrong row fails, and again by the commit.
    """
    refusal = timestamps.refusal(destination.config, timestamp_us, destination.now_us() // 1000)
    if refusal:
        raise InvalidRecord(f"topic {destination.name!r}: {refusal}")
