"""What must hold of compaction, held after every entry that changes a compacted partition.

Each row that was ever sequenced is known, so what a partition must have left follows from these alone: the newest row
of each key, as it was written, until the row deletes its key and `delete.retention.ms` has passed. Segments are read
with a Parquet reader, and with no line of the product.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark_log_coordinator.segments.swap import SegmentsSwapped
from pyspark_log_coordinator.topic import machine
from tests.simulator.invariants import Row, Rows, require, rows_of
from tests.support.storage.parquet_bytes import read_parquet

if TYPE_CHECKING:
    from pyspark_log_coordinator.model.partition import ChunkRef, Partition, SegmentRef
    from pyspark_log_coordinator.model.topic_config import TopicConfig
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.segments.roll_plan import RollJob

_US_PER_MS = 1000


class Compaction:
    """The keyed segments of all partitions, and what became of the rows that were compacted."""

    def __init__(
        self, rows: Rows, jobs: Mapping[str, RollJob], counts: Counter[str], now_ms: Callable[[], int]
    ) -> None:
        """`jobs` has what each segment was made of, by its name."""
        self._rows = rows
        self._jobs = jobs
        self._counts = counts
        self._now_ms = now_ms
        self._contents: dict[str, dict[int, Row]] = {}
        self._compacted_ms: dict[tuple[int, int], int] = {}
        """When each row was compacted first, by partition and offset: the time of the entry (ms)."""
        self._gone: set[tuple[int, int]] = set()
        """The rows that deleted their key and were dropped, by partition and offset."""
        rows.on_decided = self.decided

    def content(self, p: int, segment: SegmentRef) -> dict[int, Row]:
        """Return the rows of a keyed segment, by offset, ascending."""
        if segment.name not in self._contents:
            key = f"{self._rows.topic_folder}{p}/{segment.name}"
            table = read_parquet(self._rows.files.data[key])
            require(set(table.column("partition").to_pylist()) == {p}, f"{segment.name} is of another partition")
            offsets = table.column("offset").to_pylist()
            require(offsets == sorted(set(offsets)), f"{segment.name} has its rows in another order: {offsets}")
            self._contents[segment.name] = dict(zip(offsets, rows_of(table), strict=True))
        return self._contents[segment.name]

    def readable(self, p: int, partition: Partition, begin: int, end: int) -> list[int]:
        """Return the offsets from `begin` up to `end` that have a row."""
        begin, reached = max(begin, partition.log_start), _compacted_end(partition)
        keyed = [offset for each in _keyed(partition) for offset in self.content(p, each) if begin <= offset < end]
        return [*keyed, *range(max(begin, reached), end)]

    def newest(self, p: int, end: int, log_start: int) -> dict[int, Row]:
        """Return the newest row of each key among the first `end` rows of a partition, without deleted keys."""
        found = {row.key: (offset, row) for offset, row in enumerate(self._rows.rows[p][:end]) if row.key is not None}
        return {offset: row for offset, row in sorted(found.values()) if offset >= log_start and row.value is not None}

    def decided(self, events: list[Any], before: Topic) -> None:
        """Hold an entry's swaps, and what they leave."""
        if self._rows.unclean:
            return
        state = before
        for event in events:
            if isinstance(event, SegmentsSwapped) and event.segment.keyed is not None:
                self._swapped(event, state, before)
            state = machine.evolve(state, event)
        self._hold_together(events)
        for p, partition in enumerate(state.partitions):
            if p >= len(before.partitions) or partition is not before.partitions[p]:
                self._hold_partition(p, partition, state.config)

    def _hold_together(self, events: list[Any]) -> None:
        """Hold that the segments of a compaction are swapped in by one entry."""
        swapped = {
            each.segment.name for each in events if isinstance(each, SegmentsSwapped) and each.segment.keyed is not None
        }
        jobs = {id(self._jobs[name]) for name in swapped}
        together = {name for name, job in self._jobs.items() if id(job) in jobs}
        require(swapped == together, f"of the segments {together} of a compaction {swapped} are swapped in")

    def _swapped(self, event: SegmentsSwapped, state: Topic, before: Topic) -> None:
        """Hold that a keyed segment may be put in its place, and has unchanged rows of its range.

        `before` is the topic before the entry, `state` after the events before this one.
        """
        p, new = event.partition, event.segment
        partition, rows = state.partitions[p], self._rows.rows[p]
        where = f"partition {p}, keyed segment {new.name}"
        content = self.content(p, new)
        for offset, row in content.items():
            require(new.base_offset <= offset < new.end_offset, f"{where}: offset {offset} is out of its range")
            require(row == rows[offset], f"{where}: offset {offset} is {row} now, and was written as {rows[offset]}")
        require(new.keyed is not None and new.keyed.rows == len(content), f"{where}: it has {new.keyed} rows")
        require(state.config.is_compacted, f"{where}: cleanup.policy is {state.config.cleanup_policy}")
        holders = {each.node for each in new.holders if state.incarnations.get(each.node) == each.incarnation}
        lacking = set(partition.isr) - holders
        require(not lacking, f"{where}: the rows that it replaces go, and {lacking} of the ISR lack it")
        job = self._jobs[new.name]
        known, reached = before.partitions[p], _compacted_end(before.partitions[p])
        is_cleaning = job.end_offset > reached
        present = known.pieces_between(0 if is_cleaning else job.base_offset, job.end_offset)
        # What expired while others waited for a copy is not there any more.
        made_of = [each for each in (*job.segments, *job.chunks) if each.end_offset > known.log_start]
        same = list(map(_identity, present)) == list(map(_identity, made_of))
        require(same, f"{where}: it was made of {made_of}, and there is {present}")
        if not is_cleaning:
            self._counts["merges" if len(present) > 1 else "rewrites"] += 1
            return
        if new.end_offset <= reached:
            self._counts["segments cleaned"] += 1
            return
        self._counts["cleanings"] += 1
        require(new.end_offset == job.end_offset, f"{where}: rows up to {job.end_offset} were cleaned")
        require(new.end_offset <= partition.high_watermark, f"{where}: the HW is {partition.high_watermark}")
        for offset in range(reached, new.end_offset):
            due = rows[offset].time // _US_PER_MS + state.config.min_compaction_lag_ms
            require(due <= self._now_ms(), f"{where}: offset {offset} is too young, by {due - self._now_ms()} ms")
            self._compacted_ms.setdefault((p, offset), event.at_ms)

    def _hold_partition(self, p: int, partition: Partition, config: TopicConfig) -> None:
        """Hold that the keyed segments have the newest row of each key below their end, and each key once."""
        where, keyed, reached = f"partition {p}", _keyed(partition), _compacted_end(partition)
        require(
            [*keyed] == [*itertools.takewhile(_is_keyed, partition.segments)],
            f"{where}: a keyed segment follows others",
        )
        require(not keyed or reached <= partition.high_watermark, f"{where}: compacted up to {reached}, above the HW")
        live: dict[bytes, int] = {}
        for each in keyed:
            rows = self.content(p, each)
            if each.keyed is not None and each.keyed.placeholder is not None:
                require([*rows] == [each.keyed.placeholder], f"{where}: {each.name} has {rows}")
                continue
            for offset, row in rows.items():
                require(row.key is not None, f"{where}: {each.name} has a row without a key at {offset}")
                assert row.key is not None
                require(row.key not in live, f"{where}: {row.key!r} has rows at {live.get(row.key)} and {offset}")
                live[row.key] = offset
        written = self._rows.rows[p][:reached] if keyed else []
        newest = {row.key: offset for offset, row in enumerate(written) if row.key is not None}
        for key, offset in newest.items():
            if offset < partition.log_start:
                require(live.get(key, offset) == offset, f"{where}: {key!r} is back, and expired at {offset}")
            elif written[offset].value is None and live.get(key) != offset:
                require(key not in live, f"{where}: {key!r} was deleted at {offset}, and is back at {live.get(key)}")
                self._hold_dropped(p, key, offset, config)
            else:
                found = live.get(key)
                require(found == offset, f"{where}: the newest row of {key!r} is {offset}, and {found} is there")

    def _hold_dropped(self, p: int, key: bytes, offset: int, config: TopicConfig) -> None:
        """Hold that a row that deletes its key went in time."""
        what = f"partition {p}: the row at {offset}, which deletes {key!r}, is gone"
        if (p, offset) not in self._gone:
            due = self._compacted_ms[p, offset] + config.delete_retention_ms
            require(due <= self._now_ms(), f"{what}, {due - self._now_ms()} ms too early")
            self._gone.add((p, offset))
            self._counts["tombstones dropped"] += 1


def _is_keyed(piece: SegmentRef | ChunkRef) -> bool:
    return getattr(piece, "keyed", None) is not None


def _keyed(partition: Partition) -> list[SegmentRef]:
    return [each for each in partition.segments if _is_keyed(each)]


def _compacted_end(partition: Partition) -> int:
    """Return the offset from which on every row is there."""
    keyed = _keyed(partition)
    return keyed[-1].end_offset if keyed else partition.log_start


def _identity(piece: Any) -> Any:
    """Return what a piece of a partition is, whoever holds it."""
    return piece.name if hasattr(piece, "name") else (piece.file, piece.position, piece.base_offset)
