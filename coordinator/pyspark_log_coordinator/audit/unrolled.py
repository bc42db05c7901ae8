"""A check of the unrolled rows on one node: those in append files, which are after a partition's recovery point.

An append file does not contain the offsets of its chunks. The topic's journal does, or its description, which may be
older. Every chunk has a checksum, so a damaged file is found without either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.place import OneStore
from pyspark_log_coordinator.maintenance import topic_description
from pyspark_log_coordinator.topic.machine import MACHINE
from pyspark_log_storage import layout
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing
from pyspark_log_storage.files import append_file
from pyspark_log_storage.segments.recovery import BadFile

if TYPE_CHECKING:
    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.model.partition import NodeId
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.rebuild.folder_scan import TopicFolder
    from pyspark_log_storage.stores.store import Store


class KnownTopic(msgspec.Struct, frozen=True):
    """The state of a topic, from its journal or its description."""

    topic: Topic
    is_newest: bool
    """Whether it is from the journal. Otherwise the topic may have newer rows."""


class BadChunk(msgspec.Struct, frozen=True):
    """Rows `[base_offset, end_offset)`, which cannot be read."""

    base_offset: int
    end_offset: int
    damage: BadFile


class Checked(msgspec.Struct, frozen=True):
    """The result for a partition's unrolled rows, in order."""

    files: tuple[str, ...]
    """The keys of the checked append files."""
    good: tuple[tuple[int, int], ...]
    """The first offset and the end of each good chunk."""
    bad: tuple[BadChunk, ...]

    def damage_behind(self, reached: int) -> BadChunk | None:
        """Return the first bad chunk with rows from `reached` on. Earlier rows are also in good segments."""
        return next((each for each in self.bad if each.end_offset > reached), None)


NOTHING = Checked((), (), ())


def known(store: Store, folder: TopicFolder, environment: Environment) -> KnownTopic | None:
    """Return a topic's state from one node alone: from its journal if that is stored there, or from its description."""
    journal = Journal(OneStore(store), layout.topic_journal(*folder), MACHINE, environment)
    try:
        if journal.refresh().started:
            return KnownTopic(journal.state, is_newest=True)
    except LogError:
        pass
    key = f"{folder.prefix}{topic_description.NAME}"
    try:
        return KnownTopic(topic_description.decode(store.read(key), f"{store.url}/{key}").topic, is_newest=False)
    except (ObjectMissing, CorruptObject):
        return None


def check(store: Store, folder: TopicFolder, topic: Topic, number: int, start: int, node: NodeId | None) -> Checked:
    """Read the unrolled rows of a partition that a node holds, from offset `start` on.

    If `node` is None, missing files are no damage, because the node is not known. Raises `NewerFormat`, `StoreError`.
    """
    schemas = schema.decode_all(topic.schemas, f"topic {topic.name!r}")
    files: dict[str, None] = {}
    good, bad = [], []
    for chunk in topic.partitions[number].chunks:
        file = topic.file(chunk.file)
        if chunk.end_offset <= start or (node is not None and all(each.node != node for each in file.holders)):
            continue
        key = layout.append_file(*folder, file.name)
        files[key] = None
        try:
            append_file.read_chunk(store, key, chunk.place(number), schemas, f"offset {chunk.base_offset}")
        except ObjectMissing:
            if node is not None:
                bad.append(BadChunk(chunk.base_offset, chunk.end_offset, BadFile(key, "it is missing")))
        except CorruptObject as error:
            bad.append(BadChunk(chunk.base_offset, chunk.end_offset, BadFile(key, str(error))))
        else:
            good.append((chunk.base_offset, chunk.end_offset))
    return Checked(tuple(files), tuple(good), tuple(bad))


def check_unplaced(store: Store, folder: TopicFolder, topic: KnownTopic | None) -> list[BadFile]:
    """Return the damaged append files whose rows have no known offsets.

    Empty if the newest state of the topic is known: a file that it does not name is not in the log. Raises
    `NewerFormat`, `StoreError`.
    """
    if topic is not None and topic.is_newest:
        return []
    prefix = layout.append_file(*folder, "")
    placed = set() if topic is None else {layout.append_file(*folder, file.name) for file in topic.topic.files}
    found = []
    for key in store.list(prefix):
        if key in placed or not layout.is_born_name(key.removeprefix(prefix)):
            continue
        try:
            for _ in append_file.scan(store, key):
                pass
        except CorruptObject as error:
            found.append(BadFile(key, str(error)))
        except ObjectMissing:
            pass  # deleted since it was listed
    return found
