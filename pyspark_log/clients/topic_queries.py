"""What can be read: topics, partitions, and the offsets at which they begin and end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_log.clients.arguments import partition_of
from pyspark_log.clients.records import OffsetAndTimestamp, TopicPartition
from pyspark_log.clients.row_output import first_timestamp_ms
from pyspark_log.reading.planning import Range, split_of
from pyspark_log.reading.positions import offset_for_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from pyspark_log.clients.looks import Looks
    from pyspark_log.options.consumer import ConsumerOptions
    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.model.partition import Partition


class TopicQueries:
    """The questions that a consumer answers without reading rows."""

    _log: Log
    _looks: Looks
    _options: ConsumerOptions

    def _alone(self) -> AbstractContextManager[None]:
        raise NotImplementedError

    def topics(self) -> set[str]:
        """Return the names of all topics."""
        with self._alone():
            return self._looks.topic_names()

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions. Raises `UnknownTopic`."""
        with self._alone():
            return set(range(len(self._looks.topic(topic).journal.state.partitions)))

    def partitions(self, *topics: str) -> list[TopicPartition]:
        """Return all partitions of some topics, for `assign`. Raises `UnknownTopic`."""
        return [
            TopicPartition(topic, number) for topic in topics for number in sorted(self.partitions_for_topic(topic))
        ]

    def beginning_offsets(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return self._offsets(partitions, lambda state: state.log_start)

    def end_offsets(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the end of each partition: its high watermark, the offset of the next row that can be read."""
        return self._offsets(partitions, lambda state: state.high_watermark)

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first row of each partition whose timestamp is the given one or later; None if there is none."""
        with self._alone():
            found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
            for given, ms in times_ms.items():
                key = partition_of(given)
                handle = self._looks.topic(key.topic)
                handle.journal.state.partition(key.partition)  # raises if there is no such partition
                offset = offset_for_time(handle, key.partition, ms, self._options.rack)
                found[key] = None
                if offset is not None:
                    split = split_of(handle, Range(*key, offset, offset + 1), self._options.rack)
                    found[key] = OffsetAndTimestamp(offset, first_timestamp_ms(self._log.store_at, split))
            return found

    def _offsets(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], which: Callable[[Partition], int]
    ) -> dict[TopicPartition, int]:
        with self._alone():
            keys = [partition_of(each) for each in partitions]
            handles = {topic: self._looks.topic(topic) for topic in {key.topic for key in keys}}
            return {key: which(handles[key.topic].journal.state.partition(key.partition)) for key in keys}
