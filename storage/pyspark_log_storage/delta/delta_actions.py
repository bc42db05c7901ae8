"""The actions of a Delta table's versions, with the fields that pyspark_log needs. Source: Delta's PROTOCOL.md.

Sizes are in bytes, times in ms since 1970. Fields and actions of other programs that have no meaning here are ignored.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import field

from pyspark_log_storage.stored_fields import Count, Int64


class AddFile(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A file becomes part of the table. Its path is relative to the table's folder, and URL-encoded."""

    path: str
    size: Count
    modification_time: Int64
    data_change: bool
    partition_values: dict[str, str | None]
    stats: str | None = None
    """JSON: the number of rows, and the smallest and largest values of columns."""


class RemoveFile(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A file is no longer part of the table."""

    path: str
    deletion_timestamp: Int64 | None = None
    data_change: bool


class Transaction(msgspec.Struct, frozen=True, rename="camel"):
    """How far an application has come."""

    app_id: str
    version: Int64


class Format(msgspec.Struct, frozen=True):
    """The format of the table's files."""

    provider: str = "parquet"
    options: dict[str, str] = {}


class Metadata(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What the table is: its columns as a Spark schema in its JSON form."""

    id: str
    format: Format = Format()
    schema_string: str
    partition_columns: tuple[str, ...] = ()
    configuration: dict[str, str] = {}
    created_time: Int64 | None = None
    name: str | None = None


class Protocol(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a program must be able to do that reads the table, or writes it."""

    min_reader: int = field(name="minReaderVersion")
    min_writer: int = field(name="minWriterVersion")
    reader_features: tuple[str, ...] | None = field(default=None, name="readerFeatures")
    writer_features: tuple[str, ...] | None = field(default=None, name="writerFeatures")


class CommitInfo(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Who published a version, and when."""

    timestamp: Int64 | None = None
    operation: str | None = None
    engine_info: str | None = None
    operation_parameters: dict[str, Any] = {}


class Action(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """One action: one of the fields is there, or none of them if the action has no meaning here."""

    commit_info: CommitInfo | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = field(default=None, name="metaData")
    txn: Transaction | None = None
    add: AddFile | None = None
    remove: RemoveFile | None = None
