"""The options of the Spark source and sink, and of the Python clients: each is declared once, see `option`."""

from pyspark_log.options.given import (
    IgnoredOptionWarning,
    as_texts,
    check_source,
    parse_sink,
    parse_source,
)
from pyspark_log.options.sink import SinkOptions
from pyspark_log.options.source import SourceOptions

__all__ = [
    "IgnoredOptionWarning",
    "SinkOptions",
    "SourceOptions",
    "as_texts",
    "check_source",
    "parse_sink",
    "parse_source",
]
