"""The plan of a batch read: from options to splits. Every topic is read at one consistent version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log import opening
from pyspark_log.options.position import option_name
from pyspark_log.reading.planning import Range, compacted_since, splits
from pyspark_log.reading.positions import report_loss, resolve, subscribed
from pyspark_log_storage.errors import DataLoss, InvalidInput, InvalidOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log.options import SourceOptions
    from pyspark_log.reading.fetch import Split
    from pyspark_log.reading.positions import Subscribed
    from pyspark_log_coordinator.model.topic_state import Topic


def plan(options: SourceOptions) -> list[Split]:
    """Return the splits. Reads no rows, except to resolve a timestamp."""
    now, ranges = ranges_of(options)
    return splits(now.handles, ranges, options)


def ranges_of(options: SourceOptions) -> tuple[Subscribed, list[Range]]:
    """Return the topics at one version each, and the rows to read. Reads no rows, except to resolve a timestamp."""
    log = opening.open_log(options.path, options.storage_options)
    now = subscribed(log, options.subscription, missing_is_error=True, rack=options.client_rack)
    for topic, handle in now.handles.items():
        if options.topic_ids.get(topic, handle.topic_id) != handle.topic_id:
            raise DataLoss(f"topic {topic!r} was deleted and created again since this frame was made; make another one")
    fail = options.fail_on_data_loss
    # Must come first: it refreshes the state that the rest of the plan uses.
    version = None if options.version_as_of is None else _version(now, options.version_as_of)
    start = resolve(now, options.starting, options.starting_no_match, ending=False, fail_on_data_loss=fail)
    end = resolve(now, options.ending, options.starting_no_match, ending=True, fail_on_data_loss=fail)
    _check_order(options, start, end)
    if version is not None:
        end = _as_of(now, start, end, version, fail_on_data_loss=fail)
    # A version may end before the start, and then it has none of the rows.
    ranges = [Range(*key, start[key], max(start[key], end[key])) for key in now.topic_partitions()]
    _check_compactions(options, now, ranges)
    return now, ranges


def _check_compactions(options: SourceOptions, now: Subscribed, ranges: Sequence[Range]) -> None:
    """Raise `DataLoss` if rows were compacted since the frame was made that the read is a part of."""
    for each in ranges:
        then = options.compactions.get(each.topic)
        if then is None:
            continue
        if what := compacted_since(now.handles[each.topic], each, then.get(each.partition, 0)):
            report_loss(f"{what} since this frame was made; make another one", fail=options.fail_on_data_loss)


def _check_order(options: SourceOptions, start: dict[tuple[str, int], int], end: dict[tuple[str, int], int]) -> None:
    """Raise `InvalidOption` if a partition starts after its end."""
    for (topic, p), first in start.items():
        last = end[topic, p]
        if first > last:
            start_name, end_name = option_name("starting", options.starting), option_name("ending", options.ending)
            raise InvalidOption(
                end_name,
                f"topic {topic!r}, partition {p}: {end_name} is at offset {last}, which is before {start_name},"
                f" at offset {first}; set an end that is not before the start",
            )


def _version(now: Subscribed, version: int) -> Topic:
    """Return a version of the one subscribed topic, and refresh the topic.

    Raises `InvalidInput` for several topics, `UnknownVersion` for a version that is not kept.
    """
    if len(now.handles) != 1:
        raise InvalidInput(f"versionAsOf is a version of one topic, and {len(now.handles)} are subscribed; read one")
    (handle,) = now.handles.values()
    return handle.state_at(version)


def _as_of(
    now: Subscribed,
    start: dict[tuple[str, int], int],
    end: dict[tuple[str, int], int],
    version: Topic,
    *,
    fail_on_data_loss: bool,
) -> dict[tuple[str, int], int]:
    """Return the ends, cut to those of a version of the topic."""
    found = {}
    for (topic, p), at in end.items():
        if p >= len(version.partitions):
            found[topic, p] = 0
            continue
        partition, then = now.partition(topic, p), version.partitions[p]
        last, kept = then.high_watermark, partition.end_of_epoch(then.leader_epoch)
        where = f"topic {topic!r}, partition {p}:"
        if last > kept:
            what = f"{where} rows of the version from offset {kept} on were cut by an unclean election"
            report_loss(what, fail=fail_on_data_loss)
        if then.log_start < last <= partition.log_start:
            report_loss(f"{where} all rows of the version have expired", fail=fail_on_data_loss)
        if start[topic, p] < min(at, last) and last < partition.compacted_end and partition.keyed_segments:
            compacted = f"the rows up to offset {partition.compacted_end - 1} have been compacted"
            report_loss(f"{where} {compacted}, and the version ends at {last}", fail=fail_on_data_loss)
        found[topic, p] = min(at, last, kept)
    return found
