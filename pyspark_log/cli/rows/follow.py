"""`pyspark-log consume --follow` and `--group`: print the rows that a `Consumer` reads, and survive what it survives.

    without a group     it reads the partitions of the topic, also those that are added, from where `--from` says
    with a group        it prints what the group has not read, and commits what was printed

As with kafka-console-consumer's `--group`, the command is a member of the group and shares the topic's partitions with
the others; with `--partition` it is a simple consumer, which the group must have no members for. Offsets are committed
after the rows were printed, at most a second later. So a row is printed again if the command is killed in between, and
none is left out.
"""

from __future__ import annotations

import contextlib
import io
import select
import sys
from time import monotonic
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec
import numpy as np

from pyspark_log.cli import output
from pyspark_log.clients.consumer import Consumer
from pyspark_log.clients.consumer_group import ConsumerRebalanceListener
from pyspark_log.clients.records import TopicPartition
from pyspark_log.reading.fetch import BATCH_ROWS
from pyspark_log_storage.errors import MemberError, RebalanceInProgress

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_log.clients.records import ConsumerBatch
    from pyspark_log_storage.columns.keys import Offsets

COMMIT_SECONDS = 1.0
POLL_MS = 100

Reset = Literal["earliest", "latest"]


class Wanted(msgspec.Struct, frozen=True):
    """What to print."""

    topic: str
    group: str | None
    partitions: tuple[int, ...] | None
    """Partitions to read, or None: all, or those that the group assigns."""
    begins: dict[int, int] | None
    """Where to begin without a group."""
    ends: dict[int, int] | None
    """Offsets at which to end, or None: never."""
    reset: Reset
    """Where to begin a partition for which the group has committed no offset."""
    rack: str
    rows_max: int | None


class Write(Protocol):
    """Writes stored rows of a partition, which have these offsets."""

    def __call__(self, record: pa.RecordBatch, topic: str, partition: int, offset: Offsets) -> None:
        """Write the rows."""


def follow_topic(path: str, wanted: Wanted, write: Write) -> None:
    """Print rows until the end, and commit those that were printed to the group. Raises `LogError`.

    Raises `BrokenPipeError` if nobody reads what is printed.
    """
    options = {"auto.offset.reset": wanted.reset, "client.id": "pyspark-log"}
    options |= {"client.rack": wanted.rack} if wanted.rack else {}
    options |= {} if wanted.group is None else {"group.id": wanted.group}
    with Consumer(path, options) as consumer:
        printed = _Printed(consumer, wanted)
        if wanted.begins is not None:
            consumer.assign(begins := {TopicPartition(wanted.topic, n): at for n, at in wanted.begins.items()}, begins)
        elif wanted.partitions is None:
            consumer.subscribe([wanted.topic], listener=printed)
        else:
            consumer.assign([(wanted.topic, number) for number in wanted.partitions])
        try:
            _print_all(consumer, wanted, write, printed)
        except KeyboardInterrupt:
            printed.commit()
            raise
        except BaseException:
            printed.clear()  # whoever reads the output may have missed it
            raise
        printed.commit()


def _print_all(consumer: Consumer, wanted: Wanted, write: Write, printed: _Printed) -> None:
    left = wanted.rows_max
    while left != 0 and not _is_at_end(consumer, wanted):
        batches = consumer.poll_batches(POLL_MS)
        for batch in batches:
            rows = batch.rows.num_rows if left is None else min(batch.rows.num_rows, left)
            _print(batch, rows, write, printed)
            left = None if left is None else left - rows
        if not batches:
            printed.add_positions()
            _add_partitions(consumer, wanted)
        if not batches or printed.is_due:
            printed.commit()
        _check_reader()
    if left != 0:
        printed.add_positions()


def _add_partitions(consumer: Consumer, wanted: Wanted) -> None:
    """Also read the partitions that the topic has got since the start, from their first rows on."""
    if wanted.begins is None or wanted.partitions is not None:
        return
    added = set(consumer.partitions(wanted.topic)) - consumer.assignment()
    if added:
        consumer.assign(consumer.assignment() | added, dict.fromkeys(added, 0))


def _print(batch: ConsumerBatch, rows: int, write: Write, printed: _Printed) -> None:
    key = TopicPartition(batch.topic, batch.partition)
    printed.add(key, batch.offset)
    dense = np.arange(batch.offset, batch.offset + batch.rows.num_rows)
    offsets = dense if batch.offsets is None else batch.offsets.to_numpy()
    for first in range(0, rows, BATCH_ROWS):
        end = min(first + BATCH_ROWS, rows)
        write(batch.rows.slice(first, end - first), batch.topic, batch.partition, offsets[first:end])
        printed.add(key, int(offsets[end - 1]) + 1)


def _is_at_end(consumer: Consumer, wanted: Wanted) -> bool:
    """Return whether everything that existed at the start was read. A member reads what it is assigned, if anything."""
    ends, assigned = wanted.ends, consumer.assignment()
    if ends is None or not (assigned or consumer.caught_up()):
        return False
    return all(consumer.position(each) >= ends.get(each.partition, 0) for each in assigned)


def _check_reader() -> None:
    """Raise `BrokenPipeError` if the reader of stdout has closed the pipe."""
    with contextlib.suppress(io.UnsupportedOperation):  # stdout is not a file
        watch = select.poll()
        watch.register(sys.stdout.fileno(), 0)  # errors are always reported
        if watch.poll(0):
            raise BrokenPipeError


class _Printed(ConsumerRebalanceListener):
    """What was printed and is not committed yet."""

    def __init__(self, consumer: Consumer, wanted: Wanted) -> None:
        self._consumer = consumer
        self._has_group = wanted.group is not None
        self._is_member = self._has_group and wanted.partitions is None
        self._next: dict[TopicPartition, int] = {}
        self._begun: set[TopicPartition] = set()
        """Partitions of which something is committed, or about to be."""
        self._committed = monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the last commit was so long ago that the next one is due."""
        return monotonic() - self._committed >= COMMIT_SECONDS

    def add(self, key: TopicPartition, offset: int) -> None:
        """Note that the rows before `offset` were printed."""
        self._next[key] = offset
        self._begun.add(key)

    def add_positions(self) -> None:
        """Note where partitions without a returned row begin: the group continues there, whatever `--from` says."""
        for key in self._consumer.assignment() - self._begun:
            self.add(key, self._consumer.position(key))

    def commit(self) -> None:
        """Commit what was printed. A member that was removed says on stderr what is printed again."""
        self._committed = monotonic()
        if not (self._next and self._has_group):
            return
        try:
            self._consumer.commit(self._next)
        except RebalanceInProgress:
            return  # the next commit has these rows too
        except MemberError as error:
            if not self._is_member:
                raise
            output.print_error(f"{error.message}; rows that were printed since the last commit will be printed again")
        self.clear()

    def clear(self) -> None:
        """Forget what was printed: it is printed again, or committed."""
        self._next = {}

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """Commit what was printed of partitions that another member gets."""
        self.commit()
        self.on_partitions_lost(revoked)

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        """Forget what was printed of partitions that another member may have: it prints those rows again."""
        for key in lost:
            self._next.pop(key, None)
            self._begun.discard(key)
