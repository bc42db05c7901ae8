"""What operators do with groups: show their lag, and set the offsets at which they continue.

The positions of `reset-offsets` are those of `kafka-consumer-groups`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from pyspark_log.reading.positions import offset_for_time
from pyspark_log.reading.rows import first_row
from pyspark_log_coordinator.group.offsets import Offset
from pyspark_log_storage.errors import InvalidInput, UnknownGroup, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark_log_coordinator.group.state import CommittedOffset, Group
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import Partition

LATEST = 2**63 - 1


class PartitionLag(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    committed: int
    log_start: int
    latest: int
    committed_ms: int
    """When it was committed."""
    lag: int
    """The number of rows that have not been read, and not of offsets: those that expired or were compacted do not
    count."""
    unread: int
    """The first of them, or the end: after an unclean election, rows below `committed` may have taken others' place."""

    @property
    def beyond(self) -> int:
        """How far the committed offset is above the end: the log has lost rows after the group had read them."""
        return max(0, self.committed - self.latest)


def lag_in(topic: str, number: int, partition: Partition, at: CommittedOffset) -> PartitionLag:
    low, high = partition.log_start, partition.high_watermark
    unread = max(low, min(at.offset, partition.end_of_epoch(at.epoch_or(partition.leader_epoch))))
    lag = partition.rows_between(unread, high)
    return PartitionLag(topic, number, at.offset, low, high, at.at_ms, lag, unread)


def lags(log: Log, group: Group) -> list[PartitionLag]:
    """Return `lags_in` the newest state of the topics. Leaves out those that were deleted."""
    topics = {}
    for name, record in log.topics().items():
        if record.topic_id in group.offsets:
            with contextlib.suppress(UnknownTopic):  # its deletion was interrupted, or came meanwhile
                topics[record.topic_id] = name, log.topic(name).partitions
    return lags_in(group, topics)


def lags_in(group: Group, topics: Mapping[str, tuple[str, Sequence[Partition]]]) -> list[PartitionLag]:
    """Return how far a group is in the partitions with committed offsets, by topic and number; `topics` are by id."""
    found = []
    for topic_id, offsets in group.offsets.items():
        name, partitions = topics.get(topic_id, ("", ()))
        found += [lag_in(name, n, partitions[n], at) for n, at in offsets.items() if n < len(partitions)]
    return sorted(found, key=lambda each: (each.topic, each.partition))


def oldest_unread_ms(log: Log, behind: PartitionLag) -> int | None:
    """Return the timestamp of the first row that the group has not read, None if it has read all. Reads that row."""
    if behind.lag == 0:
        return None
    handle = log.topic(behind.topic, recent_suffices=True)  # the lag was found a moment ago
    found = first_row(handle, behind.partition, behind.unread)
    return None if found is None else found[1]


def reset(log: Log, group_id: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Let the group continue at these offsets, by topic and partition. Raises `GroupNotEmpty`, `UnknownTopic`.

    Streaming queries follow it while they run.
    """
    group = log.group(group_id, create=True)
    group.reset_offsets(_new_offsets(log, offsets))


def check_reset(log: Log, group_id: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Raise what `reset` would raise, and change nothing."""
    with contextlib.suppress(UnknownGroup):
        log.group(group_id).check_reset(_new_offsets(log, offsets), log.clock.now_ms())


def reset_to(
    log: Log,
    partitions: Sequence[tuple[str, int]],
    committed: Mapping[tuple[str, int], int],
    *,
    offset: int = 0,
    ms: int | None = None,
    shift: int | None = None,
) -> dict[tuple[str, int], int]:
    """Return the offsets of a reset, within the log.

    They are `shift` rows after the committed ones, at the first row at or after a time (`ms`), or at `offset`.
    Raises `InvalidInput` if there is nothing to shift, and what `within_log` raises.
    """
    if shift is not None:
        if missing := [f"{topic}:{number}" for topic, number in partitions if (topic, number) not in committed]:
            names = ", ".join(missing)
            raise InvalidInput(f"the group has no committed offset of {names}; choose another position for it")
        return within_log(log, {key: committed[key] + shift for key in partitions})
    offsets: dict[tuple[str, int], int] = dict.fromkeys(partitions, offset)
    if ms is not None:
        handles = _handles(log, partitions)
        for topic, number in partitions:
            at = offset_for_time(handles[topic], number, ms)
            offsets[topic, number] = LATEST if at is None else at
    return within_log(log, offsets)


def _new_offsets(log: Log, offsets: Mapping[tuple[str, int], int]) -> dict[str, dict[int, Offset]]:
    new: dict[str, dict[int, Offset]] = {}
    handles = _handles(log, offsets)
    for (topic, number), offset in offsets.items():
        handle = handles[topic]
        epoch = handle.partitions[number].leader_epoch
        new.setdefault(handle.topic_id, {})[number] = Offset(offset, epoch)
    return new


def _handles(log: Log, keys: Iterable[tuple[str, int]]) -> dict[str, TopicHandle]:
    """Return the topics of partitions, each refreshed once. Raises `UnknownTopic`."""
    return {topic: log.topic(topic) for topic in dict.fromkeys(topic for topic, _ in keys)}


def within_log(log: Log, offsets: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """Return the offsets, sorted, each outside the log replaced by the nearest one in it, as Kafka's tool does.

    Raises `UnknownTopic`, and `InvalidInput` for a partition that does not exist.
    """
    found = {}
    handles = _handles(log, sorted(offsets))
    for (topic, number), offset in sorted(offsets.items()):
        partition = handles[topic].partition(number)
        found[topic, number] = min(max(offset, partition.log_start), partition.high_watermark)
    return found
