"""The reader of a split, in a task of a batch or a stream.

Every Python worker of Spark imports this module, so it imports no planning and no state machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pyspark_log.client import opening
from pyspark_log.client.read.fetch import Split, fetch
from pyspark_log.source.row import arrow_schema, rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa


@dataclass
class SplitPartition(InputPartition):
    """A split, and the address of its log."""

    url: str
    split: Split


def partitions_of(path: str, splits: Iterable[Split]) -> list[SplitPartition]:
    """Return Spark's partitions for the splits of the log at `path`."""
    url = opening.canonical(path)
    return [SplitPartition(url, split) for split in splits]


def read_split(partition: InputPartition, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yield a split's rows as Spark expects them. Yield nothing for the dummy partition of an empty plan."""
    if not isinstance(partition, SplitPartition):
        return
    split, url, schema = partition.split, partition.url, arrow_schema(columns)

    def find_again(offset: int) -> Split:
        from pyspark_log.client.read.planning import find_again

        return find_again(opening.open_log(url), split, offset)

    for offset, record in fetch(opening.stores_at(url), split, find_again):
        yield rows(record, columns, schema, split.topic, split.partition, offset)
