"""The committed offsets of groups, copied from Kafka with the rows that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pyspark_log.kafka.export_plan import ExportedRows
from pyspark_log.kafka.offset_headers import offset_here
from pyspark_log_coordinator.group.offsets import Offset
from pyspark_log_storage.errors import InvalidInput, UnknownGroup

if TYPE_CHECKING:
    from pyspark_log.kafka.client import Kafka, KafkaTopic
    from pyspark_log_coordinator.group.state import CommittedOffset
    from pyspark_log_coordinator.log.log import Log, TopicHandle


class KafkaOffset(msgspec.Struct, frozen=True):
    """An offset that a group has committed in Kafka."""

    group: str
    partition: int
    offset: int
    metadata: str


class OwnOffset(msgspec.Struct, frozen=True):
    """An offset that a group has committed here."""

    group: str
    partition: int
    offset: int
    metadata: str


class CarriedOffset(msgspec.Struct, frozen=True):
    """The offsets of a group in Kafka and here. One of them was committed, and the group continues at the other."""

    group: str
    partition: int
    kafka: int
    offset: int


def committed(kafka: Kafka, topic: KafkaTopic, groups: Sequence[str] | None) -> list[KafkaOffset]:
    """Return what groups have committed of a topic in Kafka, by group and partition; `groups` None: all groups.

    Raises `InvalidInput` for a group without committed offsets of the topic, if it was named.
    """
    library, admin, seconds = kafka.library, kafka.admin, kafka.timeout_seconds
    found = []
    with kafka.errors():
        names = groups
        if names is None:
            listed = admin.list_consumer_groups(request_timeout=seconds).result(seconds)
            if listed.errors:
                raise library.KafkaException(listed.errors[0])
            names = sorted(each.group_id for each in listed.valid)
        for name in names:
            asked = library.ConsumerGroupTopicPartitions(name)
            answer = admin.list_consumer_group_offsets([asked], request_timeout=seconds)[name].result(seconds)
            kafka.raise_first(each for each in answer.topic_partitions if each.topic == topic.name)
            mine = [
                KafkaOffset(name, each.partition, each.offset, each.metadata or "")
                for each in answer.topic_partitions
                if each.topic == topic.name and each.offset >= 0
            ]
            if not mine and groups is not None:
                raise InvalidInput(f"group {name!r} has committed no offsets of topic {topic.name!r} in Kafka")
            found += sorted(mine, key=lambda each: each.partition)
    return found


def mapped(log: Log, handle: TopicHandle, offsets: Iterable[KafkaOffset]) -> list[CarriedOffset]:
    """Return where the groups continue here: at the first row with the committed offset or a higher one in Kafka."""
    handle.refresh()
    return [
        CarriedOffset(each.group, each.partition, each.offset, offset_here(log, handle, each.partition, each.offset))
        for each in offsets
    ]


def carry(log: Log, handle: TopicHandle, offsets: Sequence[KafkaOffset]) -> list[CarriedOffset]:
    """Let each group continue here where it stopped in Kafka, and return the offsets.

    Raises `GroupNotEmpty` for a group that has members here, unless these are Spark queries, which follow the reset.
    """
    carried = mapped(log, handle, offsets)
    new: dict[str, dict[int, Offset]] = {}
    for old, each in zip(offsets, carried, strict=True):
        epoch = handle.partitions[each.partition].leader_epoch
        new.setdefault(each.group, {})[each.partition] = Offset(each.offset, epoch, old.metadata)
    for name, of_group in new.items():
        group = log.group(name, create=True)
        state = group.state
        known = {number: state.committed(handle.topic_id, number) for number in of_group}
        changed = {number: each for number, each in of_group.items() if _differs(known[number], each)}
        if changed:
            group.reset_offsets({handle.topic_id: changed})
    return carried


def _differs(known: CommittedOffset | None, new: Offset) -> bool:
    return known is None or (known.offset, known.metadata) != (new.offset, new.metadata)


def committed_here(log: Log, handle: TopicHandle, groups: Sequence[str] | None) -> list[OwnOffset]:
    """Return what groups have committed of a topic here, by group and partition; `groups` None: all groups.

    Raises `UnknownGroup`, and `InvalidInput` for a group without committed offsets of the topic, if it was named.
    """
    found = []
    for name in sorted(log.groups()) if groups is None else groups:
        try:
            offsets = log.group(name).state.offsets.get(handle.topic_id, {})
        except UnknownGroup:  # it was deleted
            if groups is not None:
                raise
            continue
        if not offsets and groups is not None:
            raise InvalidInput(f"group {name!r} has committed no offsets of topic {handle.name!r}")
        found += [OwnOffset(name, number, each.offset, each.metadata) for number, each in sorted(offsets.items())]
    return found


def carry_to_kafka(kafka: Kafka, topic: KafkaTopic, offsets: Sequence[OwnOffset]) -> list[CarriedOffset]:
    """Let each group continue in Kafka at the row where it stopped here. Raises `LogError` for a group with members."""
    if not offsets:
        return []
    library, admin, seconds = kafka.library, kafka.admin, kafka.timeout_seconds
    with kafka.reading() as consumer:
        ranges = kafka.offsets(consumer, topic.name, topic.partitions)
        rows = ExportedRows(kafka, consumer, topic, ranges)
        carried = [
            CarriedOffset(each.group, each.partition, rows.first_at(each.partition, each.offset), each.offset)
            for each in offsets
        ]
    places: dict[str, list[Any]] = {}
    for own, each in zip(offsets, carried, strict=True):
        place = library.TopicPartition(topic.name, each.partition, each.kafka, metadata=own.metadata)
        places.setdefault(each.group, []).append(place)
    with kafka.errors():
        for name, of_group in places.items():
            wanted = library.ConsumerGroupTopicPartitions(name, of_group)
            done = admin.alter_consumer_group_offsets([wanted], request_timeout=seconds)[name].result(seconds)
            kafka.raise_first(done.topic_partitions)
    return carried
