"""Reading a split: what a task does, of a batch or of a stream.

It imports what that takes and no more, for each worker process of Spark pays for it: no planning, no state machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pyspark_log.client.opening import open_log, stores_at
from pyspark_log.client.read.fetch import Split, fetch
from pyspark_log.source.row import arrow_schema, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


@dataclass
class SplitPartition(InputPartition):
    """A task's share."""

    url: str
    split: Split


def read_split(partition: InputPartition, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yield a split's rows as Spark expects them; nothing for the partition that Spark makes where there is none."""
    if not isinstance(partition, SplitPartition):
        return
    split, url, schema = partition.split, partition.url, arrow_schema(columns)

    def find_again(offset: int) -> Split:
        from pyspark_log.client.read.planning import find_again

        return find_again(open_log(url), split, offset)

    for offset, record in fetch(stores_at(url), split, find_again):
        yield rows(record, columns, schema, split.topic, split.partition, offset)
