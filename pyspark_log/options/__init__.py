"""The options of the Spark source and sink: the parser, the messages and the page of options come from one table."""

from pyspark_log.options.given import IgnoredOptionWarning, as_texts
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
from pyspark_log.options.source import (
    SourceOptions,
    check_source,
    is_table_without_options,
    of_batch_read,
    parse_source,
)
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
    "parse_source",
]
