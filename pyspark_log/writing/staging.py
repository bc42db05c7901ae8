"""Staging: a writing task's rows on their way into append files, which no journal entry names yet.

Rows are collected into a block, sorted by partition in one vectorised pass, split into chunks of a few megabytes and
appended to the task's file for the topic. The block bounds memory, whatever the number of rows and partitions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.writing.destination import Destination, check, check_kind
from pyspark_log.writing.partitioner import group_by_partition, partition_of
from pyspark_log.writing.rows import Rows
from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT
from pyspark_log_coordinator.model.batch import SequencedFile, StagedFile
from pyspark_log_coordinator.model.partition import Holder, NodeId
from pyspark_log_coordinator.retry import RetryPolicy, retry
from pyspark_log_storage import layout
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import (
    CorruptObject,
    LogError,
    StoreError,
    is_node_failure,
    main_reason,
)
from pyspark_log_storage.files.append_file import AppendFileWriter
from pyspark_log_storage.files.chunk import CHUNK_BYTES
from pyspark_log_storage.objects import node
from pyspark_log_storage.stores.fan_out import SLOWER_SECONDS, FanOutWriter
from pyspark_log_storage.stores.store import Store, is_object_store

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_storage.stores.store import ObjectWriter

BLOCK_BYTES = 64 * 1024 * 1024
"""The most that a task gathers before it writes; its memory is a few times this.

It gathers less if a full chunk for each partition takes less.
"""
BLOCK_ROWS_MAX = 500_000
KEPT_BYTES_MAX = 64 * 1024 * 1024
"""How many bytes of rows a Spark task keeps: as many as it gathers before it writes."""


class Staging:
    """Writes one task's rows into one append file for each topic and each set of nodes that gets partitions of it."""

    def __init__(  # noqa: PLR0913 -- each is a fact of its own
        self,
        store_at: Callable[[str], Store],
        destination: Callable[[str], Destination],
        topic: str | None,
        *,
        environment: Environment,
        durable: bool,
        sticky: int,
        slower_seconds: float = SLOWER_SECONDS,
    ) -> None:
        """`store_at` opens a node's store by its address; `destination` returns the same one for a topic each time.

        `topic` None: each row names its own. `sticky`, modulo the partitions, is the partition of rows without a key.
        `slower_seconds`: how much longer than the fastest node another may take.
        """
        self._store_at = store_at
        self._destination = destination
        self._topic = topic
        self._nonce = environment.nonce
        self._durable = durable
        self._open_several = partial(
            FanOutWriter, durable=durable, slower_seconds=slower_seconds, store_threads=environment.store_threads
        )
        self._sticky = sticky
        self._block: list[Rows] = []
        self._block_bytes = 0
        self._block_rows = 0
        self._block_bytes_max = 0
        self._files: dict[tuple[str, tuple[NodeId, ...]], _File] = {}
        """By topic and nodes."""

    def add(self, rows: Rows) -> None:
        """Add rows. Raises `InvalidRecord`, `StoreError` and the errors of finding a topic."""
        if rows.record.num_rows == 0:
            return
        if not self._block_bytes_max:
            self._block_bytes_max = self._full_block_bytes()
        size = rows.record.nbytes
        rows_after = self._block_rows + rows.record.num_rows
        is_full = self._block_bytes + size > self._block_bytes_max or rows_after > BLOCK_ROWS_MAX
        if self._block and (is_full or self._block[0].typed != rows.typed):
            self._write_block()
        self._block.append(rows)
        self._block_bytes += size
        self._block_rows += rows.record.num_rows

    def _full_block_bytes(self) -> int:
        """Return the size of a block that fills a chunk for each partition."""
        if self._topic is None:
            return BLOCK_BYTES
        return min(BLOCK_BYTES, CHUNK_BYTES * self._destination(self._topic).partitions)

    def finish(self) -> list[StagedFile]:
        """Write the remaining rows, make the files durable and return them. Raises what `add` raises."""
        self._write_block()
        return [self._files[key].close() for key in sorted(self._files, key=lambda key: key[0])]

    def discard(self) -> None:
        for file in self._files.values():
            file.writer.discard()

    def _write_block(self) -> None:
        block, self._block, self._block_bytes, self._block_rows = self._block, [], 0, 0
        if not block:
            return
        rows = _joined(block)
        del block
        if self._topic is not None:
            self._write_rows(self._topic, rows)
            return
        assert rows.topic is not None
        names = rows.topic.dictionary_encode()
        rows = Rows(rows.record, None, rows.partition)
        for index, name in enumerate(names.dictionary.to_pylist()):
            self._write_rows(name, rows if len(names.dictionary) == 1 else rows.filter(pc.equal(names.indices, index)))

    def _write_rows(self, topic: str, rows: Rows) -> None:
        """Write rows of one topic. Raises `InvalidRecord` for one that it refuses."""
        destination = self._destination(topic)
        check_kind(destination, rows)
        check(destination, rows)
        record, explicit = rows.record, rows.partition
        if rows.typed is not None:
            schema_id = rows.typed.schema_id
        else:
            plain = len(record.schema) == len(schema.RECORD)
            schema_id = schema.RECORD_ID if plain else schema.RECORD_WITH_HEADERS_ID
        small = record.nbytes <= CHUNK_BYTES  # asking each slice would take longer than writing it
        partitions = destination.partitions
        if partitions == 1 and explicit is None:
            self._append(destination, 0, record, schema_id, small=small)
            return
        ids = partition_of(rows.hashed(), explicit, partitions, self._sticky % partitions)
        order, bounds = group_by_partition(ids, partitions)
        assert bounds[-1] == record.num_rows, f"{bounds[-1]} of {record.num_rows} rows have a partition"
        present = np.flatnonzero(np.diff(bounds)).tolist()
        if len(present) > 1:
            record = _in_order(record, order)
        for partition in present:
            start, end = int(bounds[partition]), int(bounds[partition + 1])
            self._append(destination, partition, record.slice(start, end - start), schema_id, small=small)

    def _append(
        self, destination: Destination, partition: int, record: pa.RecordBatch, schema_id: int, *, small: bool
    ) -> None:
        """Append the rows of one partition as chunks of about `CHUNK_BYTES`, or as one chunk if `small`."""
        nodes = destination.targets[partition]
        file = self._files.get((destination.name, nodes))
        if file is None:
            file = self._files[destination.name, nodes] = self._open(destination, nodes)
        pieces = 1 if small else max(1, min(record.num_rows, round(record.nbytes / CHUNK_BYTES)))
        bounds = [record.num_rows * piece // pieces for piece in range(pieces + 1)]
        for start, end in itertools.pairwise(bounds):
            file.writer.append(partition, record.slice(start, end - start), schema_id, destination.compression)

    def _open(self, destination: Destination, nodes: Sequence[NodeId]) -> _File:
        stores = {each: self._store_at(destination.nodes[each].url) for each in nodes}
        name = layout.born_name(destination.version, self._nonce())
        key = layout.append_file(destination.name, destination.topic_id, name)
        if len(stores) == 1:
            (store,) = stores.values()
            return _File(destination, stores, name, store.open_write(key, durable=self._durable))
        return _File(destination, stores, name, self._open_several(stores, key, enough=destination.enough))


class _File:
    """One append file, on one node or on several."""

    def __init__(
        self, destination: Destination, stores: dict[NodeId, Store], name: str, target: ObjectWriter | FanOutWriter
    ) -> None:
        self._destination = destination
        self._stores = stores
        self._name = name
        self._fan_out = target if isinstance(target, FanOutWriter) else None
        self.writer = AppendFileWriter(target)

    def close(self) -> StagedFile:
        """Make the file durable and return it with its holders. Raises `StoreError` if it has none."""
        self.writer.close()
        destination, fan_out = self._destination, self._fan_out
        failures = dict(fan_out.failures) if fan_out is not None else {}
        key = layout.append_file(destination.name, destination.topic_id, self._name)
        holders = []
        for each in self._stores if fan_out is None else fan_out.done:
            incarnation = destination.nodes[each].incarnation
            try:
                at_the_root = destination.nodes[each].url == AT_THE_ROOT
                if at_the_root and not is_object_store(self._stores[each]):  # an unmounted root has no journal either
                    node.require_marker(self._stores[each], each, incarnation)
                else:
                    node.require_written(self._stores[each], each, incarnation, key)
            except (StoreError, CorruptObject) as error:
                if not is_node_failure(error):
                    raise
                failures[each] = error
            else:
                holders.append(Holder(each, incarnation))
        if not holders:
            raise main_reason(failures.values())
        file = SequencedFile(self._name, tuple(holders), tuple(self.writer.chunks))
        return StagedFile(destination.name, destination.topic_id, file, tuple(failures))


class RetryingStaging:
    """Stages one task's rows, again if nodes were unreachable when they were first written.

    The rows come from an iterator that cannot be read twice, so they are kept until their file is durable, and written
    again into a new file. The first file is never sequenced, so no row appears twice. A task with more rows than may
    be kept fails instead, and Spark repeats it from its own input.
    """

    def __init__(self, begin: Callable[[], Staging], environment: Environment, policy: RetryPolicy) -> None:
        """`begin` returns a new staging. After an earlier one it probes the nodes and refreshes the topic first."""
        self._begin = begin
        self._environment = environment
        self._policy = policy
        self._staging: Staging | None = None
        self._kept: list[Rows] = []
        self._is_whole = True
        """Whether all rows so far are kept."""
        self._bytes_added = 0

    def add(self, rows: Rows) -> None:
        """Take some rows. Raises what `Staging.add` raises."""
        self._bytes_added += rows.record.nbytes
        if self._is_whole:
            self._kept.append(rows)
        try:
            if self._staging is None:
                self._staging = self._begin()
            self._staging.add(rows)
        except LogError as error:
            if not self._is_whole:
                raise
            retry(self._environment, self._policy, self._repeated, failed=error)
        if self._bytes_added > KEPT_BYTES_MAX:
            self._kept, self._is_whole = [], False

    def finish(self) -> list[StagedFile]:
        """Write what is left and name the files, as `Staging.finish` does."""
        if self._staging is None:
            return []
        try:
            return self._staging.finish()
        except LogError as error:
            if not self._is_whole:
                raise
            return retry(self._environment, self._policy, lambda: self._repeated().finish(), failed=error)

    def discard(self) -> None:
        if self._staging is not None:
            self._staging.discard()
            self._staging = None

    def _repeated(self) -> Staging:
        """Return a new staging that has taken all rows so far."""
        self.discard()
        staging = self._staging = self._begin()
        for rows in self._kept:
            staging.add(rows)
        return staging


def _in_order(record: pa.RecordBatch, order: NDArray[np.int64]) -> pa.RecordBatch:
    """Return the rows in another order. Unchecked short indices for each column save a quarter of the time."""
    indices = pa.array(order.astype(np.int32))
    columns = [pc.take(column, indices, boundscheck=False) for column in record.columns]
    return pa.RecordBatch.from_arrays(columns, schema=record.schema)


def _joined(block: list[Rows]) -> Rows:
    """Return the rows of a block as one batch, with nulls for a missing column."""
    if len(block) == 1:
        return block[0]
    table = pa.concat_tables(
        [pa.Table.from_batches([rows.record]) for rows in block], promote_options="default"
    ).combine_chunks()
    (record,) = table.to_batches()

    def column(name: str, kind: pa.DataType) -> pa.Array | None:
        parts = [getattr(rows, name) for rows in block]
        if all(each is None for each in parts):
            return None
        filled = zip(block, parts, strict=True)
        return pa.concat_arrays([pa.nulls(rows.record.num_rows, kind) if one is None else one for rows, one in filled])

    keys = column("keys", pa.binary())  # some rows may have been sent before the topic had a key.column
    return Rows(record, column("topic", pa.string()), column("partition", pa.int32()), block[0].typed, keys)
