"""The topics of a write: found on the driver, or created by its tasks, with columns that hold the frame's.

A frame is refused before anything is created or changed. Whether a frame has records or columns depends on the topic,
so a frame that cannot be records is judged by the topic that exists.
"""

from __future__ import annotations

import contextlib
import enum
from typing import TYPE_CHECKING

import msgspec

from pyspark_log.opening import canonical, open_log
from pyspark_log.writing.destination import is_typed
from pyspark_log.writing.rows import check_columns
from pyspark_log_coordinator.model.settings import INT_MAX
from pyspark_log_storage.columns.compaction_columns import key_columns_of
from pyspark_log_storage.errors import InvalidOption, InvalidRecord, NoCluster, UnknownTopic

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_log.options import SinkOptions
    from pyspark_log.writing.typed_rows import TypedPlan
    from pyspark_log_coordinator.log.log import Log, TopicHandle

committed: set[tuple[str, str]] = set()
"""The paths and topics to which this process has committed. Spark plans in another one."""


class Creates(enum.IntEnum):
    """What a write may create. A folder without a log may be the place of a mount, so only a first write creates one.

    Each includes those before it.
    """

    NOTHING = 0
    """The driver, which does not know the number of the micro-batch; and auto.create.topics.enable=false."""
    FURTHER_TOPICS = 1
    """A later micro-batch: topics that rows name, and the dead letter topic."""
    TOPICS = 2
    """A batch write of a later micro-batch (foreachBatch): also the topic that it names."""
    LOG = 3
    """A batch write, or a query's first micro-batch."""


def creates(options: SinkOptions, batch_id: str | None, *, streaming: bool) -> Creates:
    """Return what a task may create. `batch_id` is that of the micro-batch in which it runs; None if there is none."""
    if not options.auto_create_topics:
        return Creates.NOTHING
    if batch_id is None or int(batch_id) == 0:
        return Creates.LOG
    return Creates.FURTHER_TOPICS if streaming else Creates.TOPICS


def check_known(options: SinkOptions) -> None:
    """Compare the log and the topic with those that the query's checkpoint knows. Creates and changes nothing there.

    Raises `NoCluster`, `UnknownTopic` if they are others, or do not exist any more.
    """
    if options.checkpoint is None:
        return
    from pyspark_log.sink import checkpoint

    found: checkpoint.SinkRecord | NoCluster | UnknownTopic
    try:
        log = open_log(options.path, options.storage_options)
        topic_id = ""
        if options.topic is not None:
            known = log.known_topics.get(options.topic)
            topic_id = log.topic(options.topic).topic_id if known is None else known.topic_id
        found = checkpoint.SinkRecord(canonical(options.path), log.cluster_id, options.topic or "", topic_id)
    except (NoCluster, UnknownTopic) as absent:
        found = absent
    checkpoint.check(options, found)


def prepare(
    options: SinkOptions, frame: StructType, may_create: Creates
) -> tuple[Log, TopicHandle | None, TypedPlan | None]:
    """Return the log, the topic of all rows if the write names one, and the plan if that topic is typed.

    Raises `InvalidRecord` for a frame that cannot be written there, `InvalidOption`, `NoCluster`, `UnknownTopic`.
    """
    if may_create and options.dead_letter_topic is not None:
        with contextlib.suppress(NoCluster, UnknownTopic):
            _check_letters(open_log(options.path, options.storage_options).topic(options.dead_letter_topic))
    handle = _existing(options)
    if handle is None and options.has_columns:
        return _create_typed(options, frame, may_create)
    if handle is None or not is_typed(handle):
        check_columns({field.name: field.dataType.simpleString() for field in frame}, options.topic)
    if handle is None and may_create >= Creates.TOPICS:
        if may_create < Creates.LOG:
            open_log(options.path, options.storage_options)  # raises if the log itself is missing
        _refuse_options(options, "does not exist, and would hold")
    log = open_log(options.path, options.storage_options, create=may_create is Creates.LOG)
    if options.topic is None:
        return log, None, None
    if handle is None:
        handle = find(log, options.topic, options, may_create)
    if is_typed(handle):
        return log, handle, _typed_plan(options, handle, _columns(options, frame))
    _refuse_options(options)
    return log, handle, None


def find(
    log: Log, name: str, options: SinkOptions, may_create: Creates, columns: pa.Schema | None = None
) -> TopicHandle:
    """Return the handle of a topic, created if the write may, typed if there are `columns`.

    Raises `UnknownTopic`.
    """
    if may_create < (Creates.TOPICS if name == options.topic else Creates.FURTHER_TOPICS):
        try:
            return log.topic(name)
        except UnknownTopic as error:
            if may_create is Creates.NOTHING:
                raise
            raise UnknownTopic(
                name,
                f"{error.message}. Only a query's first micro-batch creates its topic: was it deleted, or is another "
                f"disk mounted at {options.path}? To continue with a new topic: pyspark-log topics create {name}",
            ) from None
    from pyspark_log_coordinator.model.topic_config import TopicConfig

    if name == options.dead_letter_topic:
        config = TopicConfig(max_message_bytes=INT_MAX)  # it takes the rows that are too large for other topics
    else:
        config = TopicConfig(key_column=options.key_column or "" if columns is not None else "")
    factor = options.replication_factor
    return log.ensure_topic(name, options.num_partitions, config, replication_factor=factor, columns=columns)


def dead_letter_topic(log: Log, options: SinkOptions, may_create: Creates) -> TopicHandle:
    """Return the handle of the dead letter topic. Raises `InvalidOption` if it is typed: letters are records."""
    assert options.dead_letter_topic is not None
    handle = find(log, options.dead_letter_topic, options, may_create)
    _check_letters(handle)
    return handle


def _check_letters(handle: TopicHandle) -> None:
    """Raise `InvalidOption` if the dead letter topic is typed: letters are records."""
    if is_typed(handle):
        raise InvalidOption(
            "dead.letter.topic",
            f"dead.letter.topic is {handle.name!r}, a typed topic, and dead letters are records with headers; choose "
            "another topic",
        )


def _existing(options: SinkOptions) -> TopicHandle | None:
    """Return the topic of all rows if the write names one and it exists. Creates nothing.

    Spark makes a writer for each micro-batch in the process that commits, too: it has just written an entry.
    """
    if options.topic is None:
        return None
    try:
        log = open_log(options.path, options.storage_options)
        return log.topic(options.topic, recent_suffices=(options.path, options.topic) in committed)
    except (NoCluster, UnknownTopic):
        return None


def _columns(options: SinkOptions, frame: StructType) -> pa.Schema:
    from pyspark_log.writing import typed_rows

    assert options.topic is not None
    return typed_rows.frame_columns(frame.jsonValue(), options.topic)


def _create_typed(options: SinkOptions, frame: StructType, may_create: Creates) -> tuple[Log, TopicHandle, TypedPlan]:
    from pyspark_log.writing import typed_rows
    from pyspark_log_coordinator.model import topic_config
    from pyspark_log_coordinator.model.topic_config import TopicConfig
    from pyspark_log_storage.columns import schema

    assert options.topic is not None
    columns = typed_rows.new_columns(_columns(options, frame))
    stored = schema.encode(schema.typed(columns))
    if options.key_column is not None:
        topic_config.with_columns(options.topic, TopicConfig(key_column=options.key_column), [stored])
    log = open_log(options.path, options.storage_options, create=may_create is Creates.LOG)
    handle = find(log, options.topic, options, may_create, columns)
    if is_typed(handle):
        return log, handle, _typed_plan(options, handle, columns)
    raise InvalidRecord(
        f"topic {options.topic!r} was created meanwhile, and holds records; write key and value, or choose another one"
    )


def _typed_plan(options: SinkOptions, handle: TopicHandle, columns: pa.Schema) -> TypedPlan:
    """Return the plan of a write, after the topic has got the key.column and the columns that the options say.

    Before anybody writes rows of a new schema, the nodes have it in the topic's description: the rows of a chunk cannot
    be read without, and nothing else on a node tells it if all journals are lost.
    """
    from pyspark_log.writing import typed_rows
    from pyspark_log_coordinator.maintenance import descriptions

    if handle.config.key_column:
        _set_key(options, handle)  # another one is refused
    if options.merge_schema and (merged := typed_rows.evolved(handle, columns)) is not None:
        _check_frame(options, handle, merged, columns)
        if handle.evolve(columns):
            descriptions.write_on_nodes(handle)
    _check_frame(options, handle, handle.state.schemas[-1], columns)
    _set_key(options, handle)
    state = handle.state
    return typed_rows.plan(handle.name, state.schemas, columns, state.config.key_column)


def _check_frame(options: SinkOptions, handle: TopicHandle, stored: bytes, columns: pa.Schema) -> None:
    """Raise `InvalidRecord` or `InvalidOption` if the frame, or the write's key.column, does not fit a schema."""
    from pyspark_log.writing import typed_rows
    from pyspark_log_coordinator.model import topic_config

    typed_rows.plan(handle.name, [stored], columns, "")
    if options.key_column is not None:
        changed = msgspec.structs.replace(handle.config, key_column=options.key_column)
        topic_config.with_columns(handle.name, changed, [stored])


def _set_key(options: SinkOptions, handle: TopicHandle) -> None:
    """Make the write's key.column the topic's unless it is. Raises `InvalidOption` if another one is."""
    if options.key_column is None:
        return
    if key_columns_of(handle.config.key_column.lower()) != key_columns_of(options.key_column.lower()):
        handle.alter_config({"key.column": options.key_column})


def _refuse_options(options: SinkOptions, holds: str = "holds") -> None:
    """Raise `InvalidOption` for an option about columns of a topic that has none."""
    given = {"schema": options.has_columns, "mergeSchema": options.merge_schema, "key.column": options.key_column}
    for name, is_set in given.items():
        if is_set:
            raise InvalidOption(
                name,
                f"option {name} is for typed topics, and topic {options.topic!r} {holds} records of key and value; "
                "remove it, or choose another topic",
            )
