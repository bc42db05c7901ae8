"""The rows of a topic between two positions as a batch frame: of its archive, of Parquet segments, and of the log.

    rows before the seam     are read from the archive's table: those that its properties name
    rows from the seam on    are read from the log

Each row is on one side of the seam, so none is missing or duplicated, whatever is archived or deleted meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from pyspark_log.history.archive import check_topic
from pyspark_log.history.archive_table import ArchiveTable
from pyspark_log.opening import open_log
from pyspark_log.options import parse_source
from pyspark_log.options.bounds import ms_of, options_between, without_bounds
from pyspark_log.options.subscription import Assign
from pyspark_log.reading.positions import offset_for_time
from pyspark_log.source.pinned_read import pinned
from pyspark_log.spark_conf.installation import source_is_found
from pyspark_log_storage.columns.column_types import RESERVED as OWN
from pyspark_log_storage.errors import DataLoss, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame, SparkSession

    from pyspark_log.history.archive_table import ArchiveState
    from pyspark_log.options.bounds import Bound
    from pyspark_log_coordinator.log.log import TopicHandle


def read(  # noqa: PLR0913 -- each is a fact of its own
    spark: SparkSession,
    path: str,
    topic: str,
    start: Bound = "earliest",
    end: Bound = "latest",
    *,
    partitions: Collection[int] | None = None,
    version: int | None = None,
    archive: str | None = None,
    options: Mapping[str, object] | None = None,
) -> DataFrame:
    """Return the rows of a topic from `start` up to but not including `end`, with their headers; by default all.

    A time, which needs a time zone, means the first row of each partition with this timestamp or a later one, as in
    Kafka; if there is none, the end. It is rounded down to milliseconds. Only the chunks from the one with the start to
    the one with the end are read. Offsets are a dict by partition: `{0: 120, 1: 98}`. `partitions` are those to read
    (default: those with offsets, else all). `version` reads the topic as of a version (see versionAsOf). `archive` is
    the table of `pyspark_log.archive`: archived rows are read from its current version, and later rows from the log.
    `options` are other options of a batch read, such as `storage_options`, `nativeS3` and `failOnDataLoss`.

    The rows of the frame are fixed now, and Spark's own reader reads those in Parquet segments (see `pinned_read`).
    With Spark Connect the rows are fixed when they are read, and the source reads all of them.

    The call writes nothing and belongs to no group. Raises `InvalidInput` for an argument that cannot be used,
    `SourceNotFound` if Spark does not find the format, and what a batch read raises: `UnknownTopic` and `DataLoss`, for
    example. With an archive it raises `InvalidInput` if there is no such table or it is another topic's, and `DataLoss`
    if rows between the two expired.
    """
    given = options_between(topic, start, end, partitions, version, options)
    is_remote = type(spark).__module__.startswith("pyspark.sql.connect")
    if archive is not None:
        if is_remote:
            raise InvalidInput("a read with an archive needs a session of this process, not Spark Connect")
        return _of_archive_and_log(ArchiveTable(spark, archive), path, topic, (start, end), given)
    with source_is_found():
        if is_remote:
            return _by_the_server(spark, path, given)
        return pinned(spark, path, given)


def _by_the_server(spark: SparkSession, path: str, options: Mapping[str, str]) -> DataFrame:
    """Return a batch read. The log is where the server is, so only the columns say whether the topic is typed."""
    given = {name: value for name, value in options.items() if name != "includeHeaders"}
    without_headers = spark.read.format("pyspark_log").options(**given).load(path)
    if without_headers.columns[0] == OWN[0]:  # its rows have none
        return without_headers
    return spark.read.format("pyspark_log").options(**options).load(path)


def _of_archive_and_log(
    table: ArchiveTable, path: str, topic: str, bounds: tuple[Bound, Bound], given: Mapping[str, str]
) -> DataFrame:
    before = None
    while True:
        state = table.state()
        if state is None:
            raise InvalidInput(f"there is no table {table.name}; make it with pyspark_log.archive")
        try:
            return _joined(table, state, path, topic, bounds, given)
        except DataLoss:  # unless rows were archived, and then deleted, between the looks at the two
            if state == before:
                raise
            before = state


def _joined(
    table: ArchiveTable,
    archived: ArchiveState,
    path: str,
    topic: str,
    bounds: tuple[Bound, Bound],
    given: Mapping[str, str],
) -> DataFrame:
    """Return the rows of the table before the seam, and those of the log from there on."""
    parsed = parse_source({**given, "path": path}, streaming=False)
    handle = open_log(path, parsed.storage_options).topic(topic)
    check_topic(archived, handle, table.name)
    now = handle.state
    past = now if parsed.version_as_of is None else handle.state_at(parsed.version_as_of)
    given_ones = parsed.subscription
    chosen = given_ones.partitions[topic] if isinstance(given_ones, Assign) else range(len(past.partitions))
    extents = {p: (now.partition(p).log_start, past.partition(p).high_watermark) for p in chosen}
    # Rows before the seam are in the table, rows from it on in the log.
    seams = {p: min(archived.offsets[p][1], extents[p][1]) for p in chosen if p in archived.offsets}
    extents |= {p: (archived.offsets[p][0], extents[p][1]) for p in seams}
    stored = table.rows(table.version()).where(_is_below(seams))
    starts = _resolved(bounds[0], extents, handle, stored, {p: low for p, (low, _) in extents.items()})
    ends = _resolved(bounds[1], extents, handle, stored, {p: high for p, (_, high) in extents.items()})
    begins = {p: max(starts[p], seams.get(p, 0)) for p in chosen}
    in_log = [p for p in chosen if begins[p] < ends[p]]
    of_log = {p: begins[p] for p in in_log}, {p: ends[p] for p in in_log}
    if not in_log:  # for its columns
        at_end = {chosen[0]: now.partition(chosen[0]).high_watermark}
        of_log = at_end, at_end
    with source_is_found():
        frame = pinned(table.spark, path, options_between(topic, *of_log, None, None, without_bounds(given)))
    if not seams:  # partitions that are newer than the archive
        return frame
    before = stored.where((f.col("offset") >= _by_partition(starts)) & _is_below(ends))
    return before.to(frame.schema.toNullable()).unionAll(frame)


def _resolved(
    bound: Bound,
    extents: Mapping[int, tuple[int, int]],
    handle: TopicHandle,
    stored: DataFrame,
    all_rows: Mapping[int, int],
) -> Mapping[int, int]:
    """Return the offset of a position in each partition; `extents` are those that the table and the log have together.

    Raises `DataLoss` for an offset that neither has.
    """
    if isinstance(bound, Mapping):
        for p, (low, high) in extents.items():
            if not low <= bound[p] <= high:
                what = f"topic {handle.name!r}, partition {p} has no offset {bound[p]}"
                raise DataLoss(f"{what}: the archive and the log have {low} to {high}, where {high} is the next row's")
        return {p: int(bound[p]) for p in extents}
    if not isinstance(bound, datetime):
        return all_rows
    ms = ms_of(bound)
    reached = stored.where(f.col("timestamp") >= f.timestamp_millis(f.lit(ms)))
    found: dict[int, int] = dict(reached.groupBy("partition").agg(f.min("offset")).collect())
    for p in extents.keys() - found.keys():
        if (at := offset_for_time(handle, p, ms)) is not None:
            found[p] = at
    return {p: min(found.get(p, high), high) for p, (_, high) in extents.items()}


def _is_below(offsets: Mapping[int, int]) -> Column:
    """Return the condition of rows before the offset of their partition. Those of other partitions are left out."""
    return f.col("offset") < _by_partition(offsets)


def _by_partition(offsets: Mapping[int, int]) -> Column:
    if not offsets:
        return f.lit(None).cast("bigint")
    return f.create_map(*(f.lit(each) for pair in offsets.items() for each in pair))[f.col("partition")]
