"""Verify: an audit of everything that a topic, or the cluster itself, has stored. Changes nothing.

journal       every kept entry: checksum, hash chain, events, manifest, no hole; snapshots against the folded state
producers     batch ids rise
partitions    no gap, no overlap, log start <= HW <= LEO, epochs rise
replicas      LEO, HW, ISR and leader against the files that each node holds
segments      on every holder: each chunk's checksum and rows, the index against the .log, both against the journal, and
              the same bytes on all holders; of keyed segments the key index against the rows' keys, too, and
              that a key has one live row
append files  on every holder: each unrolled chunk's checksum and rows
checkpoints   on every node: whole, of this topic, and no other leader epochs than the journal's
orphans       files that no entry names; these are no fault
journals' objects   each on each store: whole, and written for the key under which it is
cluster       its journal in the same way, topic folders that it does not know, and journal nodes that do not answer

Of a journal on several stores the decided entries are read, and the objects on each store are checked. Entries older
than the newest snapshot may be missing because the journal was trimmed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pyspark_log_coordinator.cluster.nodes import node_of
from pyspark_log_coordinator.journal.history import history
from pyspark_log_coordinator.journal.trimming import oldest_kept
from pyspark_log_coordinator.maintenance import checkpoint_files, cluster_cleanup, topic_cleanup
from pyspark_log_coordinator.model.partition import ChunkRef, SegmentRef, named
from pyspark_log_coordinator.replication import replicas
from pyspark_log_coordinator.sync.replica_file import check_segment
from pyspark_log_coordinator.topic.sequencing import BatchSequenced
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, LogError, NewerFormat, UnknownTopic
from pyspark_log_storage.files import append_file
from pyspark_log_storage.segments import segment
from pyspark_log_storage.stores.failover import AllCopiesFailed, first_readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark_log_coordinator.cluster.groups import GroupRecord
    from pyspark_log_coordinator.journal.journal import Journal
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import Holder, NodeId, Partition
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_storage.files.index import IndexEntry
    from pyspark_log_storage.files.row_files import EpochStarts
    from pyspark_log_storage.stores.store import Store

T = TypeVar("T")


class Finding(msgspec.Struct, frozen=True):
    """A fault. `repairable` if `repair` can undo it without loss."""

    where: str
    """The object or place that is wrong, in its topic, node or group."""
    problem: str
    """What is wrong. It is often the message of an error, which may begin with `where`."""
    repairable: bool = False
    node: str | None = None
    """The node with the copy, or None if no single node is concerned."""
    partition: int | None = None
    offset: int | None = None
    """The first row that is concerned."""
    within: str = ""
    """The node or group that has it, and a comma; empty if that needs no mention."""
    topic: str = ""
    """The topic that has it, in the same way."""

    @property
    def what(self) -> str:
        """The object or place that is wrong, as in a list of findings about many topics."""
        return f"{self.within}{self.topic}{self.where}"

    @property
    def detail(self) -> str:
        """What is wrong, as in a list of findings about many topics."""
        return f"{self.topic}{self.problem}" if self._says_where else self.problem

    @property
    def sentence(self) -> str:
        """What is wrong and where, once, for people who know the topic."""
        return f"{self.within}{self.problem if self._says_where else f'{self.where}: {self.problem}'}"

    @property
    def _says_where(self) -> bool:
        return self.problem.startswith(f"{self.where} ")

    def document(self) -> dict[str, Any]:
        """Return the finding as JSON has it."""
        return {
            "what": self.what,
            "detail": self.detail,
            "repairable": self.repairable,
            "node": self.node,
            "partition": self.partition,
            "offset": self.offset,
        }


class Report(msgspec.Struct):
    """The result of an audit."""

    topic: str | None
    """None for the cluster itself, which has no rows and no segments."""
    findings: list[Finding] = []
    entries: int = 0
    rows: int = 0
    bytes: int = 0
    """The bytes read, of all copies."""
    segments: int = 0
    orphans: list[str] = []
    """Their keys, after the node's name if there are several nodes."""

    @property
    def sound(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    def document(self) -> dict[str, Any]:
        """Return the report as JSON has it."""
        return {**msgspec.structs.asdict(self), "findings": [each.document() for each in self.findings]}


class ReadableCopies:
    """The stores of a cluster's nodes, or of one node if only its copies are checked."""

    def __init__(self, log: Log, only: NodeId | None = None) -> None:
        """`log` is open. Raises `InvalidOption` if there is no node `only`."""
        members = log.cluster.state.nodes
        if only is not None:
            node_of(members, only)
        self.is_single = len(members) == 1
        """Whether the cluster has one node."""
        self.is_of_one_node = only is not None
        fenced = [each for each in members.values() if each.fenced and not self.is_single]
        silent = log.probe([(each, log.node_store(each.node_id)) for each in fenced]) if fenced else {}
        self.missing: dict[NodeId, LogError] = {
            name: error for name, error in {**log.missing_nodes, **silent}.items() if name in members
        }
        """The errors of the nodes that cannot be read."""
        self._unexpected = set(silent) - {only}
        self._all = {name: log.node_store(name) for name in members if name not in self.missing}
        self.stores: dict[NodeId, Store] = {name: each for name, each in self._all.items() if only in (None, name)}
        """The stores to check."""
        self._only = only

    def of(self, state: Topic, holders: Iterable[Holder]) -> dict[NodeId, Store]:
        """Return the stores to check that must have a file of these holders."""
        return {name: self.stores[name] for name in _current(state, holders) if name in self.stores}

    def missing_of(self, state: Topic, holders: Iterable[Holder]) -> list[NodeId]:
        """Return the holders that should be checked, but cannot be read."""
        return [name for name in _current(state, holders) if name in self.missing and self._only in (None, name)]

    def is_expected(self, node: NodeId) -> bool:
        """Return whether a node should be readable. A fenced one should be only if it was asked for."""
        return node not in self._unexpected

    def to_copy_from(self, state: Topic, holders: Iterable[Holder], node: NodeId) -> dict[NodeId, Store]:
        """Return the other nodes' stores from which a node's copy can be repaired."""
        return {name: self._all[name] for name in _current(state, holders) if name in self._all and name != node}


def _current(state: Topic, holders: Iterable[Holder]) -> list[NodeId]:
    return [each.node for each in replicas.of_current_incarnations(state, holders)]


def verify(
    handle: TopicHandle, progress: Callable[[int], object] = lambda _: None, node: NodeId | None = None
) -> Report:
    """Audit a topic, or one node's copies if `node` is given.

    Call `progress` with the number of bytes read since the last call. What others roll, merge or delete meanwhile is no
    fault. Raises `InvalidOption` if there is no such node, `UnknownTopic` if the topic was deleted before.
    """
    report = Report(handle.name)
    copies = ReadableCopies(handle.log, node)
    try:
        handle.refresh()
        report.findings += _journal(handle.journal, report)
        state = handle.journal.state
    except UnknownTopic:
        raise
    except LogError as error:
        # Without the state nothing else can be checked.
        report.findings.append(Finding("journal", str(error)))
        return report
    audit = _Audit(handle, state, copies, report, progress)
    for number, partition in enumerate(state.partitions):
        report.findings += _bounds(number, partition)
        if not copies.is_single:
            report.findings += _replication(state, number)
        for rows in _rows_of(state, number):
            audit.read(rows)
        audit.read_live_rows(number)
        report.rows += partition.rows_between(partition.log_start, partition.log_end)
    audit.end()
    return report


def bytes_to_read(handle: TopicHandle, node: NodeId | None = None) -> int:
    """Return the number of bytes that an audit of the topic will read."""
    copies, state = ReadableCopies(handle.log, node), handle.journal.state
    rows = (each for number in range(len(state.partitions)) for each in _rows_of(state, number))
    return sum(each.bytes * len(copies.of(state, each.holders)) for each in rows)


class _Rows(msgspec.Struct, frozen=True):
    """A chunk or segment of a partition, which each of its holders should have."""

    partition: int
    ref: SegmentRef | ChunkRef
    bytes: int
    holders: tuple[Holder, ...]

    @property
    def where(self) -> str:
        """The partition and the first row."""
        return f"partition {self.partition}, offset {self.ref.base_offset}"


def _rows_of(state: Topic, number: int) -> list[_Rows]:
    """Return what the journal names of a partition: its segments, then its unrolled chunks."""
    partition = state.partitions[number]
    segments = [_Rows(number, each, each.log_bytes, each.holders) for each in partition.all_segments]
    return segments + [_Rows(number, each, each.length, state.file(each.file).holders) for each in partition.chunks]


class _Audit:
    """Reads the copies of a topic's files, and adds findings to the report."""

    def __init__(
        self,
        handle: TopicHandle,
        state: Topic,
        copies: ReadableCopies,
        report: Report,
        progress: Callable[[int], object],
    ) -> None:
        self._handle = handle
        self._state = state
        self._copies = copies
        self._report = report
        self._progress = progress
        self._missing: set[NodeId] = set()
        """Missing nodes that hold files."""

    def read(self, rows: _Rows) -> None:
        """Read a segment or an unrolled chunk on every holder."""
        if isinstance(rows.ref, ChunkRef):
            self._chunk(rows, rows.ref)
        else:
            self._segment(rows, rows.ref)

    def _chunk(self, rows: _Rows, ref: ChunkRef) -> None:
        key, place = self._handle.append_file(self._state.file(ref.file).name), ref.place(rows.partition)
        schemas = self._handle.schemas
        self._read_copies(rows, lambda _, store: append_file.read_chunk(store, key, place, schemas, rows.where))

    def _segment(self, rows: _Rows, ref: SegmentRef) -> None:
        """Read a segment on every holder, and compare the copies."""
        key = self._handle.segment(rows.partition, ref.name)
        whole: dict[NodeId, tuple[EpochStarts, list[IndexEntry]]] = {}

        def read(name: NodeId, store: Store) -> None:
            entries = segment.scan(store, key, self._handle.schemas, self._state.config.compaction_columns)
            check_segment(ref, entries, store.size(layout.segment_file(key)))
            if not segment.index_is_right(store, key, entries):
                self._add(rows, f"it does not match the {layout.ending(key)}", name, repairable=True, ending=".index")
            epochs = () if self._copies.is_single else segment.epochs_of(store, key)[1]
            whole[name] = epochs, entries

        self._report.segments += 1
        self._read_copies(rows, read)
        first = next(iter(whole), None)
        for name, found in whole.items():
            if first is not None and found != whole[first]:
                detail = f"its chunks differ from those on node {first!r}, though each is whole; restore the right one"
                self._add(rows, detail, name)

    def read_live_rows(self, number: int) -> None:
        """Check that each key has one live row in a partition's keyed segments, as far as these can be read."""
        segments = self._state.partitions[number].keyed_segments
        if not segments:
            return
        from pyspark_log_coordinator.audit import live_rows
        from pyspark_log_storage.parquet import keyed_segment  # imports pyarrow.parquet

        def by(read: Callable[[Store, str], T]) -> Callable[[SegmentRef], T]:
            def found(ref: SegmentRef) -> T:
                key, stores = self._handle.segment(number, ref.name), self._copies.of(self._state, ref.holders)
                return first_readable(stores.values(), lambda store: read(store, key))

            return found

        with contextlib.suppress(AllCopiesFailed, NewerFormat):  # reported already, or replaced meanwhile
            twice = live_rows.of_one_key(segments, by(keyed_segment.read_superseded), by(keyed_segment.read_keys))
            if twice:
                older, newer = min(twice)
                problem = (
                    f"the key of the row at offset {older} has another live row, at offset {newer}, and readers of the "
                    f"newest rows get both; there are {len(twice):,} such rows. Write the newest row of the key again, "
                    "and compact"
                )
                where, topic = f"partition {number}, offset {older}", f"topic {self._handle.name!r}, "
                finding = Finding(where, problem, partition=number, offset=older, topic=topic)
                self._report.findings.append(finding)

    def _read_copies(self, rows: _Rows, read: Callable[[NodeId, Store], object]) -> None:
        """Call `read` for each copy of a chunk or segment, and report those for which it raises a `LogError`."""
        stores = self._copies.of(self._state, rows.holders)
        missing = self._copies.missing_of(self._state, rows.holders)
        self._missing.update(missing)
        if not stores and not self._copies.is_of_one_node:
            names = named(missing)
            detail = f"all of its holders ({names}) are missing; bring one back" if missing else "no node has it"
            self._add(rows, detail)
        damaged: dict[NodeId, str] = {}
        for name, store in stores.items():
            try:
                read(name, store)
            except LogError as error:
                damaged[name] = str(error)
            self._report.bytes += rows.bytes
            self._progress(rows.bytes)
        needed = self._holders_now(rows) if damaged else ()
        for name, detail in damaged.items():
            if name not in needed:
                continue
            others = self._copies.to_copy_from(self._state, rows.holders, name)
            self._add(rows, detail, name, repairable=any(each not in damaged for each in others))

    def _holders_now(self, rows: _Rows) -> list[NodeId]:
        """Return the nodes that must still have a chunk or segment: it may have been rolled, moved or deleted since."""
        try:
            state = self._handle.refresh()
        except UnknownTopic:
            return []
        except LogError:
            state = self._state
        ref, partition = rows.ref, state.partitions[rows.partition]
        if isinstance(ref, ChunkRef):
            chunks = partition.chunks_between(ref.base_offset, ref.end_offset)
            files = [state.file(each.file) for each in chunks if each.file == ref.file]
            return _current(state, files[0].holders) if files else []
        segments = (*partition.segments_between(ref.base_offset, ref.end_offset), *partition.staged)
        return [node for each in segments if each.name == ref.name for node in _current(state, each.holders)]

    def _add(
        self, rows: _Rows, problem: str, node: NodeId | None = None, *, repairable: bool = False, ending: str = ""
    ) -> None:
        where, topic = rows.where, f"topic {self._handle.name!r}, "
        if isinstance(rows.ref, SegmentRef):
            segment_where = f"segment {self._handle.segment(rows.partition, rows.ref.name)}{ending}"
            where, topic = (segment_where, "") if self._copies.is_single else (f"{where}, {segment_where}", topic)
        node, within = self._at(node)
        offset = rows.ref.base_offset
        self._report.findings.append(Finding(where, problem, repairable, node, rows.partition, offset, within, topic))

    def _at(self, node: NodeId | None) -> tuple[NodeId | None, str]:
        """Return a node as a finding names it: not at all if there is no other one."""
        return (None, "") if self._copies.is_single or node is None else (node, f"node {node!r}, ")

    def end(self) -> None:
        """Report the missing nodes and the orphans."""
        for name in sorted(filter(self._copies.is_expected, self._missing)):
            self._report.findings.append(Finding(f"node {name!r}", self._copies.missing[name].message, node=name))
        for name, store in self._copies.stores.items():
            try:
                self._checkpoints(name, store)
                found = topic_cleanup.orphans(store, self._handle)
            except LogError as error:
                if self._copies.is_single:
                    raise
                self._report.findings.append(Finding(f"node {name!r}", error.message, node=name))
            else:
                self._report.orphans += found if self._copies.is_single else [f"node {name}: {key}" for key in found]

    def _checkpoints(self, name: NodeId, store: Store) -> None:
        folder = layout.topic_folder(self._handle.name, self._handle.topic_id)
        for key, error in checkpoint_files.damaged(store, folder, self._state, name):
            node, within = self._at(name)
            finding = Finding(f"checkpoint {folder}{key}", str(error), repairable=True, node=node, within=within)
            self._report.findings.append(finding)


def verify_cluster(log: Log) -> Report:
    """Audit the journals of the cluster and of its groups, and the folders of topics that it does not know."""
    report = Report(None)
    try:
        log.cluster.refresh()
        report.findings += _journal(log.cluster, report)
        for name, topic_id in cluster_cleanup.deleted_topics(log):
            report.findings += _unknown_topic(log, name, topic_id)
        for record in log.groups().values():
            report.findings += _group(log, record, report)
        report.orphans = cluster_cleanup.abandoned_temporary_files(log)
        for name, error in log.journals.missing_nodes().items():
            report.findings.append(Finding(f"node {name!r}", error.message, within="journal "))
    except LogError as error:
        report.findings.append(Finding("journal", str(error)))
    return report


def _journal(journal: Journal[Any, Any], report: Report) -> Iterator[Finding]:
    """Look at each object, then read the kept entries from the oldest snapshot, and compare them with the state."""
    damage = journal.objects.damage(oldest_kept(journal))
    for each in damage:
        yield Finding(f"journal object {each.url}/{each.key}", each.detail, repairable=each.good is not None)
    try:
        yield from _entries(journal, report)
    except CorruptObject as error:
        if not any(each.key in error.object for each in damage):
            raise


def _entries(journal: Journal[Any, Any], report: Report) -> Iterator[Finding]:
    # Listed before the refresh: an entry that the refresh does not reach is after a hole.
    later = list(journal.entries.numbers_after(journal.number))
    journal.refresh()
    if any(number > journal.number for number in later) and journal.entries.newest_after(journal.number):
        detail = f"it is missing, but entry {max(later)} exists: all decisions from it on are lost"
        yield Finding(journal.entries.name(journal.number + 1), detail)
    last: dict[str, int] = {}
    folded, reached = None, 0
    for number, events, after, *_ in history(journal):
        folded, reached = after, number
        report.entries += 1
        for event in events:
            if isinstance(event, BatchSequenced) and event.claim is not None:
                before = last.get(event.claim.producer)
                if before is not None and event.claim.batch_id <= before and not event.claim.take_over:
                    detail = f"producer {event.claim.producer!r} wrote batch {event.claim.batch_id} after {before}"
                    yield Finding(f"journal entry {number}", detail)
                last[event.claim.producer] = event.claim.batch_id
    # If the journal was trimmed or migrated in the meantime, the end was not reached.
    if folded is not None and reached == journal.number and folded != journal.state:
        yield Finding("journal", "a replay of the kept entries gives another state than the snapshot")


def _group(log: Log, record: GroupRecord, report: Report) -> Iterator[Finding]:
    """Audit the journal of a group."""
    journal = log.group_handle(record).journal
    where = f"group {record.group_id!r}"
    try:
        if journal.refresh().started:
            for each in _journal(journal, report):
                yield msgspec.structs.replace(each, within=f"{where}, {each.within}")
    except LogError as error:
        yield Finding(where, error.message)


def _unknown_topic(log: Log, name: str, topic_id: str) -> Iterator[Finding]:
    """Check that a topic that the cluster does not know was deleted."""
    folder = layout.topic_folder(name, topic_id)
    try:
        state = cluster_cleanup.journal_of(log, name, topic_id).refresh()
    except LogError as error:
        yield Finding(folder, str(error))
        return
    if state.started and not state.deleted:
        detail = "it was not deleted, and the cluster does not know it; is the cluster's journal an old copy?"
        yield Finding(folder, detail)


def _bounds(number: int, partition: Partition) -> Iterator[Finding]:
    where = f"partition {number}"
    low, high, end = partition.log_start, partition.high_watermark, partition.log_end
    if not low <= high <= end:
        yield Finding(where, f"log start {low}, HW {high} and LEO {end} are not in order")
    expected = None
    pieces: list[SegmentRef | ChunkRef] = [*partition.segments, *partition.chunks]
    for piece in pieces:
        if expected is not None and piece.base_offset != expected:
            yield Finding(where, f"offset {expected} is followed by {piece.base_offset}: a gap or an overlap")
        expected = piece.end_offset
    if expected is not None and expected != end:
        yield Finding(where, f"the last segment or chunk ends at {expected}, the log at {end}")
    first = pieces[0].base_offset if pieces else end
    if first > low:
        yield Finding(where, f"rows from {low} to {first - 1} are missing")
    epochs = partition.epoch_starts
    if sorted(epochs) != list(epochs) or len({epoch for epoch, _ in epochs}) != len(epochs):
        yield Finding(where, f"leader epochs do not rise: {epochs}")


def _replication(state: Topic, number: int) -> Iterator[Finding]:
    """Compare a partition's replicas with the holders of its files."""
    partition = state.partitions[number]
    where = f"partition {number}"
    for name, end in partition.log_end_offsets.items():
        held = replicas.log_end_offset(state, partition, name, partition.log_start)
        if end > held:
            detail = f"the LEO of node {name!r} is {end}, but it holds rows up to {held} only"
            yield Finding(where, detail, node=name, partition=number, offset=held)
    if not set(partition.isr) <= set(partition.replicas):
        detail = (
            f"the ISR ({', '.join(partition.isr)}) has nodes besides the replicas ({', '.join(partition.replicas)})"
        )
        yield Finding(where, detail, partition=number)
        return
    if not replicas.by_majority(state.config):
        for name in partition.isr:
            end = partition.log_end_offsets[name]
            if end < partition.high_watermark:
                detail = f"node {name!r} is in the ISR, but its LEO {end} is below the HW {partition.high_watermark}"
                yield Finding(where, detail, node=name, partition=number, offset=end)
    if partition.leader is not None and partition.leader_end < partition.log_end:
        end = partition.leader_end
        detail = f"node {partition.leader!r} is the leader, but its LEO {end} is not the log end {partition.log_end}"
        yield Finding(where, detail, node=partition.leader, partition=number, offset=end)
