"""The options of the Spark source and sink, and of the Python clients: each is declared once, see `option`."""

from pyspark_log.options.given import (
    IgnoredOptionWarning,
    as_texts,
    check_source,
    of_batch_read,
    parse_sink,
    parse_source,
)
from pyspark_log.options.position import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    CommittedOffsets,
    Earliest,
    GlobalTimestamp,
    Latest,
    NoMatch,
    Position,
    SpecificOffsets,
    Timestamps,
)
from pyspark_log.options.sink import SinkOptions
from pyspark_log.options.source import SourceOptions, is_table_without_options
from pyspark_log.options.subscription import Assign, Subscribe, SubscribePattern, Subscription
from pyspark_log_coordinator.model.batch import Acks
from pyspark_log_storage.files.row_files import Compression

__all__ = [
    "EARLIEST_OFFSET",
    "LATEST_OFFSET",
    "Acks",
    "Assign",
    "CommittedOffsets",
    "Compression",
    "Earliest",
    "GlobalTimestamp",
    "IgnoredOptionWarning",
    "Latest",
    "NoMatch",
    "Position",
    "SinkOptions",
    "SourceOptions",
    "SpecificOffsets",
    "Subscribe",
    "SubscribePattern",
    "Subscription",
    "Timestamps",
    "as_texts",
    "check_source",
    "is_table_without_options",
    "of_batch_read",
    "parse_sink",
    "parse_source",
]
