"""The data source that Spark finds by its name: makes the readers and writers, batch and streaming."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.datasource import DataSource

from pyspark_log.options import check_source, parse_sink, parse_source
from pyspark_log.spark_calls import spark_entry
from pyspark_log.spark_conf.installation import check_spark
from pyspark_log_storage.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from pyspark_log.sink.writer import BatchWriter, StreamWriter
    from pyspark_log.source.readers import BatchReader, StreamReader

_TABLE_PROPERTIES = frozenset({"owner", "provider", "comment", "collation", "external", "is_managed_location"})
"""Those of each table in Spark's catalog: `TableCatalog`'s reserved ones."""


class DefaultSource(DataSource):
    """The format "pyspark_log". Its options are in docs/reference/options.md."""

    @spark_entry
    def __init__(self, options: dict[str, str]) -> None:
        """Raise `InvalidInput` if this Spark is too old; the readers of a stream could not say so."""
        check_spark(pyspark)
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "pyspark_log"

    @spark_entry
    def schema(self) -> StructType:
        """Return the schema of Spark's Kafka source, or of a typed topic. Not called if the user gives a schema."""
        from pyspark_log.source.row import row_schema, typed_schema
        from pyspark_log_storage.stores.addresses import absolute_urls, open_store

        if _is_table_without_options(self.options):
            return row_schema(include_headers=False)
        # Called by `load()`, before it is known whether a batch or a stream will be read.
        options = check_source(self.options)
        for url in absolute_urls(options.path):
            open_store(url)
        from pyspark_log.source.topic_columns import typed_columns

        found = typed_columns(options)
        if found is not None:
            return typed_schema(found[1])
        return row_schema(include_headers=options.include_headers)

    @spark_entry
    def reader(self, schema: StructType) -> BatchReader:
        """Return a reader of a batch: `spark.read`."""
        from pyspark_log.source.readers import BatchReader

        return BatchReader(schema, parse_source(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> StreamReader:
        """Return a reader of a stream. Must not raise: Spark would hide the message (see `StreamReader`)."""
        from pyspark_log.source.readers import StreamReader

        return StreamReader(schema, dict(self.options))

    @spark_entry
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001 -- Spark's signature
        """Return a writer of a batch: `df.write`."""
        from pyspark_log.sink.writer import BatchWriter

        if overwrite:
            raise InvalidOption("mode", "mode('overwrite') would delete the log; write with mode('append')")
        return BatchWriter(schema, parse_sink(self.options, streaming=False))

    @spark_entry
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001 -- Spark's signature
        """Return a writer of a stream. Complete mode (`overwrite`) appends, as Spark's Kafka sink does."""
        from pyspark_log.sink.writer import StreamWriter

        del overwrite
        return StreamWriter(schema, parse_sink(self.options, streaming=True))


def _is_table_without_options(options: Mapping[str, str]) -> bool:
    """Return whether Spark asks for the schema of a new table of its catalog: `CREATE TABLE events USING pyspark_log`.

    Spark passes the OPTIONS of a table neither to a read nor to a write, only those that a statement gives: `FROM
    events WITH (path='...', subscribe='...')`. So a table has none, and no location. When it is created without
    columns, Spark asks for the schema with the table's properties as options.
    """
    return "owner" in options and _TABLE_PROPERTIES.issuperset(options)
