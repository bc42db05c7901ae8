"""The topics of a write, on the driver: found or created, with columns that hold the frame's.

A frame is refused before anything is created or changed. Whether a frame has records or columns depends on the topic,
so a frame that cannot be records is judged by the topic that exists.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pyspark_log.client.opening import open_log
from pyspark_log.client.write.destination import is_typed
from pyspark_log.client.write.rows import check_columns
from pyspark_log_coordinator.model.settings import INT_MAX
from pyspark_log_storage.errors import InvalidOption, InvalidRecord, NoCluster, UnknownTopic

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_log.client.write.typed_plan import TypedPlan
    from pyspark_log.sink_options import SinkOptions
    from pyspark_log_coordinator.log.log import Log, TopicHandle

committed: set[tuple[str, str]] = set()
"""The paths and topics to which this process has committed. Spark plans in another one."""


def prepare(options: SinkOptions, frame: StructType) -> tuple[Log, TopicHandle | None, TypedPlan | None]:
    """Return the log, the topic of all rows if the write names one, and the plan if that topic is typed.

    Raises `InvalidRecord` for a frame that cannot be written there, `InvalidOption`, `UnknownTopic`.
    """
    handle = _existing(options) if options.has_columns else None
    if handle is None and options.has_columns:
        return _create_typed(options, frame)
    if handle is not None and not is_typed(handle):
        _refuse_options(options)
    try:
        check_columns({field.name: field.dataType.simpleString() for field in frame}, options.topic)
    except InvalidRecord:
        handle = handle or _existing(options)
        if handle is None or not is_typed(handle):
            raise
        return handle.log, handle, _typed_plan(options, handle, _columns(options, frame))
    log = open_log(options.path, options.storage_options, create=options.auto_create_topics)
    if options.topic is None:
        return log, None, None
    handle = _last_committed(log, options) or find(log, options.topic, options)
    if is_typed(handle):
        return log, handle, _typed_plan(options, handle, _columns(options, frame))
    _refuse_options(options)
    return log, handle, None


def find(log: Log, name: str, options: SinkOptions, columns: pa.Schema | None = None) -> TopicHandle:
    """Return the handle of a topic, created if the options say so, typed if there are `columns`.

    Raises `UnknownTopic`.
    """
    if not options.auto_create_topics:
        return log.topic(name)
    config = None
    if name == options.dead_letter_topic:
        from pyspark_log_coordinator.model.topic_config import TopicConfig

        config = TopicConfig(max_message_bytes=INT_MAX)  # it takes the rows that are too large for other topics
    factor = options.replication_factor
    return log.ensure_topic(name, options.num_partitions, config, replication_factor=factor, columns=columns)


def dead_letter_topic(log: Log, options: SinkOptions) -> TopicHandle:
    """Return the handle of the dead letter topic. Raises `InvalidOption` if it is typed: letters are records."""
    assert options.dead_letter_topic is not None
    handle = find(log, options.dead_letter_topic, options)
    if is_typed(handle):
        raise InvalidOption(
            "dead.letter.topic",
            f"dead.letter.topic is {handle.name!r}, a typed topic, and dead letters are records with headers; choose "
            "another topic",
        )
    return handle


def _existing(options: SinkOptions) -> TopicHandle | None:
    """Return the topic of all rows if the write names one and it exists. Creates nothing."""
    if options.topic is None:
        return None
    try:
        log = open_log(options.path, options.storage_options)
        return _last_committed(log, options) or log.topic(options.topic)
    except (NoCluster, UnknownTopic):
        return None


def _last_committed(log: Log, options: SinkOptions) -> TopicHandle | None:
    """Return the handle of a topic to which this process commits, as it knows it if that is recent; else None.

    Spark makes a writer for each micro-batch in the process that commits, too: it has just written an entry.
    """
    if options.topic is not None and (options.path, options.topic) in committed:
        with contextlib.suppress(UnknownTopic):
            return log.topic(options.topic, recent_suffices=True)
    return None


def _columns(options: SinkOptions, frame: StructType) -> pa.Schema:
    from pyspark_log.client.write import typed_plan

    assert options.topic is not None
    return typed_plan.frame_columns(frame.jsonValue(), options.topic)


def _create_typed(options: SinkOptions, frame: StructType) -> tuple[Log, TopicHandle, TypedPlan]:
    from pyspark_log.client.write import typed_plan
    from pyspark_log_coordinator.commit import typed_topics
    from pyspark_log_storage import schema

    assert options.topic is not None
    columns = typed_plan.new_columns(_columns(options, frame))
    schema.typed(columns)
    typed_plan.check_key(options.topic, columns, options.key_column)
    log = open_log(options.path, options.storage_options, create=options.auto_create_topics)
    handle = find(log, options.topic, options, columns)
    if is_typed(handle):
        typed_topics.describe_on_nodes(handle)
        return log, handle, _typed_plan(options, handle, columns)
    raise InvalidRecord(
        f"topic {options.topic!r} was created meanwhile, and holds records; write key and value, or choose another one"
    )


def _typed_plan(options: SinkOptions, handle: TopicHandle, columns: pa.Schema) -> TypedPlan:
    """Return the plan of a write, after the topic's columns have evolved if the options say so."""
    from pyspark_log.client.write import typed_plan

    if options.merge_schema and typed_plan.needs_evolution(handle, columns):
        from pyspark_log_coordinator.commit import typed_topics

        typed_topics.evolve(handle, columns)
    return typed_plan.plan(handle.name, handle.journal.state.schemas, columns, options.key_column)


def _refuse_options(options: SinkOptions) -> None:
    """Raise `InvalidOption` for an option about columns of a topic that has none."""
    given = {"schema": options.has_columns, "mergeSchema": options.merge_schema, "key.column": options.key_column}
    for name, is_set in given.items():
        if is_set:
            raise InvalidOption(
                name,
                f"option {name} is for typed topics, and topic {options.topic!r} holds records of key and value; "
                "remove it, or choose another topic",
            )
