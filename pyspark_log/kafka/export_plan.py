"""The plan of an export: from which offset on each partition is copied to Kafka.

Kafka assigns offsets itself, and the marker of each transaction takes one, so rows cannot keep theirs. Each has the
header `pyspark-log.offset` instead. So the last row of a partition in Kafka says where an export continues, and it was
written in the same transaction as the rows before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from pyspark_log.kafka.offset_headers import LOG_OFFSET, first_reaching, offset_in
from pyspark_log.reading.planning import next_row
from pyspark_log.writing.destination import is_typed
from pyspark_log_storage.errors import CorruptObject, DataLoss, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Consumer, Message

    from pyspark_log.kafka.client import Kafka, KafkaTopic, PartitionOffsets
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.topic_state import Topic

_US_PER_MS = 1000
_CREATE_TIME = 1
"""confluent_kafka.TIMESTAMP_CREATE_TIME: the time is that of the row."""
_BEHIND = 64
"""How many offsets before the end the last row is looked for first. Behind it are markers only."""


class PartitionExport(msgspec.Struct, frozen=True):
    """What is to be copied of one partition: rows `[next, end)`."""

    partition: int
    next: int
    end: int
    rows: int
    """The number of rows; at most, if it begins among rows that were compacted."""
    is_resumed: bool
    """Whether an earlier export has copied rows of the partition."""


def plan(
    state: Topic, starts: Sequence[int], kafka: Sequence[PartitionOffsets], last: Sequence[int | None]
) -> list[PartitionExport]:
    """Return what is to be copied of each partition. Pure.

    `starts` are the offsets from which partitions are copied that were never copied before, `kafka` is where partitions
    begin and end in Kafka, and `last` are the offsets here of the last rows there, None for a partition without rows.
    Raises `InvalidInput` if the rows cannot follow those that are there.
    """
    plans = []
    for number, partition in enumerate(state.partitions):
        where = f"topic {state.name!r}, partition {number}"
        there, copied = kafka[number], last[number]
        if copied is None and there.begin > 0:
            raise InvalidInput(
                f"{where}: Kafka's partition has no rows any more and begins at offset {there.begin}, so nobody knows "
                "what was exported; export to another topic with --to-topic"
            )
        following = starts[number] if copied is None else copied + 1
        if not partition.log_start <= following <= partition.high_watermark:
            raise InvalidInput(
                f"{where}: the next row to export has offset {following}, and the partition has the offsets from "
                f"{partition.log_start} to {partition.high_watermark}: rows have expired before they were exported, or "
                "the topic in Kafka is a copy of another one; export to another topic with --to-topic"
            )
        end = partition.high_watermark
        rows = partition.rows_between(following, end)
        plans.append(PartitionExport(number, following, end, rows, copied is not None))
    return plans


class ExportedRows:
    """The rows that an export has written to a topic in Kafka, as one consumer reads them."""

    def __init__(self, kafka: Kafka, consumer: Consumer, topic: KafkaTopic, ranges: Sequence[PartitionOffsets]) -> None:
        self._kafka = kafka
        self._consumer = consumer
        self._topic = topic
        self._ranges = ranges

    def last(self, handle: TopicHandle, number: int) -> int | None:
        """Return the offset here of the last row of a partition in Kafka, None if that has no rows.

        Raises `InvalidInput` if the row was not exported, or is not the row of the topic at this offset.
        """
        begin, end = self._ranges[number].begin, self._ranges[number].end
        behind = _BEHIND
        while begin < end:
            start = max(begin, end - behind)
            rows = self._read(number, start, None)
            if rows:
                found = _offset_here(rows[-1])
                if found is None:
                    raise InvalidInput(
                        f"topic {self._topic.name!r} in Kafka, partition {number}: the row at offset "
                        f"{rows[-1].offset()} was not exported; export to another topic with --to-topic"
                    )
                if not _is_there(handle, number, found, rows[-1]):
                    raise InvalidInput(
                        f"topic {handle.name!r}, partition {number}: the row at offset {found} is not the one that was "
                        "exported: the topic was deleted and created again, or an election has cut rows; export to "
                        "another topic with --to-topic"
                    )
                return found
            if start == begin:
                break
            behind *= 8
        return None

    def first_at(self, number: int, offset: int) -> int:
        """Return the offset in Kafka of the first row whose offset here is `offset` or higher, or the end."""
        begin, end = self._ranges[number].begin, self._ranges[number].end

        def here(at: int) -> int:
            rows = self._read(number, at, 1)
            found = _offset_here(rows[0]) if rows else None
            return offset if found is None else found

        return first_reaching(here, begin, end, offset)

    def _read(self, number: int, start: int, rows_max: int | None) -> list[Message]:
        """Return the rows of a partition from an offset in Kafka on, up to its end."""
        kafka, end = self._kafka, self._ranges[number].end
        found: list[Message] = []
        with kafka.errors():
            self._consumer.assign([kafka.library.TopicPartition(self._topic.name, number, start)])
        while rows_max is None or len(found) < rows_max:
            for each in kafka.receive(self._consumer, rows_max or 1000):
                at = each.offset() or 0
                if each.error() is None and at < end:
                    found.append(each)
                if at >= end - (each.error() is None):
                    return found
        return found


def _is_there(handle: TopicHandle, number: int, offset: int, message: Message) -> bool:
    """Return whether a message can be the row at an offset here: it is, or nobody knows, as none can be read."""
    partition = handle.partitions[number]
    if is_typed(handle) or not partition.log_start <= offset < partition.high_watermark:
        return True
    try:
        row = next_row(handle.log, handle, number, offset)
    except (CorruptObject, DataLoss):  # damaged, or expired meanwhile: the rows after it need not be
        return True
    if row is None or row[0] != offset:
        return True
    batch = row[1]
    kind, ms = message.timestamp()
    here = int(batch.column("timestamp").cast(pa.int64())[0].as_py()) // _US_PER_MS
    return (message.key(), message.value(), ms if kind == _CREATE_TIME else here) == (
        batch.column("key")[0].as_py(),
        batch.column("value")[0].as_py(),
        here,
    )


def _offset_here(message: Message) -> int | None:
    headers: Any = message.headers() or ()
    return offset_in(headers, LOG_OFFSET)
