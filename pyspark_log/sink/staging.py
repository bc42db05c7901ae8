"""Staging: what a writing task does with its rows before anybody sequences them.

Rows are gathered into a block, put into the order of their partitions by one vectorised pass, cut into chunks of a few
megabytes, and appended to the task's one file for the topic. The block bounds memory whatever the number of
rows and partitions; the file is invisible until a journal entry names it.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.sink.partitioner import group_by_partition, partition_of
from pyspark_log.sink.rows import Rows, record_bytes
from pyspark_log_coordinator.sequencing import SequencedFile
from pyspark_log_coordinator.topic_state import Holder
from pyspark_log_storage import layout, node, schema
from pyspark_log_storage.append_file import AppendFileWriter
from pyspark_log_storage.chunk import CHUNK_BYTES
from pyspark_log_storage.errors import InvalidRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.log import TopicHandle
    from pyspark_log_storage.store import Store

BLOCK_BYTES = 64 * 1024 * 1024
"""How much a task gathers at most before it writes; its memory is a few times this.

A full chunk for each partition is enough: where that takes less, it gathers less.
"""
BLOCK_ROWS_MAX = 500_000


class Destination(msgspec.Struct, frozen=True):
    """A topic as a writing task must know it."""

    name: str
    topic_id: str
    partitions: int
    incarnations: dict[str, str]
    """The nodes that get the rows, and the incarnation that each must have."""
    compression: str
    max_message_bytes: int
    born: int
    """The newest entry of the topic's journal that was known when the file was named."""


class StagedFile(msgspec.Struct, frozen=True):
    """An append file that is durable and waits to be sequenced."""

    topic: str
    topic_id: str
    file: SequencedFile


def destination_of(handle: TopicHandle, compression: str | None, max_message_bytes: int) -> Destination:
    """Return the topic's present state as a destination. `compression` None means the topic's own."""
    state = handle.journal.state
    return Destination(
        name=handle.name,
        topic_id=handle.topic_id,
        partitions=len(state.partitions),
        incarnations=state.incarnations,
        compression=compression or state.config.compression_type,
        max_message_bytes=min(max_message_bytes, state.config.max_message_bytes),
        born=handle.journal.number,
    )


class Staging:
    """Writes one task's rows into one append file for each topic."""

    def __init__(
        self,
        store: Store,
        destination: Callable[[str], Destination],
        topic: str | None,
        *,
        nonce: Callable[[], str],
        durable: bool,
        sticky: int,
    ) -> None:
        """`topic` None: each row names its own. `sticky`, modulo the partitions, is for rows without a key."""
        self._store = store
        self._destination = destination
        self._topic = topic
        self._nonce = nonce
        self._durable = durable
        self._sticky = sticky
        self._block: list[Rows] = []
        self._block_bytes = 0
        self._block_rows = 0
        self._block_bytes_max = 0
        self._files: dict[str, _TopicFile] = {}

    def add(self, rows: Rows) -> None:
        """Take some rows. Raises `InvalidRecord`, `StoreError` and what finding a topic raises."""
        if rows.record.num_rows == 0:
            return
        if not self._block_bytes_max:
            self._block_bytes_max = self._enough()
        size = rows.record.nbytes
        if self._block and (
            self._block_bytes + size > self._block_bytes_max or self._block_rows + rows.record.num_rows > BLOCK_ROWS_MAX
        ):
            self._write_block()
        self._block.append(rows)
        self._block_bytes += size
        self._block_rows += rows.record.num_rows

    def _enough(self) -> int:
        """Return how large a block must be for full chunks."""
        if self._topic is None:
            return BLOCK_BYTES
        return min(BLOCK_BYTES, CHUNK_BYTES * self._destination(self._topic).partitions)

    def finish(self) -> list[StagedFile]:
        """Write what is left, make the files durable, check the nodes again, and name the files."""
        self._write_block()
        return [self._files[topic].close() for topic in sorted(self._files)]

    def discard(self) -> None:
        """Give up what was staged."""
        for file in self._files.values():
            file.writer.discard()

    def _write_block(self) -> None:
        block, self._block, self._block_bytes, self._block_rows = self._block, [], 0, 0
        if not block:
            return
        rows = _joined(block)
        del block
        if self._topic is not None:
            self._write_rows(self._topic, rows.record, rows.partition)
            return
        assert rows.topic is not None
        names = rows.topic.dictionary_encode()
        for index, name in enumerate(names.dictionary.to_pylist()):
            if len(names.dictionary) == 1:
                self._write_rows(name, rows.record, rows.partition)
            else:
                mine = pc.equal(names.indices, index)
                partition = None if rows.partition is None else rows.partition.filter(mine)
                self._write_rows(name, rows.record.filter(mine), partition)

    def _write_rows(self, topic: str, record: pa.RecordBatch, explicit: pa.Array | None) -> None:
        file = self._files.get(topic)
        if file is None:
            destination = self._destination(topic)
            name = layout.born_name(destination.born, self._nonce())
            file = self._files[topic] = _TopicFile(self._store, destination, name, durable=self._durable)
        _check_sizes(file.destination, record)
        small = record.nbytes <= CHUNK_BYTES  # to ask each slice would take longer than to write it
        partitions = file.destination.partitions
        if partitions == 1 and explicit is None:
            file.append(0, record, small=small)
            return
        try:
            ids = partition_of(record.column("key"), explicit, partitions, self._sticky % partitions)
        except InvalidRecord as error:
            raise InvalidRecord(f"topic {topic!r}: {error}") from error
        order, bounds = group_by_partition(ids, partitions)
        present = np.flatnonzero(np.diff(bounds)).tolist()
        if len(present) > 1:
            record = record.take(pa.array(order))
        for partition in present:
            start, end = int(bounds[partition]), int(bounds[partition + 1])
            file.append(partition, record.slice(start, end - start), small=small)


class _TopicFile:
    """The append file of one topic."""

    def __init__(self, store: Store, destination: Destination, name: str, *, durable: bool) -> None:
        self._store = store
        self._name = name
        self.destination = destination
        key = layout.append_file(destination.name, destination.topic_id, name)
        self.writer = AppendFileWriter(store, key, durable=durable)

    def append(self, partition: int, record: pa.RecordBatch, *, small: bool) -> None:
        """Append the rows of one partition as chunks of about `CHUNK_BYTES`; as one where they are known as `small`."""
        schema_id = schema.RECORD_ID if len(record.schema) == len(schema.RECORD) else schema.RECORD_WITH_HEADERS_ID
        pieces = 1 if small else max(1, min(record.num_rows, round(record.nbytes / CHUNK_BYTES)))
        bounds = [record.num_rows * piece // pieces for piece in range(pieces + 1)]
        for start, end in itertools.pairwise(bounds):
            self.writer.append(partition, record.slice(start, end - start), schema_id, self.destination.compression)

    def close(self) -> StagedFile:
        self.writer.close()
        holders = []
        for node_id, incarnation in self.destination.incarnations.items():
            node.require_marker(self._store, node_id, incarnation)
            holders.append(Holder(node_id, incarnation))
        file = SequencedFile(self._name, tuple(holders), tuple(self.writer.chunks))
        return StagedFile(self.destination.name, self.destination.topic_id, file)


def _joined(block: list[Rows]) -> Rows:
    """Return the rows of a block as one: a column that only some have is filled with nulls."""
    if len(block) == 1:
        return block[0]
    table = pa.concat_tables(
        [pa.Table.from_batches([rows.record]) for rows in block], promote_options="default"
    ).combine_chunks()
    record = table.to_batches()[0]
    topics = [rows.topic for rows in block if rows.topic is not None]
    partitions = [rows.partition for rows in block if rows.partition is not None]
    return Rows(
        record,
        pa.concat_arrays(topics) if topics else None,
        pa.concat_arrays(partitions) if partitions else None,
    )


def _largest(record: pa.RecordBatch) -> float:
    """Return a bound of the bytes of a row that is quickly found: none for rows with headers."""
    if "headers" in record.schema.names:
        return math.inf
    return sum(pc.max(pc.binary_length(record.column(name))).as_py() or 0 for name in ("key", "value"))


def _check_sizes(destination: Destination, record: pa.RecordBatch) -> None:
    # Most blocks are smaller as a whole than anything that could be refused, or have no row near the limit.
    if record.nbytes <= destination.max_message_bytes or _largest(record) <= destination.max_message_bytes:
        return
    largest = pc.max(record_bytes(record)).as_py()
    if largest > destination.max_message_bytes:
        raise InvalidRecord(
            f"topic {destination.name!r}: a row of {largest} bytes is larger than max.message.bytes "
            f"({destination.max_message_bytes}); raise it for the topic and for the write, or make rows smaller"
        )
