"""Verify: an audit of everything that a topic, or the cluster itself, has stored. Changes nothing.

journal       every kept entry: checksum, hash chain, events, no hole; snapshots against the folded state;
              states that are possible: offsets without gap or overlap, log start <= HW <= LEO, epochs that rise
producers     batch ids rise
replicas      LEO, HW, ISR and leader against the files that each node holds
segments      on every holder: each chunk's checksum and rows, the index against the .log, both against the journal, and
              the same bytes on all holders; of keyed segments that a key has one live row
append files  on every holder: each unrolled chunk's checksum and rows
descriptions  on every node: whole, and of this topic
orphans       files that no entry names; these are no fault
journals' objects   each on each store: whole, and written for the key under which it is
cluster       its journal in the same way, topic folders that it does not know, and journal nodes that do not answer, or
              whose list of journal nodes is damaged

Of a journal on several stores the decided entries are read, and the objects on each store are checked. Entries older
than the newest snapshot may be missing because the journal was trimmed.
"""

from __future__ import annotations

import contextlib
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from pyspark_log_coordinator.cluster.nodes import node_of
from pyspark_log_coordinator.journal.history import history
from pyspark_log_coordinator.journal.trimming import oldest_kept
from pyspark_log_coordinator.log import topic_description
from pyspark_log_coordinator.log.reachable_stores import reachable_stores
from pyspark_log_coordinator.maintenance import cluster_cleanup, topic_cleanup
from pyspark_log_coordinator.model.partition import named
from pyspark_log_coordinator.replication import replicas
from pyspark_log_coordinator.sync import faults, replica_file
from pyspark_log_coordinator.sync.faults import Wrong
from pyspark_log_coordinator.topic.sequencing import BatchSequenced
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, LogError, NewerFormat, ObjectMissing, UnknownTopic
from pyspark_log_storage.stores.failover import AllCopiesFailed, first_readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from pyspark_log_coordinator.cluster.cluster_state import GroupRecord
    from pyspark_log_coordinator.journal.journal import Journal
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.partition import Holder, NodeId
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.sync.faults import Fault


class Finding(msgspec.Struct, frozen=True):
    """A fault. `repairable` if `repair` can undo it without loss."""

    what: str
    """The object or place that is wrong, with its node or group."""
    detail: str
    """What is wrong. It is often the message of an error, which may begin with `what`."""
    repairable: bool = False
    node: str | None = None
    """The node with the copy, or None if no single node is concerned."""
    partition: int | None = None
    offset: int | None = None
    """The first row that is concerned."""


class Report(msgspec.Struct):
    topic: str | None
    """None for the cluster itself, which has no rows and no segments."""
    findings: list[Finding] = []
    entries: int = 0
    """The entries read: those that the journals still have after their oldest snapshot."""
    rows: int = 0
    bytes: int = 0
    """The bytes read, of all copies."""
    segments: int = 0
    orphans: list[str] = []
    """Their keys, after the node's name if there are several nodes."""

    @property
    def sound(self) -> bool:
        return not self.findings

    def document(self) -> dict[str, Any]:
        """Return the report as JSON has it."""
        return msgspec.structs.asdict(self) | {"findings": [msgspec.structs.asdict(each) for each in self.findings]}


class ReadableCopies:
    """The nodes of a cluster whose copies are read, or the one node whose copies are checked."""

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
        self.readable = [name for name in members if name not in self.missing]
        self.nodes = [name for name in self.readable if only in (None, name)]
        """The nodes to check."""
        self._only = only

    def missing_of(self, holders: Iterable[NodeId]) -> list[NodeId]:
        """Return the holders that should be checked, but cannot be read."""
        return [name for name in holders if name in self.missing and self._only in (None, name)]

    def is_expected(self, node: NodeId) -> bool:
        """Return whether a node should be readable. A fenced one should be only if it was asked for."""
        return node not in self._unexpected


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
    for number, partition in enumerate(state.partitions):
        if not copies.is_single:
            report.findings += _replication(state, number)
        report.rows += partition.rows_between(partition.log_start, partition.log_end)
        report.segments += len(partition.segments)

    def read(count: int) -> None:
        report.bytes += count
        progress(count)

    report.findings += _unreadable(handle, copies)
    report.findings += _faults(handle, copies, read)
    for number in range(len(state.partitions)):
        report.findings += _live_rows(handle, copies, number)
    for name in copies.nodes:
        try:
            report.findings += _description(handle, copies, name)
            found = topic_cleanup.orphans(handle.log.node_store(name), handle)
        except LogError as error:
            if copies.is_single:
                raise
            report.findings.append(Finding(f"node {name!r}", error.message, node=name))
        else:
            report.orphans += found if copies.is_single else [f"node {name}: {key}" for key in found]
    return report


def bytes_to_read(handle: TopicHandle, node: NodeId | None = None) -> int:
    """Return the number of bytes that an audit of the topic will read."""
    copies, state = ReadableCopies(handle.log, node), handle.journal.state
    files = replica_file.files_of(state)
    return sum(
        faults.bytes_of(each) * len(set(copies.nodes).intersection(_current(state, each.holders))) for each in files
    )


def _unreadable(handle: TopicHandle, copies: ReadableCopies) -> Iterator[Finding]:
    """Yield the files that no node has that can be read, and the nodes that cannot be read."""
    state = handle.journal.state
    away: set[NodeId] = set()
    for file in replica_file.files_of(state):
        holders = _current(state, file.holders)
        missing = copies.missing_of(holders)
        away.update(missing)
        if not copies.is_of_one_node and not set(copies.readable).intersection(holders):
            gone = f"all of its holders ({named(missing)}) are missing; bring one back" if missing else "no node has it"
            for rows in faults.rows_of(state, file):
                fault = faults.Fault("", file, (msgspec.structs.replace(rows, why=gone),))
                yield from _findings(copies, fault, repairable=False)
    for name in sorted(filter(copies.is_expected, away)):
        yield Finding(f"node {name!r}", copies.missing[name].message, node=name)


def _faults(handle: TopicHandle, copies: ReadableCopies, moved: Callable[[int], object]) -> Iterator[Finding]:
    """Read all copies, and yield what is wrong with them."""
    found = faults.faults(handle, copies.nodes, moved)
    for _, of_file in itertools.groupby(found, key=lambda each: each.file.key):
        here = list(of_file)
        bad = {each.node for each in here if each.wrong is Wrong.ROWS}
        for each in here:
            others = set(_current(handle.journal.state, each.file.holders)).intersection(copies.readable) - bad
            repairable = each.wrong is Wrong.INDEX or (each.wrong is Wrong.ROWS and bool(others))
            yield from _findings(copies, each, repairable=repairable)


def _findings(copies: ReadableCopies, fault: Fault, *, repairable: bool) -> Iterator[Finding]:
    """Yield what is wrong with a copy, a finding for each of its rows."""
    node = None if copies.is_single or not fault.node else fault.node
    within = "" if node is None else f"node {node!r}, "
    for rows in fault.rows:
        where = f"{within}partition {rows.partition}, offset {rows.base_offset}"
        yield Finding(where, rows.why, repairable, node, rows.partition, rows.base_offset)


def _live_rows(handle: TopicHandle, copies: ReadableCopies, number: int) -> Iterator[Finding]:
    """Check that each key has one live row in a partition's head, as far as that can be read."""
    state = handle.journal.state
    head = state.partitions[number].keyed_segments
    segments = [each for each in head if each.keyed is not None and each.keyed.placeholder is None]
    if not segments:
        return
    from pyspark_log_coordinator.audit import live_rows
    from pyspark_log_storage.columns.keys import keys_in
    from pyspark_log_storage.parquet import parquet_footer, row_group  # imports pyarrow.parquet

    schemas, columns = handle.schemas, state.config.compaction_columns

    def keys() -> Iterator[tuple[pa.Array, NDArray[np.int64]]]:
        for ref in segments:
            key, holders = handle.segment(number, ref.name), _current(state, ref.holders)
            stores = [handle.log.node_store(each) for each in holders if each in copies.readable]
            footer = first_readable(stores, partial(parquet_footer.read, key=key))
            for entry in footer.entries:
                read = partial(
                    row_group.keyed_rows, key=key, footer=footer, entry=entry, schemas=schemas, columns=columns.keys
                )
                rows, offsets = first_readable(stores, read)
                yield keys_in(rows, columns), offsets

    with contextlib.suppress(AllCopiesFailed, NewerFormat):  # reported already, or replaced meanwhile
        twice = live_rows.of_one_key(keys)
        if twice:
            older = min(twice)
            problem = (
                f"the key of the row at offset {older} has another row in the head of the partition, and readers of "
                f"the newest rows get both; there are {len(twice):,} such rows. Write the newest row of the key "
                "again, and compact"
            )
            yield Finding(f"partition {number}, offset {older}", problem, partition=number, offset=older)


def _description(handle: TopicHandle, copies: ReadableCopies, name: NodeId) -> Iterator[Finding]:
    node, within = (None, "") if copies.is_single else (name, f"node {name!r}, ")
    try:
        topic_description.read(handle.log.node_store(name), handle.name, handle.topic_id)
    except ObjectMissing:
        return
    except CorruptObject as error:
        key = topic_description.key(handle.name, handle.topic_id)
        yield Finding(f"{within}{key}", str(error), repairable=True, node=node)


def verify_cluster(log: Log) -> Report:
    """Audit the journals of the cluster and of its groups, and the folders of topics that it does not know."""
    report = Report(None)
    try:
        log.cluster.refresh()
        report.findings += _journal(log.cluster, report)
        stores = reachable_stores(log)
        for name, topic_id in cluster_cleanup.deleted_topics(log, stores):
            report.findings += _unknown_topic(log, name, topic_id)
        for record in log.groups().values():
            report.findings += _group(log, record, report)
        report.orphans = cluster_cleanup.temporary_files(stores, dry_run=True)
        for name, error in log.journals.missing_nodes().items():
            is_list = isinstance(error, CorruptObject) and error.object.endswith(layout.JOURNAL_NODES)
            report.findings.append(Finding(f"journal node {name!r}", error.message, repairable=is_list))
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
    last: dict[str, int] = {}
    for number, events, *_ in history(journal):
        report.entries += 1
        for event in events:
            if isinstance(event, BatchSequenced) and event.claim is not None:
                before = last.get(event.claim.producer)
                if before is not None and event.claim.batch_id <= before and not event.claim.take_over:
                    detail = f"producer {event.claim.producer!r} wrote batch {event.claim.batch_id} after {before}"
                    yield Finding(f"journal entry {number}", detail)
                last[event.claim.producer] = event.claim.batch_id


def _group(log: Log, record: GroupRecord, report: Report) -> Iterator[Finding]:
    journal = log.group_handle(record).journal
    where = f"group {record.group_id!r}"
    try:
        if journal.refresh().started:
            for each in _journal(journal, report):
                yield msgspec.structs.replace(each, what=f"{where}, {each.what}")
    except LogError as error:
        yield Finding(where, error.message)


def _unknown_topic(log: Log, name: str, topic_id: str) -> Iterator[Finding]:
    """Check that a topic that the cluster does not know was deleted."""
    folder = layout.topic_folder(name, topic_id)
    try:
        state = log.journals.of_topic(name, topic_id).refresh()
    except LogError as error:
        yield Finding(folder, str(error))
        return
    if state.started and not state.deleted:
        detail = "it was not deleted, and the cluster does not know it; is the cluster's journal an old copy?"
        yield Finding(folder, detail)


def _replication(state: Topic, number: int) -> Iterator[Finding]:
    """Compare a partition's replicas with the holders of its files."""
    partition = state.partitions[number]
    where = f"partition {number}"
    for name, end in partition.log_end_offsets.items():
        held = replicas.log_end_offset(state, partition, name, partition.log_start)
        if end > held:
            detail = f"the LEO of node {name!r} is {end}, but it holds rows up to {held} only"
            yield Finding(where, detail, node=name, partition=number, offset=held)
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
