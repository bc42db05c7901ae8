"""Verify: an offline audit of everything that a topic, or the cluster itself, has stored. Changes nothing.

journal       every kept entry: checksum, hash chain, events, manifest, no hole; snapshots against the folded state
producers     batch numbers rise
partitions    no gap, no overlap, log start <= HW <= LEO, epochs rise
segments      every chunk's checksum, the index against the .log, the journal against both
append files  every unrolled chunk's checksum
orphans       files that nothing names: no damage, only rubbish
cluster       its own journal likewise, and no topic that it has forgotten
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pyspark_log_coordinator import cluster_upkeep, upkeep
from pyspark_log_coordinator.history import history
from pyspark_log_coordinator.sequencing import BatchSequenced
from pyspark_log_storage import append_file, index, layout, segment
from pyspark_log_storage.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_log_coordinator.journal import Journal
    from pyspark_log_coordinator.log import Log, TopicHandle
    from pyspark_log_coordinator.partition import ChunkRef, Partition, SegmentRef
    from pyspark_log_storage.store import Store


class Finding(msgspec.Struct, frozen=True):
    """Something that is not as it should be. `repairable`: can be made again from what is there, without loss."""

    what: str
    """The object or place."""
    detail: str
    repairable: bool = False


class Report(msgspec.Struct):
    """What an audit found, and how much it looked at."""

    topic: str | None
    """None: the cluster itself, which has no rows and no segments."""
    findings: list[Finding] = []
    entries: int = 0
    rows: int = 0
    bytes: int = 0
    segments: int = 0
    orphans: list[str] = []

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong. Orphans are no fault."""
        return not self.findings


def verify(store: Store, handle: TopicHandle, progress: Callable[[int], object] = bool) -> Report:
    """Return the audit of a topic. `progress` is told how many bytes were read since it was told last."""
    report = Report(handle.name)
    try:
        handle.refresh()
        report.findings += _journal(handle.journal, report)
        state = handle.journal.state
    except LogError as error:
        # Without a state nothing else can be held against anything.
        report.findings.append(Finding("journal", str(error)))
        return report
    for number, partition in enumerate(state.partitions):
        report.findings += _bounds(number, partition)
        for each in partition.segments:
            report.findings += _segment(store, handle, number, each, report)
            progress(each.log_bytes)
        for chunk in partition.chunks:
            key = handle.append_file(state.file(chunk.file).name)
            where = f"topic {handle.name!r}, partition {number}, offset {chunk.base_offset}"
            try:
                append_file.read_chunk(store, key, chunk.place(number), handle.schemas, where)
            except LogError as error:
                report.findings.append(Finding(where, str(error)))
            report.bytes += chunk.length
            progress(chunk.length)
        report.rows += partition.log_end - partition.log_start
    report.orphans = upkeep.orphans(store, handle)
    return report


def verify_cluster(log: Log) -> Report:
    """Return the audit of the cluster's own journal, and of folders that no topic has any more."""
    report = Report(None)
    try:
        log.cluster.refresh()
        report.findings += _journal(log.cluster, report)
        for name, topic_id in cluster_upkeep.former_lives(log):
            report.findings += _forgotten(log, name, topic_id)
        report.orphans = list(log.store.sweep(dry_run=True))
    except LogError as error:
        report.findings.append(Finding("journal", str(error)))
    return report


def repair(store: Store, handle: TopicHandle) -> list[str]:
    """Make again what can be made without loss, the indexes of whole segments; return the keys of what was made."""
    made = []
    for number, partition in enumerate(handle.refresh().partitions):
        for each in partition.segments:
            key = handle.segment(number, each.name)
            try:
                entries = segment.scan(store, key)
                # Of a .log that was cut, the index may be the only word of what was lost.
                whole = _span(entries) == (each.base_offset, each.end_offset)
                if whole and not segment.index_is_right(store, key, entries):
                    segment.rebuild_index(store, key)
                    made.append(f"{key}.index")
            except LogError:
                continue  # the .log itself is damaged: nothing here can make it again
    return made


def _journal(journal: Journal[Any, Any], report: Report) -> Iterator[Finding]:
    """Read the kept entries once more, from the oldest snapshot on, and hold them against the state."""
    # Listed before the newest entry is looked for: what lies behind that is behind a hole.
    later = list(journal.entries.numbers_after(journal.number))
    journal.refresh()
    if any(number > journal.number for number in later):
        detail = f"it is missing, and entry {max(later)} is there: what was decided from it on is lost"
        yield Finding(journal.entries.name(journal.number + 1), detail)
    last: dict[str, int] = {}
    folded: Any = None
    for number, events, after in history(journal):
        folded = after
        report.entries += 1
        for event in events:
            if isinstance(event, BatchSequenced) and event.claim is not None:
                before = last.get(event.claim.producer)
                if before is not None and event.claim.batch_id <= before and not event.claim.take_over:
                    detail = f"producer {event.claim.producer!r} wrote batch {event.claim.batch_id} after {before}"
                    yield Finding(f"journal entry {number}", detail)
                last[event.claim.producer] = event.claim.batch_id
    if folded is not None and folded != journal.state:
        yield Finding("journal", "replaying the kept entries does not give the state that was read")


def _forgotten(log: Log, name: str, topic_id: str) -> Iterator[Finding]:
    """Hold that a folder whose topic the cluster does not know is of a topic that was deleted."""
    folder = layout.topic_folder(name, topic_id)
    try:
        state = cluster_upkeep.journal_of(log, name, topic_id).refresh()
    except LogError as error:
        yield Finding(folder, str(error))
        return
    if state.started and not state.deleted:
        detail = "its journal goes on, and the cluster does not know it; is the cluster's journal an old copy?"
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
            yield Finding(where, f"offsets go from {expected} to {piece.base_offset}: a gap or an overlap")
        expected = piece.end_offset
    if expected is not None and expected != end:
        yield Finding(where, f"the last piece ends at {expected}, the log at {end}")
    first = pieces[0].base_offset if pieces else end
    if first > low:
        yield Finding(where, f"rows from {low} to {first - 1} are missing")
    epochs = partition.epoch_starts
    if sorted(epochs) != list(epochs) or len({epoch for epoch, _ in epochs}) != len(epochs):
        yield Finding(where, f"leader epochs do not rise: {epochs}")


def _segment(store: Store, handle: TopicHandle, number: int, ref: SegmentRef, report: Report) -> Iterator[Finding]:
    key = handle.segment(number, ref.name)
    where = f"segment {key}"
    report.segments += 1
    report.bytes += ref.log_bytes
    try:
        entries = segment.scan(store, key)
        is_indexed = bool(entries) and segment.index_is_right(store, key, entries)
    except LogError as error:
        yield Finding(where, str(error))
        return
    if _span(entries) != (ref.base_offset, ref.end_offset):
        start, end = _span(entries)
        told = f"[{ref.base_offset}, {ref.end_offset})"
        yield Finding(where, f"it holds rows [{start}, {end}), the journal says {told}; restore it from a backup")
        return
    if not is_indexed:
        yield Finding(f"{where}.index", "it does not say what the .log holds", repairable=True)


def _span(entries: list[index.IndexEntry]) -> tuple[int, int]:
    """Return the first offset and the end, zeros where there is no chunk."""
    return (entries[0].base_offset, entries[-1].end_offset) if entries else (0, 0)
