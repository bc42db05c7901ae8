"""The columns of the topics that a query subscribes to, looked up on the driver before anything is planned.

Only the cluster's journal is read to see which of them are typed, and then the journals of those.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pyspark_log.opening import open_log
from pyspark_log.source.row import check_records, check_typed, same_columns
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import InvalidInput, InvalidOption, NoCluster, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_log.options import SourceOptions
    from pyspark_log_coordinator.log.log import Log

_ALONE = "leave the topic out of this query, and read it with another one"


def typed_columns(options: SourceOptions) -> tuple[str, pa.Schema] | None:
    """Return the columns of the typed topics of a query, and the name of one; None if all hold records.

    Topics that do not exist, or not yet, are left out. Raises `InvalidInput` if topics of both kinds, or with
    different columns, are read together.
    """
    try:
        log = open_log(options.path, options.storage_options)
    except NoCluster:
        return None
    log.cluster.refresh()  # the columns hold for the whole query: a topic may have been created a moment ago
    known = log.known_topics
    names = [name for name in options.subscription.names(lambda: sorted(known)) if name in known]
    kinds = {name: _is_typed(log, name) for name in names}
    typed = [name for name, is_typed in kinds.items() if is_typed]
    if not typed:
        return None
    records = next((name for name, is_typed in kinds.items() if not is_typed), None)
    if records is not None:
        raise InvalidInput(
            f"topic {typed[0]!r} is typed, and topic {records!r} holds records of key and value; read each alone"
        )
    if options.include_headers:
        raise InvalidOption(
            "includeHeaders",
            f"option includeHeaders is true, and rows of the typed topic {typed[0]!r} have no headers; remove it",
        )
    columns = same_columns([(name, _newest(log, name)) for name in typed])
    return typed[0], columns


def check_schema(wanted: StructType, options: SourceOptions) -> None:
    """Raise `InvalidInput` for an unknown column or another type than the topics have."""
    try:
        check_records(wanted)
    except InvalidInput:
        found = typed_columns(options)
        if found is None:
            raise
        topic, columns = found
        check_typed(wanted, columns, topic)


def check_topic(wanted: StructType, topic: str, schemas: Sequence[pa.Schema]) -> None:
    """Raise `InvalidInput` unless a query with these columns can read a topic that has, or had, these schemas.

    `load()` may have known another topic, or none. A topic may also have evolved since the query began with one of its
    older schemas: then each value is checked when it is read.
    """
    if not schema.is_typed(schemas[-1]):
        try:
            check_records(wanted)
        except InvalidInput as error:
            raise InvalidInput(f"topic {topic!r} holds records of key and value: {error}; {_ALONE}") from error
        return
    *older, newest = map(schema.columns_of, schemas)
    for columns in older:
        with contextlib.suppress(InvalidInput):
            check_typed(wanted, columns, topic)
            return
    check_typed(wanted, newest, topic, _ALONE)


def _is_typed(log: Log, name: str) -> bool:
    stored = log.known_topics[name].schemas
    return schema.is_typed(schema.decode_all(stored[:1], f"topic {name!r}")[0])


def _newest(log: Log, name: str) -> pa.Schema:
    try:
        return schema.columns_of(log.topic(name).schemas[-1])
    except UnknownTopic as error:
        raise InvalidInput(f"topic {name!r} was deleted meanwhile; start the query again") from error
