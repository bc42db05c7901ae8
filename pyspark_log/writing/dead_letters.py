"""Dead letters: rows that cannot be written, as rows of another topic, with the reason in their headers.

A filter before staging. A batch that is refused is halved, and so are its halves, until a row alone is refused: so
whatever raises an error without a dead letter topic is the reason of a letter with one.

A dead letter has the row's key, value, headers and timestamp; the present time if its topic refuses that one. Four
headers follow, which are those of Kafka Connect's dead letter queue (KIP-298) with another prefix:

    __dlq.errors.topic                     the topic of the row; null if the row names none
    __dlq.errors.partition                 the partition that the row names, as text; null if it names none
    __dlq.errors.exception.class.name      the error without a dead letter topic, such as InvalidRecord
    __dlq.errors.exception.message         what is wrong with the row, and what to do

That of a typed topic has no columns: its value is the row as JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.writing.destination import check, check_kind
from pyspark_log.writing.rows import Rows, binary, timestamps_of
from pyspark_log_coordinator.model import timestamps
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import InvalidName, InvalidRecord, LogError, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark_log.writing.destination import Destination
    from pyspark_log.writing.staging import RetryingStaging
    from pyspark_log.writing.typed_rows import TypedPlan

HEADERS = tuple(f"__dlq.errors.{name}" for name in ("topic", "partition", "exception.class.name", "exception.message"))
_BINARY_HEADERS = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))


class DeadLetters:
    """Separates the rows of a task that cannot be written from the others, and stages them as dead letters."""

    def __init__(
        self,
        rows_of: Callable[[pa.RecordBatch], Rows],
        destination: Callable[[str], Destination],
        topic: str | None,
        plan: TypedPlan | None,
        dead_letter_topic: str,
        staging: RetryingStaging,
    ) -> None:
        """`rows_of` raises `InvalidRecord`. `topic` None: each row names its own. `plan` is that of a typed topic."""
        self._dead_letter_topic = dead_letter_topic
        self._rows_of = rows_of
        self._destination = destination
        self._topic = topic
        self._plan = plan
        self.staging = staging
        """That of the dead letter topic."""
        self._known: dict[str, Destination | LogError] = {}
        self.count = 0

    def passed(self, batch: pa.RecordBatch, now_us: int) -> Iterator[Rows]:
        """Yield those rows of a batch that can be written, after the others have been staged as letters."""
        refused: dict[int, LogError] = {}
        passed = list(self._halved(batch, 0, refused))
        if refused:
            self.count += len(refused)
            self.staging.add(Rows(self._letters(batch.take(pa.array(refused)), refused, now_us), None, None))
        yield from passed

    def _halved(self, batch: pa.RecordBatch, first: int, refused: dict[int, LogError]) -> Iterator[Rows]:
        """Yield the rows that can be written, and note why the others cannot; the first row has number `first`."""
        if self._topic is not None:
            self._find(self._topic)  # if this raises, no row is to blame
        try:
            yield self._checked(batch)
        except (InvalidName, InvalidRecord, UnknownTopic) as error:
            if batch.num_rows == 1:
                refused[first] = error
                return
            half = batch.num_rows // 2
            for at, part in ((0, batch.slice(0, half)), (half, batch.slice(half))):
                alone = [pa.concat_arrays([column]) for column in part.columns]  # Arrow validates all that a slice has
                yield from self._halved(pa.RecordBatch.from_arrays(alone, schema=batch.schema), first + at, refused)

    def _checked(self, batch: pa.RecordBatch) -> Rows:
        rows = self._rows_of(batch)
        if self._topic is not None:
            check(self._find(self._topic), rows)
            return rows
        assert rows.topic is not None
        for name in rows.topic.unique().to_pylist():
            of_topic = rows.filter(pc.equal(rows.topic, name))
            check_kind(self._find(name), of_topic)
            check(self._find(name), of_topic)
        return rows

    def _find(self, topic: str) -> Destination:
        """Return the destination of a topic, which is looked up once, also if there is none."""
        if topic not in self._known:
            try:
                self._known[topic] = self._destination(topic)
            except (InvalidName, UnknownTopic) as error:
                self._known[topic] = error
        found = self._known[topic]
        if isinstance(found, LogError):
            raise found
        return found

    def _letters(self, batch: pa.RecordBatch, refused: Mapping[int, LogError], now_us: int) -> pa.RecordBatch:
        columns = {name: batch.column(place) for place, name in enumerate(batch.schema.names)}
        rows = batch.num_rows
        if self._plan is None:
            keys, values = binary(columns.get("key"), rows), binary(columns["value"], rows)
            headers = columns.get("headers", pa.nulls(rows, _BINARY_HEADERS)).cast(_BINARY_HEADERS).to_pylist()
        else:
            from pyspark_log.writing import typed_rows

            keys, values = typed_rows.as_json(batch, self._plan)
            headers = [None] * rows
        named = binary(pa.repeat(self._topic, rows) if self._topic is not None else columns["topic"], rows).to_pylist()
        partitions = columns.get("partition", pa.nulls(rows)).to_pylist()
        all_headers = []
        for own, topic, partition, error in zip(headers, named, partitions, refused.values(), strict=True):
            number = None if partition is None else str(partition).encode()
            reason = (topic, number, type(error).__name__.encode(), error.message.encode())
            added = [{"key": key, "value": value} for key, value in zip(HEADERS, reason, strict=True)]
            all_headers.append([*_own(own), *added])
        times = timestamps_of(columns.get("timestamp"), rows, now_us)
        lowest, highest = timestamps.bounds(self._find(self._dead_letter_topic).config, now_us // 1000)
        numbers = times.cast(pa.int64())
        is_wrong = pc.or_(pc.less(numbers, lowest), pc.greater(numbers, highest))
        times = pc.if_else(is_wrong, pa.scalar(now_us, schema.TIMESTAMP), times)
        made = [keys, values, times, pa.array(all_headers, schema.HEADERS)]
        return pa.RecordBatch.from_arrays(made, schema=schema.RECORD_WITH_HEADERS)


def _own(headers: list[dict[str, Any] | None] | None) -> list[dict[str, Any]]:
    """Return a row's own headers: without null ones, and with keys that are text in UTF-8."""
    return [
        {**each, "key": (each["key"] or b"").decode(errors="replace")} for each in headers or () if each is not None
    ]
