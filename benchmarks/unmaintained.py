"""`bench_unmaintained`: the product's sink, for which no maintenance is ever due.

A write without inline maintenance: no segment is rolled or merged, and nothing is cleaned up. Everything else is the
product's own. Spark's Python workers import this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

from pyspark_log import DefaultSource
from pyspark_log.options import parse_sink
from pyspark_log.sink import writer
from pyspark_log_coordinator.commit import inline_maintenance

if TYPE_CHECKING:
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from pyspark_log.options import SinkOptions
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.maintenance.roll_input import RollTask

NEVER = 2**62


class Unmaintained(DefaultSource):
    """Takes the options of the sink."""

    @classmethod
    def name(cls) -> str:
        return "bench_unmaintained"

    def streamWriter(self, schema: StructType, overwrite: bool) -> UnmaintainedWriter:
        return UnmaintainedWriter(schema, parse_sink(self.options, streaming=True))


class UnmaintainedWriter(writer.StreamWriter):
    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        with mock.patch.object(inline_maintenance, "plan_inline", _no_work):
            super().__init__(schema, options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with mock.patch.object(inline_maintenance, "CLEAN_UP_EVERY_ENTRIES", NEVER):
            super().commit(messages, batchId)


def _no_work(handle: TopicHandle) -> tuple[RollTask, ...]:
    del handle
    return ()
