"""First offsets: the rule by which the partitions of a new topic begin at other offsets than 0.

A copy of a topic keeps its rows' offsets only if it begins where the other one begins, whose oldest rows have expired.
A partition that has ever had a row keeps its offsets forever. Kafka has no such command: there, a partition begins at
another offset only after its rows were deleted.
"""

from __future__ import annotations

import msgspec

from pyspark_log_coordinator.model.topic_state import Topic, with_partitions
from pyspark_log_storage.errors import InvalidInput
from pyspark_log_storage.stored_fields import Count

FIRST_OFFSET_MAX = 2**61
"""Far below the limit of offsets, so that many rows can follow."""


class SetFirstOffsets(msgspec.Struct, frozen=True):
    """Let partitions, by number, begin at these offsets. They must never have had a row."""

    offsets: dict[int, int]


class FirstOffsetsSet(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The first rows of these partitions will have these offsets."""

    offsets: dict[Count, Count]


def decide(topic: Topic, command: SetFirstOffsets) -> list[FirstOffsetsSet]:
    """Return the event, none if the partitions begin there. Raise `InvalidInput` for one that has had rows."""
    changed = {}
    for number, offset in sorted(command.offsets.items()):
        partition = topic.partition(number)
        where = f"topic {topic.name!r}, partition {number}"
        if not 0 <= offset <= FIRST_OFFSET_MAX:
            raise InvalidInput(
                f"{where} cannot begin at offset {offset}; choose an offset from 0 to {FIRST_OFFSET_MAX}"
            )
        if partition.log_start == partition.log_end == offset:
            continue
        if partition.log_end > 0:
            raise InvalidInput(
                f"{where} cannot begin at offset {offset}: it ends at offset {partition.log_end}, and offsets are "
                "assigned once; create another topic"
            )
        changed[number] = offset
    return [FirstOffsetsSet(changed)] if changed else []


def evolve(topic: Topic, event: FirstOffsetsSet) -> Topic:
    """Return the topic whose partitions begin there. Each replica holds all of their rows: none."""
    begun = {}
    for number, offset in event.offsets.items():
        partition = topic.partitions[number]
        begun[number] = msgspec.structs.replace(
            partition,
            log_start=offset,
            log_end=offset,
            high_watermark=offset,
            log_end_offsets=dict.fromkeys(partition.replicas, offset),
            epoch_starts=((partition.epoch_starts[-1][0], offset),),
        )
    return with_partitions(topic, begun)
