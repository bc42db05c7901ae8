"""What a program does when its consumer gets partitions and gives them up."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_log.clients.records import TopicPartition


class ConsumerRebalanceListener:
    """Give an object of a subclass to `Consumer.subscribe`. The names and the meaning are those of Kafka's.

    `poll`, `unsubscribe` and `close` call the methods, in the thread that calls these (`async for`: in a thread of the
    loop's executor). They may use the consumer, but not `poll` and `unsubscribe`. If one raises an exception, the
    partitions change nevertheless, and the call in progress raises the exception afterwards.
    """

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """Begin with these partitions, in addition to those that the consumer has. There may be none.

        Positions are at the committed offsets; `seek` chooses others.
        """

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """Finish with these partitions: others get them next. `commit` still works."""

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        """Drop these partitions: others may have them already, so nothing can be committed.

        By default this calls `on_partitions_revoked`, as in Kafka.
        """
        self.on_partitions_revoked(lost)
