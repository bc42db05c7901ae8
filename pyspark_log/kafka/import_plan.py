"""The plan of an import: from which offset to which each partition is read, and where its rows go. Pure.

The log itself says how far an import got: each batch of a partition is sequenced under the name of one producer, and
its batch id is the next offset to read in Kafka. So rows and progress are one journal entry, and an import that was
killed continues after its last entry.

A partition here begins at the offset at which it is first read in Kafka, so rows keep their offsets until the first
gap. Kafka's offsets have gaps: transactions, compaction and retention leave them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log.kafka.client import KafkaTopic, PartitionOffsets
    from pyspark_log_coordinator.model.partition import Partition
    from pyspark_log_coordinator.model.topic_state import Topic


_PRODUCER = "kafka/"


class PartitionImport(msgspec.Struct, frozen=True):
    """What is to be read of one partition."""

    partition: int
    next: int
    """The first offset to read in Kafka."""
    end: int
    """The offset in Kafka after the last row to read."""
    offset: int
    """The offset that the first row gets here."""
    is_resumed: bool
    """Whether an earlier import has read rows of the partition."""

    @property
    def rows_max(self) -> int:
        """The number of rows, if there are no gaps."""
        return self.end - self.next


def producer_of(topic: KafkaTopic, number: int) -> str:
    """Return the name of the producer that writes the rows of a partition. It is another one for each incarnation."""
    return f"{_PRODUCER}{topic.cluster_id}/{topic.topic_id}/{number}"


def plan(
    topic: KafkaTopic,
    kafka: Sequence[PartitionOffsets],
    starts: Sequence[int],
    name: str,
    state: Topic | None,
    *,
    keeps_offsets: bool,
) -> list[PartitionImport]:
    """Return what is to be read of each partition, into the topic `name`, whose state is None if it does not exist.

    `starts` are the offsets from which partitions are read that were never read before: not those that had no rows when
    an import began. Raises `InvalidInput` if the rows cannot follow those that are there.
    """
    if state is not None and len(state.partitions) < topic.partitions:
        raise InvalidInput(
            f"topic {name!r} has {len(state.partitions)} partitions, and topic {topic.name!r} in Kafka has "
            f"{topic.partitions}; add some with: pyspark-log topics add-partitions {name} --partitions "
            f"{topic.partitions}"
        )
    has_begun = state is not None and _has_begun(topic, state)
    return [
        _plan_of(
            topic,
            number,
            kafka[number],
            starts[number],
            name,
            state,
            has_begun=has_begun,
            keeps_offsets=keeps_offsets,
        )
        for number in range(topic.partitions)
    ]


def _plan_of(  # noqa: PLR0913 -- the facts of two partitions
    topic: KafkaTopic,
    number: int,
    kafka: PartitionOffsets,
    start: int,
    name: str,
    state: Topic | None,
    *,
    has_begun: bool,
    keeps_offsets: bool,
) -> PartitionImport:
    partition = None if state is None else state.partitions[number]
    if state is None or partition is None or partition.log_end == 0:
        if has_begun:  # it had no rows then, so all of them have come since
            start = kafka.begin
        return PartitionImport(number, start, kafka.end, start, is_resumed=False)
    where = f"topic {name!r}, partition {number}"
    known = state.producers.get(producer_of(topic, number))
    following = partition.log_end if known is None else known.batch_id
    has = "has" if partition.log_start < partition.log_end else "had"
    if known is None and (has == "has" or not has_begun or _has_had_rows_of_another(state, number)):
        raise InvalidInput(
            f"{where} {has} rows that are not from topic {topic.name!r} (id {topic.topic_id}) of this Kafka cluster; "
            "import into another topic with --to-topic"
        )
    if known is not None and known.rows_lost:
        raise InvalidInput(
            f"{where}: an election has cut {known.rows_lost} imported rows; import into another topic with --to-topic"
        )
    if keeps_offsets:
        _check_kept(where, partition, following, kafka)
    if following > kafka.end:
        raise InvalidInput(
            f"{where}: Kafka's partition ends at offset {kafka.end}, but rows up to offset {following} are here: Kafka "
            "has lost rows; import into another topic with --to-topic"
        )
    return PartitionImport(number, max(following, kafka.begin), kafka.end, partition.log_end, known is not None)


def _has_begun(topic: KafkaTopic, state: Topic) -> bool:
    """Return whether an import from the topic in Kafka has let the partitions here begin, as far as the log tells."""
    if any(producer_of(topic, number) in state.producers for number in range(len(state.partitions))):
        return True
    never_had_a_batch = state.next_file == 0 and not state.restored
    return never_had_a_batch and any(each.log_end > 0 for each in state.partitions)


def _has_had_rows_of_another(state: Topic, number: int) -> bool:
    """Return whether rows of another topic in Kafka were imported. All may have expired; their offsets were its own."""
    return any(each.startswith(_PRODUCER) and each.endswith(f"/{number}") for each in state.producers)


def _check_kept(where: str, partition: Partition, following: int, kafka: PartitionOffsets) -> None:
    if partition.log_end != following:
        raise InvalidInput(
            f"{where} ends at offset {partition.log_end}, and the next row has offset {following} in Kafka: an earlier "
            "import mapped offsets, or somebody else has written rows; import with --offsets map, or into another "
            "topic with --to-topic"
        )
    if following < kafka.begin:
        raise gap(where, following, kafka.begin)


def gap(where: str, begin: int, end: int) -> InvalidInput:
    """Return the error of an import that keeps offsets and finds that Kafka has no rows `[begin, end)`."""
    return InvalidInput(
        f"{where}: Kafka has no row with offset {begin}, the next is {end}: transactions, compaction or retention have "
        "left a gap, and offsets here have none. The rows before it are imported; go on with --offsets map, which "
        "keeps the offset of each later row in its header kafka.offset"
    )
