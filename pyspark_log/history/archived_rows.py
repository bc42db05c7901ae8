"""The rows that are in an archive's table, counted: whether each offset of a range is there once.

The offsets of 32,768 rows are one bitmap, so a count exchanges four KiB for these, and is exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame


class Counted(NamedTuple):
    """Rows of a partition from an offset on."""

    rows: int
    offsets: int
    """The number of different ones."""
    first: int
    end: int

    @property
    def is_whole(self) -> bool:
        """Return whether each offset between the first and the end is there once."""
        return self.rows == self.offsets == self.end - self.first


def count(rows: DataFrame, starts: Mapping[int, int]) -> dict[int, Counted]:
    """Return what is in a table of each partition from an offset on; partitions without such rows are left out."""
    if not starts:
        return {}
    chosen = rows.select("partition", "offset").where(f.col("offset") >= min(starts.values()))
    start = f.create_map(*(f.lit(each) for pair in starts.items() for each in pair))[f.col("partition")]
    chosen = chosen.where(f.col("offset") >= start.cast("bigint"))
    bitmaps = chosen.groupBy("partition", f.bitmap_bucket_number("offset").alias("bucket")).agg(
        f.count(f.lit(1)).alias("rows"),
        f.bitmap_count(f.bitmap_construct_agg(f.bitmap_bit_position("offset"))).alias("offsets"),
        f.min("offset").alias("first"),
        (f.max("offset") + 1).alias("end"),
    )
    totals = bitmaps.groupBy("partition").agg(f.sum("rows"), f.sum("offsets"), f.min("first"), f.max("end"))
    return {partition: Counted(*numbers) for partition, *numbers in totals.collect()}
