"""All rows of a topic as one frame: those in its archive, in Parquet segments, and those that only the log has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from pyspark_log.options.bounds import check_partitions
from pyspark_log.source.replay import replay
from pyspark_log_storage.errors import DataLoss, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from pyspark_log.history.archive_table import ArchiveState, ArchiveTable


def read(  # noqa: PLR0913 -- each is a fact of its own
    spark: SparkSession,
    path: str,
    topic: str,
    *,
    partitions: Collection[int] | None = None,
    version: int | None = None,
    archive: str | None = None,
    options: Mapping[str, object] | None = None,
) -> DataFrame:
    """Return all rows that a topic has now, with their headers: `replay` without bounds.

    `partitions` are those to read (default: all). `version` reads the topic as of a version (see versionAsOf).
    `archive` is the table of `pyspark_log.archive`: archived rows are read from its current version, and later rows
    from the log, so that none is missing or duplicated. `options` are as in `replay`.

    Raises what `replay` raises; with an archive `InvalidInput` if there is no such table or it is another topic's, and
    `DataLoss` if rows between the two expired.
    """
    check_partitions(partitions)
    if archive is None:
        return replay(spark, path, topic, partitions=partitions, version=version, options=options)
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise InvalidInput("a read with an archive needs a session of this process, not Spark Connect")
    from pyspark_log.history.archive_table import ArchiveTable

    table, before = ArchiveTable(spark, archive), None
    while True:
        state = table.state()
        if state is None:
            raise InvalidInput(f"there is no table {archive}; make it with pyspark_log.archive")
        try:
            return _with_archive(path, topic, table, state, partitions=partitions, version=version, options=options)
        except DataLoss:  # unless rows were archived, and then deleted, between the looks at the two
            if state == before:
                raise
            before = state


def _with_archive(  # noqa: PLR0913 -- those of `read`
    path: str,
    topic: str,
    table: ArchiveTable,
    archived: ArchiveState,
    *,
    partitions: Collection[int] | None,
    version: int | None,
    options: Mapping[str, object] | None,
) -> DataFrame:
    from pyspark_log.history.archive import check_topic
    from pyspark_log.history.archive_table import as_type
    from pyspark_log.opening import open_log
    from pyspark_log.options import parse_source

    spark = table.spark
    parsed = parse_source({**(options or {}), "path": path, "subscribe": topic}, streaming=False)
    handle = open_log(path, parsed.storage_options).topic(topic)
    check_topic(archived, handle, table.name)
    now = handle.state
    past = now if version is None else handle.state_at(version)
    chosen = sorted(range(len(past.partitions)) if partitions is None else set(partitions))
    ends = {p: past.partition(p).high_watermark for p in chosen}
    # The seam: rows before it are in the table, rows from it on in the log.
    known = {p: min(archived.offsets[p][1], ends[p]) for p in chosen if p in archived.offsets}
    seams = {p: known[p] if p in known else now.partition(p).log_start for p in chosen}
    in_log = [p for p in chosen if seams[p] < ends[p]]
    if in_log:
        frame = replay(spark, path, topic, {p: seams[p] for p in in_log}, {p: ends[p] for p in in_log}, options=options)
    else:  # for its columns
        at_end = {chosen[0]: now.partition(chosen[0]).high_watermark}
        frame = replay(spark, path, topic, at_end, at_end, options=options)
    if not known:  # partitions that are newer than the archive
        return frame
    stored = table.rows(table.version())
    seam = f.create_map(*(f.lit(each) for pair in known.items() for each in pair))[f.col("partition")]
    before = stored.where(f.col("partition").isin(list(known)) & (f.col("offset") < seam))
    return as_type(before, frame.schema).unionAll(frame)
