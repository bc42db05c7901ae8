"""What must hold of compaction, held after every entry that changes a compacted partition.

Each row that was ever sequenced is known, so what a partition must have left follows from these alone: the newest row
of each key, as it was written, until the row deletes its key and `delete.retention.ms` has passed. Keyed segments are
read with a Parquet reader; only the list of the rows that they supersede is read with the product's code.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_log_coordinator.segments.swap import SegmentsSwapped, SegmentStaged
from pyspark_log_coordinator.topic import machine
from pyspark_log_storage.parquet import keyed_segment
from tests.simulator.invariants import Row, Rows, require, rows_of
from tests.support.memory_store import MemoryStore
from tests.support.storage.parquet_bytes import read_parquet

if TYPE_CHECKING:
    from pyspark_log_coordinator.model.partition import ChunkRef, Partition, SegmentRef
    from pyspark_log_coordinator.model.topic_config import TopicConfig
    from pyspark_log_coordinator.model.topic_state import Topic
    from pyspark_log_coordinator.segments.roll_plan import RollJob

_US_PER_MS = 1000


class Content(NamedTuple):
    """What a keyed segment has."""

    rows: dict[int, Row]
    """By offset, ascending."""
    superseded: frozenset[int]
    """The offsets of rows of segments before it whose keys have newer rows here."""


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
        self._store = MemoryStore()
        self._store._objects = rows.files.data
        self._contents: dict[str, Content] = {}
        self._compacted_ms: dict[tuple[int, int], int] = {}
        """When each row was compacted first, by partition and offset: the time of the entry (ms)."""
        self._gone: set[tuple[int, int]] = set()
        """The rows that deleted their key and were dropped, by partition and offset."""
        rows.on_decided = self.decided

    def content(self, p: int, segment: SegmentRef) -> Content:
        """Return what a keyed segment has."""
        if segment.name not in self._contents:
            key = f"{self._rows.topic_folder}{p}/{segment.name}"
            table = read_parquet(self._rows.files.data[key])
            require(set(table.column("partition").to_pylist()) == {p}, f"{segment.name} is of another partition")
            offsets = table.column("offset").to_pylist()
            require(offsets == sorted(set(offsets)), f"{segment.name} has its rows in another order: {offsets}")
            superseded = keyed_segment.read_superseded(self._store, key).tolist()
            self._contents[segment.name] = Content(
                dict(zip(offsets, rows_of(table), strict=True)), frozenset(superseded)
            )
        return self._contents[segment.name]

    def readable(self, p: int, partition: Partition, begin: int, end: int) -> list[int]:
        """Return the offsets from `begin` up to `end` that have a row."""
        begin, reached = max(begin, partition.log_start), _compacted_end(partition)
        keyed = [offset for each in _keyed(partition) for offset in self.content(p, each).rows if begin <= offset < end]
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
                self._swapped(event, state)
            if isinstance(event, SegmentStaged) and event.segment.keyed is not None:
                self._counts["keyed segments staged"] += 1
            state = machine.evolve(state, event)
        for p, partition in enumerate(state.partitions):
            if p >= len(before.partitions) or partition is not before.partitions[p]:
                self._hold_partition(p, partition, state.config)

    def _swapped(self, event: SegmentsSwapped, state: Topic) -> None:
        """Hold that a keyed segment may be put in its place, and has unchanged rows of its range."""
        p, new = event.partition, event.segment
        partition, rows = state.partitions[p], self._rows.rows[p]
        where = f"partition {p}, keyed segment {new.name}"
        content = self.content(p, new)
        for offset, row in content.rows.items():
            require(new.base_offset <= offset < new.end_offset, f"{where}: offset {offset} is out of its range")
            require(row == rows[offset], f"{where}: offset {offset} is {row} now, and was written as {rows[offset]}")
        require(new.keyed is not None and new.keyed.rows == len(content.rows), f"{where}: it has {new.keyed} rows")
        require(state.config.is_compacted, f"{where}: cleanup.policy is {state.config.cleanup_policy}")
        holders = {each.node for each in new.holders if state.incarnations.get(each.node) == each.incarnation}
        lacking = set(partition.isr) - holders
        require(not lacking, f"{where}: the rows that it replaces go, and {lacking} of the ISR lack it")
        job = self._jobs[new.name]
        present = partition.pieces_between(new.base_offset, new.end_offset)
        made_of = [*job.segments, *job.chunks]
        same = list(map(_identity, present)) == list(map(_identity, made_of))
        require(same, f"{where}: it was made of {made_of}, and replaces {present}")
        if any(_is_keyed(each) for each in present):
            self._counts["merges" if len(present) > 1 else "rewrites"] += 1
            return
        self._counts["folds"] += 1
        begins = _compacted_end(partition) if _keyed(partition) else next(iter(partition.pieces_from(0))).base_offset
        require(new.base_offset == begins, f"{where}: rows from {begins} on are not compacted, and it begins above")
        require(new.end_offset <= partition.high_watermark, f"{where}: the HW is {partition.high_watermark}")
        for offset in range(new.base_offset, new.end_offset):
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
        contents = [self.content(p, each) for each in keyed]
        dead = {offset for each in contents for offset in each.superseded}
        there = {offset: row for each in contents for offset, row in each.rows.items()}
        live: dict[bytes, int] = {}
        for each, content in zip(keyed, contents, strict=True):
            for offset, row in content.rows.items():
                if row.key is None:
                    require(len(content.rows) == 1, f"{where}: {each.name} has a row without a key at {offset}")
                elif offset not in dead:
                    require(row.key not in live, f"{where}: {row.key!r} has rows at {live.get(row.key)} and {offset}")
                    live[row.key] = offset
        written = self._rows.rows[p][:reached] if keyed else []
        newest = {row.key: offset for offset, row in enumerate(written) if row.key is not None}
        for key, offset in newest.items():
            if offset < partition.log_start:
                require(live.get(key, offset) == offset, f"{where}: {key!r} is back, and expired at {offset}")
            elif written[offset].value is None and offset not in there:
                require(key not in live, f"{where}: {key!r} was deleted at {offset}, and is back at {live.get(key)}")
                self._hold_dropped(p, partition, key, offset, there, config)
            else:
                found = live.get(key)
                require(found == offset, f"{where}: the newest row of {key!r} is {offset}, and {found} is there")

    def _hold_dropped(
        self, p: int, partition: Partition, key: bytes, offset: int, there: Mapping[int, Row], config: TopicConfig
    ) -> None:
        """Hold that a row that deletes its key went in time, and that no older row of the key can be read."""
        what = f"partition {p}: the row at {offset}, which deletes {key!r}, is gone"
        if (p, offset) not in self._gone:
            due = self._compacted_ms[p, offset] + config.delete_retention_ms
            require(due <= self._now_ms(), f"{what}, {due - self._now_ms()} ms too early")
            self._gone.add((p, offset))
            self._counts["tombstones dropped"] += 1
        older = [at for at, row in there.items() if row.key == key and partition.log_start <= at < offset]
        require(not older, f"{what}, and its rows at {older} can be read")


def _is_keyed(piece: SegmentRef | ChunkRef) -> bool:
    return getattr(piece, "keyed", None) is not None


def _keyed(partition: Partition) -> list[SegmentRef]:
    return [each for each in partition.segments if _is_keyed(each)]


def _compacted_end(partition: Partition) -> int:
    """Return the offset from which on every row is there."""
    keyed = _keyed(partition)
    return keyed[-1].end_offset if keyed else partition.log_start


def _identity(piece: Any) -> Any:
    """Return what a piece of a partition is, whoever holds it and whatever was superseded since."""
    return piece.name if hasattr(piece, "name") else (piece.file, piece.position, piece.base_offset)
