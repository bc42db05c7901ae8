"""The positions that users give (earliest, latest, offsets, times), resolved to offsets of partitions.

Rules and precedence are those of Spark's Kafka source (KafkaOffsetReader, KafkaSourceProvider). A position whose rows
are lost is an error, or a warning if failOnDataLoss=false.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyspark_log.options.position import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    CommittedOffsets,
    Earliest,
    GlobalTimestamp,
    Latest,
    NoMatch,
    SpecificOffsets,
    Timestamps,
)
from pyspark_log.options.subscription import Assign, SubscribePattern
from pyspark_log.reading.failover import Failover
from pyspark_log.reading.fetch import ChunkPlace, place_in_segment, read_one
from pyspark_log.reading.planning import read_replicas
from pyspark_log_storage import logs
from pyspark_log_storage.errors import DataLoss, InvalidInput, UnknownTopic
from pyspark_log_storage.files import index

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark_log.options.position import Position
    from pyspark_log.options.subscription import Subscription
    from pyspark_log.reading.failover import ReadReplica
    from pyspark_log_coordinator.cluster.nodes import Node
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import Partition

US_PER_MS = 1000


@dataclass(frozen=True)
class Subscribed:
    """The partitions that a subscription names now, ascending by topic, and the topics' handles."""

    handles: Mapping[str, TopicHandle]
    partitions: Mapping[str, tuple[int, ...]]
    rack: str = ""
    """The reader's."""

    def topic_partitions(self) -> list[tuple[str, int]]:
        return [(topic, p) for topic in sorted(self.partitions) for p in self.partitions[topic]]

    def partition(self, topic: str, number: int) -> Partition:
        return self.handles[topic].partitions[number]


def subscribed(
    log: Log, subscription: Subscription, *, missing_is_error: bool, rack: str = "", polls: bool = False
) -> Subscribed:
    """Return the partitions that a subscription names, refreshed, of a log that was just opened.

    `polls` as for `Log.topic`.

    Raises `UnknownTopic` for a named topic that does not exist, and warns of a pattern that matches no topic; with
    `missing_is_error` false, skips it. Raises `InvalidInput` for an assigned partition that does not exist.
    """
    names = subscription.names(log.topics)
    if isinstance(subscription, SubscribePattern) and not names and missing_is_error:
        _warn_of_no_match(subscription, tuple(log.known_topics))
    handles = {}
    for name in names:
        try:
            handles[name] = log.topic(name, polls=polls)
        except UnknownTopic:
            # A topic that matched the pattern may be deleted by now.
            if missing_is_error and not isinstance(subscription, SubscribePattern):
                raise
    partitions = {}
    for name, handle in handles.items():
        count = len(handle.partitions)
        chosen = subscription.partitions[name] if isinstance(subscription, Assign) else tuple(range(count))
        if chosen[-1] >= count:
            raise InvalidInput(
                f"option assign names partition {chosen[-1]} of topic {name!r}, which has {count}, numbered from 0; "
                "assign partitions that exist"
            )
        partitions[name] = chosen
    return Subscribed(handles, partitions, rack)


@functools.lru_cache(maxsize=16)  # once for the same topics
def _warn_of_no_match(subscription: SubscribePattern, existing: tuple[str, ...]) -> None:
    near = subscription.near(existing)
    logs.warning(
        "no topic matches subscribePattern %(pattern)r, which must match a whole name; %(hint)s",
        pattern=subscription.pattern,
        hint=f"did you mean {', '.join(near)}?" if near else f"the topics are: {', '.join(existing[:10]) or 'none'}",
    )


def resolve(
    now: Subscribed, wish: Position, no_match: NoMatch, *, ending: bool, fail_on_data_loss: bool = True
) -> dict[tuple[str, int], int]:
    """Return the offset of each subscribed partition that a position means.

    Committed offsets mean the end, where a partition without one begins. An ending time that no row has reached means
    the end; a starting one is an error or the end, depending on `no_match`.

    Raises `InvalidInput` if the position does not name exactly the subscribed partitions, `DataLoss` for an offset
    outside the log; with `fail_on_data_loss` false, takes the nearest offset in the log.
    """
    keys = now.topic_partitions()
    option = "endingOffsets" if ending else "startingOffsets"
    match wish:
        case Earliest():
            return {key: now.partition(*key).log_start for key in keys}
        case Latest() | CommittedOffsets():
            return {key: now.partition(*key).high_watermark for key in keys}
        case GlobalTimestamp(ms):
            return {key: _at_time(now, key, ms, no_match, ending=ending) for key in keys}
        case Timestamps(times):
            _check_names(now, times, f"option {option}ByTimestamp: give a time")
            return {key: _at_time(now, key, times[key[0]][key[1]], no_match, ending=ending) for key in keys}
        case SpecificOffsets():
            offsets = _expanded(now, wish, option)
            _check_names(now, offsets, f"option {option}: give an offset")
            return {
                key: _at_offset(now, key, offsets[key[0]][key[1]], fail_on_data_loss=fail_on_data_loss) for key in keys
            }


def _expanded(now: Subscribed, wish: SpecificOffsets, option: str) -> dict[str, dict[int, int]]:
    """Return the offsets, with each topic-wide offset expanded to the topic's subscribed partitions.

    Raises `InvalidInput` for a topic-wide offset of a topic that is not subscribed.
    """
    if absent := sorted(wish.whole_topics.keys() - now.partitions.keys()):
        subscribed_now = ", ".join(sorted(now.partitions)) or "none"
        raise InvalidInput(
            f"option {option} names topic {absent[0]!r}, which is not subscribed (subscribed: {subscribed_now});"
            " remove it, or subscribe to the topic"
        )
    whole = {topic: dict.fromkeys(now.partitions[topic], offset) for topic, offset in wish.whole_topics.items()}
    return wish.offsets | whole


def _check_names(now: Subscribed, wished: Mapping[str, Mapping[int, int]], advice: str) -> None:
    named = {(topic, p) for topic, partitions in wished.items() for p in partitions}
    there = set(now.topic_partitions())
    if named != there:
        missing, extra = sorted(there - named), sorted(named - there)
        shown = [f"{topic}-{p} has none" for topic, p in missing[:3]] + [
            f"{topic}-{p} is not subscribed" for topic, p in extra[:3]
        ]
        raise InvalidInput(f"{advice} for every subscribed partition and for no other: {', '.join(shown)}")


def _at_offset(now: Subscribed, key: tuple[str, int], offset: int, *, fail_on_data_loss: bool) -> int:
    partition = now.partition(*key)
    low, high = partition.log_start, partition.high_watermark
    if offset == EARLIEST_OFFSET:
        return low
    if offset == LATEST_OFFSET:
        return high
    nearest = min(max(offset, low), high)
    if nearest != offset:
        what = (
            f"topic {key[0]!r}, partition {key[1]} has no offset {offset}: its offsets are {low} to {high}, "
            f"where {high} is the next row's"
        )
        if fail_on_data_loss:
            raise DataLoss(f"{what}; choose one of these, or set failOnDataLoss=false to take the nearest")
        warn_of_loss(f"{what}; using {nearest} instead")
    return nearest


def _at_time(now: Subscribed, key: tuple[str, int], ms: int, no_match: NoMatch, *, ending: bool) -> int:
    partition = now.partition(*key)
    found = offset_for_time(now.handles[key[0]], key[1], ms, now.rack)
    if found is None and not ending and no_match is NoMatch.ERROR:
        wrong = f"no row at or after {ms} ms; choose an earlier time, or set"
        if partition.log_start == partition.high_watermark:
            wrong = "no row; set"
        strategy = "startingOffsetsByTimestampStrategy=latest"
        raise InvalidInput(f"topic {key[0]!r}, partition {key[1]} has {wrong} {strategy}")
    return partition.high_watermark if found is None else found


def offset_for_time(handle: TopicHandle, number: int, ms: int, rack: str = "") -> int | None:
    """Return the offset of the first row below the HW whose timestamp is `ms` or later (Kafka's offsetsForTimes)."""
    partition = handle.partitions[number]
    failover = Failover(handle.log.store_at, handle.name, number)
    nodes = handle.log.nearest_first(rack=rack, leader=partition.leader)
    for place, holders in _places_reaching(failover, nodes, handle, number, ms * US_PER_MS):
        if place.end_offset <= partition.log_start:
            continue
        record = read_one(failover, holders, place, handle.schemas)
        times = np.asarray(record.column("timestamp").cast(pa.int64()))
        offsets = record.column("offset") if place.span else np.arange(place.base_offset, place.end_offset)
        # The chunk at the log start may still have rows from before it.
        reaching = np.flatnonzero((times >= ms * US_PER_MS) & (np.asarray(offsets) >= partition.log_start))
        if len(reaching) > 0:
            offset = int(np.asarray(offsets)[reaching[0]])
            return offset if offset < partition.high_watermark else None
    return None


def _places_reaching(
    failover: Failover, nodes: Sequence[Node], handle: TopicHandle, number: int, timestamp: int
) -> Iterator[tuple[ChunkPlace, tuple[ReadReplica, ...]]]:
    """Yield, in order and lazily, the chunks with a row at or after `timestamp` (microseconds)."""
    state = handle.state
    partition = state.partitions[number]
    for rolled in partition.segments_reaching(timestamp):
        key = handle.segment(number, rolled.name)
        holders = read_replicas(state, nodes, rolled.holders)
        reaching = functools.partial(index.first_reaching, timestamp=timestamp)
        entry = failover.look_up(holders, rolled.base_offset, key, reaching)
        if entry is not None:
            yield place_in_segment(key, entry), holders
            start, end = entry.end_offset, rolled.end_offset
            later = failover.look_up(holders, start, key, functools.partial(index.between, start=start, end=end))
            yield from ((place_in_segment(key, each), holders) for each in later if each.max_timestamp >= timestamp)
    for chunk in partition.chunks_reaching(timestamp):
        file = state.file(chunk.file)
        place = ChunkPlace(handle.append_file(file.name), chunk.place(number), chunk.base_offset)
        yield place, read_replicas(state, nodes, file.holders)


def report_loss(what: str, *, fail: bool) -> None:
    """Raise `DataLoss`, or log a warning if `fail` is false."""
    if fail:
        raise DataLoss(
            f"{what}, so rows that this query has not read may be lost; set failOnDataLoss=false to continue with the "
            "rest"
        )
    warn_of_loss(what)


@functools.lru_cache(maxsize=1024)
def warn_of_loss(what: str) -> None:
    """Log a loss once: an idle query meets it many times a second."""
    logs.warning("%(what)s; continuing with the rest (failOnDataLoss=false)", what=what)
