"""Where a consumer reads next: positions, seeks, and partitions that are left out for a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log.clients.arguments import offset_of, partition_of
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from pyspark_log.clients.assigned import AssignedPartition
    from pyspark_log.clients.reading import Reading
    from pyspark_log.clients.records import TopicPartition
    from pyspark_log_coordinator.model.partition import Partition


class Positions:
    """The positions of a consumer in its assigned partitions."""

    _reading: Reading

    def _alone(self) -> AbstractContextManager[None]:
        raise NotImplementedError

    def seek(self, partition: TopicPartition | tuple[str, int], offset: int) -> None:
        """Read a partition from `offset` next.

        If the log does not have that offset when the partition is read, `auto.offset.reset` decides.
        """
        with self._alone():
            self._reading.hand_back()
            self._of(partition).seek(offset_of(offset))

    def seek_to_beginning(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Read partitions, by default all that are assigned, from their first row."""
        self._seek_to(partitions, lambda state: state.log_start)

    def seek_to_end(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Read only rows that are new from now on, of some or all assigned partitions."""
        self._seek_to(partitions, lambda state: state.high_watermark)

    def position(self, partition: TopicPartition | tuple[str, int]) -> int:
        """Return the offset of the next row of a partition.

        In an iteration that is the row after the one that was returned last. Raises as `poll`.
        """
        with self._alone():
            found = self._of(partition)
            first = self._reading.next_returned(found.key)
            return found.position() if first is None else first

    def pause(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Return no rows of these partitions until `resume`."""
        with self._alone():
            self._reading.hand_back()
            for each in partitions:
                self._of(each).is_paused = True

    def resume(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Return rows of these partitions again."""
        with self._alone():
            for each in partitions:
                self._of(each).is_paused = False

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return {key for key, each in self._reading.partitions.items() if each.is_paused}

    def _of(self, partition: TopicPartition | tuple[str, int]) -> AssignedPartition:
        key = partition_of(partition)
        found = self._reading.partitions.get(key)
        if found is None:
            raise InvalidInput(f"topic {key.topic!r}, partition {key.partition} is not assigned; assign it first")
        return found

    def _seek_to(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], where: Callable[[Partition], int]
    ) -> None:
        with self._alone():
            self._reading.hand_back()
            chosen = [self._of(each) for each in partitions] or list(self._reading.partitions.values())
            for handle in {each.handle.topic_id: each.handle for each in chosen}.values():
                handle.refresh()
            for each in chosen:
                each.seek(where(each.state))
