"""Faults: copies of a topic's files that are damaged or lost. One walk finds them, and one cure replaces them.

A node's own process scrubs it: it walks over every file that the node holds, and cures what it finds, as HDFS's block
scanner does. Readers find damage too, but they read mostly new rows, and may have no right to write to a node.

A copy is whole if its bytes are those that the journal names (checksum, base and end offset, length), its rows can be
decoded, and its index is right. `faults` reads the copies on any nodes; `verify` prints what it yields, `scrub` and
`verify --repair` cure it. What looks damaged is read a second time by the topic's newest state, because a disk may
be misread once, and because a file may have been rolled, moved or deleted since.

`cure` copies the file from the nearest holder that has it whole, and replaces the damaged copy atomically. It writes
nothing to the journal: a damaged copy counts until it is replaced, seconds after it is found. If no node has the file
whole, nothing is changed, and the error names the rows.
"""

from __future__ import annotations

import contextlib
import enum
from typing import TYPE_CHECKING

import msgspec

from pyspark_log_coordinator.model.partition import Holder, NodeId, SegmentRef
from pyspark_log_coordinator.replication import replicas
from pyspark_log_coordinator.sync import replica_file
from pyspark_log_coordinator.sync.replica_file import ReplicaFile
from pyspark_log_storage import layout, logs
from pyspark_log_storage.errors import (
    CorruptObject,
    LogError,
    NewerFormat,
    ObjectMissing,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    UnknownTopic,
)
from pyspark_log_storage.files import append_file, index
from pyspark_log_storage.objects.node import require_marker, require_written
from pyspark_log_storage.segments import segment, transfer
from pyspark_log_storage.segments.transfer import ReadAhead

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import pyarrow as pa

    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_storage.files.index import IndexEntry
    from pyspark_log_storage.files.row_files import EpochStarts
    from pyspark_log_storage.stores.store import Readable, Store


ROWS_TOLD = 3
"""Of how many partitions an error names the rows."""


class Wrong(enum.Enum):
    ROWS = "rows"
    """The file is damaged or missing."""
    INDEX = "index"
    """The file is whole, and the index of the segment is damaged or missing."""
    OTHER_ROWS = "other rows"
    """The file is whole, and has other chunks than that of another node, which is whole, too. It cannot be cured."""


class BadRows(msgspec.Struct, frozen=True):
    """Rows `[base_offset, end_offset)` of a partition that a copy has not, and why."""

    partition: int
    base_offset: int
    end_offset: int
    why: str = ""


class Fault(msgspec.Struct, frozen=True):
    """A node's copy of a file that is not whole."""

    node: NodeId
    file: ReplicaFile
    rows: tuple[BadRows, ...]
    wrong: Wrong = Wrong.ROWS

    @property
    def key(self) -> str:
        """The key of the object that is damaged or lost."""
        return f"{self.file.key}.index" if self.wrong is Wrong.INDEX else self.file.stored_key

    @property
    def why(self) -> str:
        """What is wrong first."""
        return self.rows[0].why


class ScrubResult(msgspec.Struct, frozen=True):
    """The outcome of one pass over a node."""

    repaired: tuple[str, ...]
    """The keys of objects that were damaged or lost, and are whole again."""
    failures: tuple[str, ...]
    """Copies that are damaged or lost and could not be copied again."""


def faults(
    handle: TopicHandle, nodes: Collection[NodeId], moved: Callable[[int], object] = lambda _: None
) -> Iterator[Fault]:
    """Yield the copies on these nodes, which answer, that are not whole, file by file.

    `moved` gets the number of bytes read since its last call, and may wait (`Throttle`). What others roll, move or
    delete meanwhile is no fault. Changes nothing.
    """
    stores = {node: handle.log.node_store(node) for node in nodes}
    state = handle.journal.state
    for file in replica_file.files_of(state):
        if not faults_of(state, handle.schemas, file, _of_holders(state, file, stores), moved, is_second=False):
            continue
        try:
            handle.refresh()
        except UnknownTopic:
            return
        except LogError:
            pass  # the known state must do
        newest = _named(handle, file)
        if newest is not None:
            now = handle.journal.state
            yield from faults_of(now, handle.schemas, newest, _of_holders(now, newest, stores))


def faults_of(
    state: Topic,
    schemas: Sequence[pa.Schema],
    file: ReplicaFile,
    stores: Mapping[NodeId, Store],
    moved: Callable[[int], object] = lambda _: None,
    *,
    is_second: bool = True,
) -> list[Fault]:
    """Return the copies of a file on these stores that are not whole.

    The first look reads ahead, and what it finds may be wrong: it needs a second one.
    """
    found: list[Fault] = []
    whole: dict[NodeId, tuple[EpochStarts, list[IndexEntry]]] = {}
    for node, store in stores.items():
        source = store if is_second else ReadAhead(store)
        if file.segment is None:
            rows = _bad_chunks(store, source, file, state, schemas, moved)
            found += [Fault(node, file, rows)] if rows else []
            continue
        (of_all,) = rows_of(state, file)
        try:
            entries = _entries(source, file, file.segment, schemas, moved)
            is_indexed = index.is_right(store, file.key, entries)
            epochs = segment.epochs_of(store, file.key) if len(stores) > 1 else ()
        except LogError as error:
            found.append(Fault(node, file, (msgspec.structs.replace(of_all, why=error.message),)))
            continue
        whole[node] = epochs, entries
        first = next(iter(whole))
        if whole[node] != whole[first]:
            why = f"the chunks of {file.key} differ from those on node {first!r}; restore the right one"
            found.append(Fault(node, file, (msgspec.structs.replace(of_all, why=why),), Wrong.OTHER_ROWS))
        if not is_indexed:
            why = f"{file.key}.index does not match the {layout.ending(file.key)}"
            found.append(Fault(node, file, (msgspec.structs.replace(of_all, why=why),), Wrong.INDEX))
    return found


def bytes_of(file: ReplicaFile) -> int:
    """Return the number of bytes that the walk reads of a whole copy of a file."""
    return sum(each.length for each in file.places) if file.segment is None else file.segment.log_bytes


def cure(handle: TopicHandle, node: NodeId, file: ReplicaFile) -> bool:
    """Make a node's copy of a file whole; return whether that was needed.

    Do nothing if the journal no longer names the copy: its bytes may be deleted at any time. Raises `CorruptObject`
    and changes nothing if no other holder that answers has a whole copy; `NodeMissing`, `NewerFormat`, `StoreError`.
    """
    try:
        state = handle.refresh()
    except UnknownTopic:
        return False
    newest = _named(handle, file)
    if newest is None or not _of_holders(state, newest, {node: handle.log.node_store(node)}):
        return False
    # While the disk is not mounted, the copy would be written below its mount point.
    require_marker(handle.log.node_store(node), node, state.incarnations[node])
    return make_whole(handle, node, newest)


def scrub(log: Log, node_id: NodeId, moved: Callable[[int], object] = lambda _: None) -> ScrubResult:
    """Read every file that a node holds once, and copy damaged and lost ones again.

    `moved` gets the number of bytes read since its last call, and may wait (`Throttle`). Raises `InvalidOption` if
    there is no such node, `NodeMissing` if its store is not the one that the cluster knows, `StoreError` if it does not
    answer. A topic whose journal is damaged, or does not answer during a repair, is a failure; the others continue.
    """
    member, store = log.node(node_id), log.node_store(node_id)
    repaired: list[str] = []
    failures: list[str] = []

    def failed(topic: str, error: LogError) -> None:
        failures.append(f"topic {topic!r}: {error.message}")

    for handle in log.topics_on(node_id, failed=failed):
        for fault in faults(handle, [node_id], moved):
            # A store that answers has a bad file, perhaps on a bad sector. On a disk that is not mounted, all would be
            # copied below the mount point.
            require_marker(store, node_id, member.incarnation)
            try:
                repaired += [fault.key] if cure(handle, node_id, fault.file) else []
            except (CorruptObject, NewerFormat, OutcomeUnknown, StoreError) as why:
                failed(handle.name, why)
    return ScrubResult(tuple(repaired), tuple(failures))


def make_whole(
    handle: TopicHandle, node: NodeId, file: ReplicaFile, moved: Callable[[int], object] = lambda _: None
) -> bool:
    """Copy a file to a node from the nearest holder that has it whole, unless the node has a whole copy.

    Return whether anything was written. A damaged copy on the node is replaced in one step, so that two processes that
    do so do not delete each other's. One that cannot be read may be on a bad sector. Holders whose copies turn out to
    be damaged or lost are cured afterwards. Raises `CorruptObject`, `NewerFormat`, `StoreError` and changes nothing.
    """
    target = handle.log.node_store(node)
    own: CorruptObject | StoreError | None = None
    if replica_file.is_stored(target, file):
        try:
            return replica_file.check(target, file, moved)
        except (CorruptObject, StoreUnavailable) as error:
            own = error
    elif all(each.node == node for each in file.holders):
        own = ObjectMissing(target.url, file.stored_key)
    sources = {handle.log.node_store(each): each for each in replica_file.sources(handle, file.holders, node)}
    is_stored = isinstance(own, (CorruptObject, StoreUnavailable))
    try:
        damaged = replica_file.copy_from_first(list(sources), target, file, moved, replace=is_stored)
    except (CorruptObject, StoreError) as error:
        if not replica_file.is_of_store(error, target):
            raise _no_copy(handle.journal.state, node, file, error if sources or own is None else own) from None
        if is_stored:
            raise
        if not replica_file.is_stored(target, file):
            if type(error) is StoreError:  # the name was taken; the file has expired since
                raise ObjectMissing(target.url, file.key) from error
            raise
        # Another process copied it first.
        replica_file.check(target, file, moved)
        return True
    for source in damaged:
        with contextlib.suppress(LogError):  # what fails is left to the node's own scrubber
            if cure(handle, sources[source], file):
                message = "topic %(topic)r: %(key)s on node %(node)r was damaged or missing; copied it again"
                logs.warning(message, topic=handle.name, key=file.stored_key, node=sources[source])
    return True


def give_copy(handle: TopicHandle, node: NodeId, file: ReplicaFile) -> Holder:
    """Copy a file that no entry names yet to a node; return the node as its holder.

    Raises what `make_whole` raises, and `NodeMissing` if the node's disk is not mounted.
    """
    target, incarnation = handle.log.node_store(node), handle.journal.state.incarnations[node]
    require_marker(target, node, incarnation)
    make_whole(handle, node, file)
    require_written(target, node, incarnation, file.stored_key)
    return Holder(node, incarnation)


def rows_of(state: Topic, file: ReplicaFile) -> list[BadRows]:
    """Return the rows of a file by partition: of an append file from the first that the journal names to the last."""
    if file.segment is not None:
        return [BadRows(file.number, file.segment.base_offset, file.segment.end_offset)]
    found = []
    for number in sorted(file.partitions):
        chunks = [each for each in state.partitions[number].chunks if each.file == file.number]
        if chunks:  # they may have been rolled since
            found.append(BadRows(number, chunks[0].base_offset, chunks[-1].end_offset))
    return found


def _no_copy(state: Topic, node: NodeId, file: ReplicaFile, why: CorruptObject | StoreError) -> LogError:
    """Return the error that no holder has a whole copy of a file for a node, given what one of them answered."""
    rows = _text(rows_of(state, file))
    if isinstance(why, CorruptObject):
        detail = f"no holder that answers has a whole copy of {file.stored_key} ({rows}), which node {node!r} needs"
        return CorruptObject(why.object, f"{why.detail}; {detail}")
    return ObjectMissing(why.url, why.key, rows) if isinstance(why, ObjectMissing) else why


def _text(rows: Sequence[BadRows]) -> str:
    """Return rows as text: those of the first partitions."""
    first, more = rows[:ROWS_TOLD], rows[ROWS_TOLD:]
    told = [f"partition {each.partition}, offsets {each.base_offset} to {each.end_offset - 1}" for each in first]
    return "; ".join([*told, *([f"{len(more)} more partitions"] if more else [])])


def _named(handle: TopicHandle, file: ReplicaFile) -> ReplicaFile | None:
    """Return a file as the topic's known state names it, or None if that does not."""
    return next((each for each in replica_file.files_of(handle.journal.state) if each.key == file.key), None)


def _of_holders(state: Topic, file: ReplicaFile, stores: Mapping[NodeId, Store]) -> dict[NodeId, Store]:
    holders = replicas.of_current_incarnations(state, file.holders)
    return {each.node: stores[each.node] for each in holders if each.node in stores}


def _bad_chunks(
    store: Store,
    source: Readable,
    file: ReplicaFile,
    state: Topic,
    schemas: Sequence[pa.Schema],
    moved: Callable[[int], object],
) -> tuple[BadRows, ...]:
    """Return the rows of an append file that cannot be read.

    Chunks that the journal no longer names are damage, too: nobody could copy the file.
    """
    found = []
    for place in sorted(file.places, key=lambda each: each.position):
        chunks = state.partitions[place.partition].chunks
        try:
            append_file.read_chunk(source, file.key, place, schemas, "the chunk")
        except LogError as error:
            ref = next(each for each in chunks if (each.file, each.position) == (file.number, place.position))
            found.append(BadRows(place.partition, ref.base_offset, ref.end_offset, error.message))
        moved(place.length)
    try:
        if not found and source.size(file.key) > bytes_of(file):
            transfer.check(store, file.key, file.places)
    except LogError as error:
        found = [msgspec.structs.replace(each, why=error.message) for each in rows_of(state, file)]
    return tuple(found)


def _entries(
    store: Readable,
    file: ReplicaFile,
    ref: SegmentRef,
    schemas: Sequence[pa.Schema],
    moved: Callable[[int], object],
) -> list[IndexEntry]:
    """Return the entries of a segment that is the one that the journal names. Raises `LogError`."""
    entries: list[IndexEntry] = []
    left = ref.log_bytes
    try:
        for entry in segment.entries(store, file.key, schemas):
            entries.append(entry)
            moved(min(entry.length, left))
            left -= min(entry.length, left)
    finally:
        moved(left)
    transfer.check_entries(f"segment {file.key}", ref, entries, store.size(file.stored_key))
    return entries
