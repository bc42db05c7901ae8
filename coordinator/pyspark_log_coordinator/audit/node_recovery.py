"""Recovery of one node: up to which offset the files in its folder are undamaged.

The files are those that the topic's state names, by its journal or, if that is lost, by the description in the folder.
They are read by the walk that `verify` uses (`sync/faults`), and lost indexes are made again.

If the journals can be read, the segments of a node that returns are compared with them, by leader epochs (`strays`).
While the node was missing, an election may have cut rows that it has, or a slow process may have finished a segment
that is no longer needed. Readers never see such a segment, because no entry names it, but it takes space.

Such a stray is never swapped in later, because a swap under another leader epoch is refused (`swap`). So it may be
deleted at once, without waiting for the orphan floor. The folder is listed before the journal is read: what is newer
than the journal's leader epochs must not look like a stray.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.log.reachable_stores import ReachableStores
from pyspark_log_coordinator.maintenance.topic_cleanup import delete_files
from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_coordinator.rebuild.folder_scan import NodeFolder, TopicFolder
from pyspark_log_coordinator.replication import replicas, truncation
from pyspark_log_coordinator.sync import faults, replica_file
from pyspark_log_coordinator.sync.faults import Wrong
from pyspark_log_storage import layout
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import CorruptObject, LogError, ObjectMissing, UnknownTopic
from pyspark_log_storage.files import index
from pyspark_log_storage.files.row_files import EpochStarts
from pyspark_log_storage.objects.node import read_marker, require_marker
from pyspark_log_storage.segments import segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark_log_coordinator.environment import Environment
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_storage.stores.store import Store


class BadFile(msgspec.Struct, frozen=True):
    """The file in which the good rows end, and why."""

    file: str
    """Its key, without ending for a segment."""
    why: str


class RecoveredPartition(msgspec.Struct, frozen=True):
    """The result for a partition in a node's folder."""

    topic: str
    topic_id: str
    partition: int
    recovery_point: int
    good_up_to: int
    """The rows from the recovery point to this offset are good."""
    checked: tuple[str, ...]
    """The keys of the files that were read, without ending for segments."""
    rebuilt: tuple[str, ...]
    """The segments whose index was missing or damaged."""
    damage: BadFile | None
    """Why later rows are lost; None if there are none."""


def recover(
    store: Store,
    topic: str,
    environment: Environment,
    log: Log | None = None,
    *,
    everything: bool = False,
    dry_run: bool = False,
) -> Iterator[RecoveredPartition]:
    """Check the files of a topic on one node, and rebuild lost indexes unless it is a dry run.

    Yield the partitions of each incarnation of the topic. Its state is known from the journals of `log` or, without it,
    from the node's folder alone: the journals may be lost. With `everything` rows before the recovery points are
    checked, too. Raises `CorruptObject` for a damaged description, `NewerFormat`, `StoreError`.
    """
    marker = read_marker(store)
    for topic_id in filter(layout.is_id, store.folders(f"{layout.TOPICS}{topic}/")):
        folder = NodeFolder(store, TopicFolder(topic, topic_id))
        state = _known(folder, environment, log)
        if state is not None:
            node, described = None if marker is None else marker.node, folder.description()
            points = {} if node is None or described is None else _recovery_points(described.topic, node)
            yield from _recovered(store, state, node, points, everything=everything, dry_run=dry_run)


def _known(here: NodeFolder, environment: Environment, log: Log | None) -> Topic | None:
    """Return a topic's state from the journals or, if they do not have this incarnation, from its folder alone.

    That is from its journal if it is stored there, or from its description.
    """
    if log is not None:
        record = log.topics().get(here.folder.topic)
        if record is not None and record.topic_id == here.folder.topic_id:
            with contextlib.suppress(UnknownTopic):  # its deletion was interrupted, or came meanwhile
                return log.topic(here.folder.topic).state
    with contextlib.suppress(LogError):
        journal = here.journal(environment)
        if journal.refresh().started:
            return journal.state
    described = here.description()
    return None if described is None else described.topic


def _recovery_points(state: Topic, node: NodeId) -> dict[int, int]:
    """Return, for each partition, up to where a node held segments without a gap when its topic was described."""
    points = {}
    for number, partition in enumerate(state.partitions):
        if node in partition.replicas:
            held = itertools.takewhile(lambda each: replicas.is_held(each.holders, node), partition.segments)
            points[number] = max((each.end_offset for each in held), default=partition.log_start)
    return points


def _recovered(
    store: Store, state: Topic, node: NodeId | None, points: Mapping[int, int], *, everything: bool, dry_run: bool
) -> Iterator[RecoveredPartition]:
    """Read the files that a node holds; all that are there if `node` is None, because it is not known.

    Raises `CorruptObject` if the schemas are damaged, `NewerFormat`, `StoreError`.
    """
    schemas = schema.decode_all(state.schemas, f"topic {state.name!r}")
    checked: dict[int, list[str]] = defaultdict(list)
    rebuilt: dict[int, list[str]] = defaultdict(list)
    bad: dict[int, tuple[int, BadFile]] = {}
    for file in replica_file.files_of(state):
        rows = faults.rows_of(state, file)
        if not everything:
            rows = [each for each in rows if each.end_offset > points.get(each.partition, 0)]
        if not rows:
            continue
        if not (replica_file.is_stored(store, file) if node is None else replicas.is_held(file.holders, node)):
            continue
        for each in rows:
            checked[each.partition].append(file.key)
        for fault in faults.faults_of(state, schemas, file, {node or "": store}):
            if fault.wrong is Wrong.INDEX:
                rebuilt[file.number].append(file.key)
                if not dry_run:
                    replica_file.check(store, file)
            else:
                for one in fault.rows:
                    found = one.base_offset, BadFile(file.key, one.why)
                    bad[one.partition] = min(found, bad.get(one.partition, found), key=lambda each: each[0])
    for number in sorted({*points, *checked}):
        partition = state.partitions[number]
        end = partition.log_end
        if node is not None:
            end = replicas.log_end_offset(state, partition, node, partition.log_start)
        good_up_to, damage = bad.get(number, (end, None))
        done = tuple(checked[number]), tuple(rebuilt[number])
        point = points.get(number, 0)
        yield RecoveredPartition(state.name, state.topic_id, number, point, good_up_to, *done, damage)


class Stray(msgspec.Struct, frozen=True):
    """A segment in a node's folder that no entry names: an election has cut its rows from `cut` on off the log."""

    topic: str
    partition: int
    key: str
    """Without ending."""
    base_offset: int
    end_offset: int
    cut: int


def strays(handle: TopicHandle, node_id: NodeId) -> list[Stray]:
    """Return the strays of a topic in a node's folder. Raises `NodeMissing`, `NewerFormat`, `StoreError`."""
    store = handle.log.node_store(node_id)
    require_marker(store, node_id, handle.log.node(node_id).incarnation)
    stored = NodeFolder(store, TopicFolder(handle.name, handle.topic_id)).segments
    state = handle.refresh()
    found = []
    for number, partition in enumerate(state.partitions):
        named = {handle.segment(number, each.name) for each in partition.segments}
        for key in (key for at, key in stored if at == number and key not in named):
            epochs, end = _epochs_and_end(store, key)
            cut = truncation.divergence(epochs, end, partition.epoch_starts, partition.log_end)
            if epochs and cut < end:
                found.append(Stray(handle.name, number, key, layout.base_offset_of(key), end, cut))
    return found


def remove_strays(handle: TopicHandle, node_id: NodeId, found: list[Stray]) -> None:
    """Delete strays of a topic that were found on a node. Raises `StoreError`."""
    node = ReachableStores({node_id: handle.log.node_store(node_id)}, is_single=True)
    delete_files(handle, node, {node_id: [key for each in found for key in layout.segment_files(each.key)]})


def _epochs_and_end(store: Store, key: str) -> tuple[EpochStarts, int]:
    """Return the leader epochs in a segment's header, and its end; no epochs if it is damaged."""
    try:
        epochs = segment.epochs_of(store, key)
        with contextlib.suppress(CorruptObject, ObjectMissing):
            return epochs, index.read(store, key)[-1].end_offset
        return epochs, segment.scan(store, key)[-1].end_offset
    except (CorruptObject, ObjectMissing):
        return (), layout.base_offset_of(key)  # if it is no stray, `recover` reports it
