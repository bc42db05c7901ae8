"""What must hold, held after every journal entry, snapshot and deletion, at the moment when the store does it.

`History` is one journal as it really was: the first object ever created in each slot. What a process that slept puts
into a slot that was collected is no part of it. `Rows` adds the topic's rows as plain lists, made from what the files
held when they were sequenced; readers are compared with these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from pyspark_log_coordinator.journal import journal_entry, snapshot, trimming
from pyspark_log_coordinator.journal.journal_entry import NO_HASH, digest
from pyspark_log_coordinator.journal.state_machine import Machine
from pyspark_log_coordinator.model.partition import Partition
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication.row_loss import RowsLost
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.segments.retention import LogStartMoved
from pyspark_log_coordinator.segments.swap import SegmentsSwapped
from pyspark_log_coordinator.topic.sequencing import BatchSequenced
from pyspark_log_storage import layout
from pyspark_log_storage.columns import schema
from pyspark_log_storage.files import append_file, chunk
from pyspark_log_storage.layout import number_of_newest_first
from pyspark_log_storage.segments import segment
from pyspark_log_storage.stored_fields import INT64_MAX
from tests.simulator.store import Objects
from tests.support.memory_store import MemoryStore
from tests.support.storage.parquet_bytes import read_parquet


class Row(NamedTuple):
    """A row as it is stored."""

    value: bytes | None
    time: int
    """Its timestamp, in microseconds."""
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def name(self) -> bytes:
        """What tells it from all other rows: its value, or if that is null its only header."""
        return self.headers[0][1] if self.value is None else self.value


class Violation(AssertionError):
    """Something that must hold does not."""


def require(held: object, what: str) -> None:
    """Raise `Violation` unless something holds."""
    if not held:
        raise Violation(what)


class Write(NamedTuple):
    """What a store got of a journal, or lost."""

    store: str
    """Its incarnation."""
    name: str
    """The key in the journal's folder."""
    data: bytes | None
    """None: it was deleted."""
    writer: str
    """The part of a process that wrote it."""
    newest: int
    """The newest entry of the journal after that."""


class History:
    """One journal, entry by entry."""

    def __init__(self, folder: str, machine: Machine[Any, Any], objects: Objects) -> None:
        self.folder = folder
        self.machine = machine
        self.objects = objects
        self.states: list[Any] = [machine.initial]
        self.events: list[list[Any]] = []
        """Those of each entry, which led from a state to the next one."""
        self.hashes: list[bytes] = [NO_HASH]
        self.strays = 0
        """How many entries came to lie in slots that had been collected."""
        self.conversions = 0
        """How many segments of chunks were converted to Parquet."""
        self.writes: list[Write] = []
        """Those of its stores, if there are several."""

    @property
    def number(self) -> int:
        """The newest entry."""
        return len(self.states) - 1

    @property
    def generation(self) -> int:
        """The generation of the journals' stores in which the next entry belongs."""
        return self.machine.generation(self.states[-1])

    def created(self, key: str, data: bytes) -> None:
        if key.startswith(f"{self.folder}entries/"):
            self._entry(int(key.rsplit("/", 1)[1]), data)
        elif key.startswith(f"{self.folder}snapshots/"):
            self._snapshot(number_of_newest_first(key.rsplit("/", 1)[1]), data)

    def deleting(self, key: str) -> None:
        """Hold that nothing goes that somebody may still need."""
        name = key.rsplit("/", 1)[1]
        kept = self.kept()
        if key.startswith(f"{self.folder}entries/"):
            require(len(kept) == trimming.SNAPSHOTS_KEPT, f"entry {name} goes, and there are few snapshots")
            require(int(name) < kept[0], f"entry {name} goes, which the snapshots {kept} need")
        elif key.startswith(f"{self.folder}snapshots/"):
            number = number_of_newest_first(name)
            require(number not in kept, f"snapshot {number} goes, which is one of the newest")

    def snapshots(self) -> list[int]:
        """Return the numbers of the snapshots that there are, ascending."""
        keys = [key for key in self.objects.data if key.startswith(f"{self.folder}snapshots/")]
        return sorted(number_of_newest_first(key.rsplit("/", 1)[1]) for key in keys)

    def kept(self) -> list[int]:
        """Return the numbers of the snapshots that must stay; an older one may come late, from one that slept."""
        return self.snapshots()[-trimming.SNAPSHOTS_KEPT :]

    def _entry(self, number: int, data: bytes) -> None:
        require(number <= self.number + 1, f"entry {number} is created after entry {self.number}: a gap")
        if number <= self.number:
            if digest(data) != self.hashes[number]:
                kept = min(self.kept(), default=0)
                require(number < kept, f"another entry {number} is created, and {kept} is the oldest snapshot")
                self.strays += 1
            return
        entry = journal_entry.decode(data, f"entry {number}")
        require(entry.previous == self.hashes[-1], f"entry {number} names another hash than its predecessor's")
        events = self.machine.decode_events(entry.events)
        before = after = self.states[-1]
        for event in events:
            after = self.machine.evolve(after, event)
        self.states.append(after)
        self.events.append(events)
        self.hashes.append(digest(data))
        self.decided(events, before, after)

    def decided(self, events: list[Any], before: Any, after: Any) -> None:
        """Hold an entry against its predecessors."""

    def _snapshot(self, number: int, data: bytes) -> None:
        found = snapshot.decode(data, f"snapshot {number}")
        require(number == found.number, f"snapshot {number} says that it is of entry {found.number}")
        require(number <= self.number, f"snapshot {number} is of an entry that is not there yet")
        require(found.hash == self.hashes[number], f"snapshot {number} is of another history")
        state = self.machine.decode_state(bytes(found.state))
        require(state == self.states[number], f"snapshot {number} is not what its entries fold into")

    def hold_kept(self) -> None:
        """Hold that the kept snapshots, and the entries after them, are there as they were written."""
        kept = self.kept()
        for start in kept:
            name = f"{self.folder}snapshots/{(10**20 - 1 - start):020d}"
            self._snapshot(start, self.objects.data[name])
        oldest = min(kept, default=0)
        for number in range(oldest + 1, self.number + 1):
            data = self.objects.data.get(f"{self.folder}entries/{number:020d}")
            is_same = data is not None and digest(data) == self.hashes[number]
            require(is_same, f"entry {number} is missing, or is another one, after the snapshots {kept}")


class Rows(History):
    """A topic's journal, and the rows that it puts in order."""

    def __init__(
        self,
        folder: str,
        machine: Machine[Any, Any],
        objects: Objects,
        expected: Any,
        now_ms: Any,
        files: Objects | None = None,
    ) -> None:
        super().__init__(f"{folder}journal/", machine, objects)
        self.files = files or objects
        """Where files and segments lie; on several nodes, what is in each of them, wherever that is."""
        self.topic_folder = folder
        self.topic_id = folder.split("/")[2]
        self.rows: list[list[Row]] = []
        self.batches: set[tuple[str, int]] = set()
        """Every batch that is in the log, also those of writers without a name, by the ids in their values."""
        self.acked: set[tuple[str, int]] = set()
        """Every batch that was acknowledged with acks=all."""
        self._refused: dict[tuple[str, int], str] = {}
        """The error of each batch that was refused, and never tried again."""
        self.ends: dict[tuple[str, int], dict[int, int]] = {}
        """Where the rows of each batch end, by partition."""
        self.unclean = False
        """Whether an unclean election has cut committed rows."""
        self.former: dict[tuple[int, int], set[Row]] = {}
        """The rows that lay at an offset before they were cut."""
        self.released: dict[str, int] = {}
        """The files that were given up, and when at the latest, by the clocks of who gave files up (ms)."""
        self.gone: set[str] = set()
        """The files that were removed."""
        self._runs: dict[str, list[str]] = {}
        self._values: set[bytes] = set()
        self._files: set[str] = set()
        self._expected = expected
        self._now_ms = now_ms
        self._store = MemoryStore()
        self._store._objects = self.files.data
        self._needed: tuple[int, set[str]] = (-1, set())
        self.on_decided: Callable[[list[Any], Topic], object] = lambda *_: None
        """Called with the events of each entry, and the state before it."""

    def acknowledged(self, producer: str, batch: int, acks: str, offsets: dict[int, tuple[int, int]]) -> None:
        """Hold that a batch whose writer was told so is in the log, at `offsets`, and with acks=all below the HW."""
        require((producer, batch) in self.batches, f"batch {batch} of {producer} was acknowledged and is not there")
        counts = self._expected(producer, batch)
        for p, told in offsets.items():
            end = self.ends[producer, batch][p]
            held = told == (end - counts[p], end)
            require(held, f"batch {batch} of {producer} was acknowledged at {told} of partition {p}, and ends at {end}")
        if acks == "all":
            self.acked.add((producer, batch))
            for p, end in self.ends[producer, batch].items():
                mark = self.states[-1].partitions[p].high_watermark
                what = f"batch {batch} of {producer} was acknowledged by all"
                require(
                    end <= mark or self.unclean, f"{what}: its rows of partition {p} end at {end}, the HW is {mark}"
                )

    def refused(self, producer: str, batch: int, error: Exception) -> None:
        """Hold that a batch whose writer got an error that says so is not in the log, and never will be."""
        self._refused[producer, batch] = repr(error)
        require((producer, batch) not in self.batches, f"batch {batch} of {producer} is in the log, and got {error!r}")

    def needed(self) -> set[str]:
        """Return the keys of the files that the newest state names."""
        number, keys = self._needed
        if number != self.number:
            state: Topic = self.states[-1]
            keys = {f"{self.topic_folder}append/{file.name}" for file in state.files}
            for p, partition in enumerate(state.partitions):
                for each in partition.segments:
                    keys |= self._keys(f"{p}/{each.name}")
            self._needed = self.number, keys
        return keys

    def deleting(self, key: str) -> None:
        super().deleting(key)
        if key.startswith(self.folder):
            return
        require(key not in self.needed(), f"{key} goes, which the newest state names")
        if key in self.released:
            due = self.released[key] + self.states[-1].config.file_delete_delay_ms
            require(due <= self._now_ms(), f"{key} goes {due - self._now_ms()} ms before its delay is over")
        self.gone.add(key)

    def decided(self, events: list[Any], before: Topic, after: Topic) -> None:
        for event in events:
            match event:
                case BatchSequenced():
                    self._sequenced(event)
                case RowsLost():
                    self._cut(event, before)
                case SegmentsSwapped():
                    self._swapped(event, before)
        self.on_decided(events, before)
        moved = {each.partition for each in events if isinstance(each, LogStartMoved)}
        for p, partition in enumerate(after.partitions):
            if not before.partitions:
                self.rows.append([])
            old = before.partitions[p] if before.partitions else partition
            self._bounds(p, old, partition)
            require(p in moved or old.log_start == partition.log_start, f"partition {p}: the log start moved by itself")
        require(after.orphan_floor >= before.orphan_floor, "the orphan floor went back")
        at_ms = INT64_MAX
        for one in reversed(after.pending_deletions):
            at_ms = min(at_ms, one.at_ms)  # what was given up later shows that a clock was ahead
            for key in self._keys(one.key):
                self.released[key] = min(at_ms, self.released.get(key, at_ms))

    def check_all(self) -> None:
        """Hold that every row that is in the log can be read, from what the newest state names."""
        state: Topic = self.states[-1]
        for p, partition in enumerate(state.partitions):
            found: list[Row] = []
            at = partition.log_end
            dense = [each for each in partition.segments if each.keyed is None]
            for each in dense:
                at = min(at, each.base_offset)
                found += self._segment_rows(p, each.name, each.base_offset)
            for ref in partition.chunks:
                at = min(at, ref.base_offset)
                found += self._chunk_rows(p, state.file(ref.file).name, ref)
            require(found == self.rows[p][at:], f"partition {p} holds other rows than were sequenced")

    def _keys(self, key: str) -> set[str]:
        whole = f"{self.topic_folder}{key}"
        return {whole} if key.startswith("append/") else set(layout.segment_files(whole))

    def _cut(self, event: RowsLost, before: Topic) -> None:
        mark = before.partitions[event.partition].high_watermark
        if event.start < mark:
            unclean = before.config.unclean_leader_election_enable
            require(unclean, f"partition {event.partition}: rows from {event.start} are cut, the HW is {mark}")
            self.unclean = True
        rows = self.rows[event.partition]
        for offset in range(event.start, len(rows)):
            self.former.setdefault((event.partition, offset), set()).add(rows[offset])
        told = sum(each.rows for each in event.batches)
        require(told == len(rows) - event.start or event.start < mark, f"{event} is told of {len(rows)} rows")
        del rows[event.start :]

    def _sequenced(self, event: BatchSequenced) -> None:
        names: list[bytes] = []
        counts: Counter[int] = Counter()
        for file in event.files:
            key = f"{self.topic_folder}append/{file.name}"
            require(key in self.files.data, f"{key} is sequenced and is not there")
            require(file.name not in self._files, f"{key} is sequenced a second time")
            self._files.add(file.name)
            for staged in file.chunks:
                new = self._decode(key, staged)
                self.rows[staged.partition] += new
                names += [row.name for row in new]
                counts[staged.partition] += len(new)
        written = set(names)
        require(len(written) == len(names) and not written & self._values, "a row is in the log twice")
        self._values |= written
        ids = {tuple(value.split(b"/")[:2]) for value in written}
        require(len(ids) == 1, f"one entry holds rows of {ids}")
        ((name, number),) = ids
        producer, batch = name.decode(), int(number)
        require((producer, batch) not in self.batches, f"batch {batch} of {producer} is in the log twice")
        error = self._refused.get((producer, batch))
        require(error is None, f"batch {batch} of {producer} comes into the log, and its writer got {error}")
        self.batches.add((producer, batch))
        if event.claim is not None:
            require((event.claim.producer, event.claim.batch_id) == (producer, batch), "the claim is another's")
            runs = self._runs.setdefault(producer, [event.claim.run_id])
            if runs[-1] != event.claim.run_id:
                require(event.claim.run_id not in runs, f"run {event.claim.run_id} was replaced, and writes again")
                runs.append(event.claim.run_id)
        self.ends[producer, batch] = {p: len(self.rows[p]) for p in counts}
        require(counts == self._expected(producer, batch), f"batch {batch} of {producer} is there in part: {counts}")

    def _swapped(self, event: SegmentsSwapped, before: Topic) -> None:
        new = event.segment
        for key in self._keys(f"{event.partition}/{new.name}"):
            require(key in self.files.data, f"{key} is swapped in and is not there")
        if new.keyed is not None:
            return  # see `compaction`
        found = self._segment_rows(event.partition, new.name, new.base_offset)
        require(found == self.rows[event.partition][new.base_offset : new.end_offset], f"{new.name} holds other rows")
        require(new.level <= roll_plan.LEVEL_MAX, f"{new.name} was written {new.level} times")
        replaced = before.partitions[event.partition].segments_between(new.base_offset, new.end_offset)
        self.conversions += new.is_parquet and any(not each.is_parquet for each in replaced)

    def _bounds(self, p: int, old: Partition, new: Partition) -> None:
        where = f"partition {p}"
        require(old.log_start <= new.log_start, f"{where}: the log start went back")
        require(old.high_watermark <= new.high_watermark or self.unclean, f"{where}: the HW went back")
        require(old.leader_epoch <= new.leader_epoch, f"{where}: the leader epoch went back")
        require(new.log_end == len(self.rows[p]), f"{where}: the log ends at {new.log_end} of {len(self.rows[p])} rows")
        require(new.log_start <= new.high_watermark <= new.log_end, f"{where}: log start, HW and LEO are not in order")
        pieces = [*new.segments, *new.chunks]
        at = pieces[0].base_offset if pieces else new.log_end
        require(at <= new.log_start, f"{where}: rows from {new.log_start} to {at} are missing")
        for piece in pieces:
            require(piece.base_offset == at, f"{where}: a gap or an overlap at {at}")
            at = piece.end_offset
        require(at == new.log_end, f"{where}: the last piece ends at {at}, the log at {new.log_end}")

    def _segment_rows(self, p: int, name: str, base_offset: int) -> list[Row]:
        rows: list[Row] = []
        if name.endswith(".parquet"):
            found = read_parquet(self.files.data[f"{self.topic_folder}{p}/{name}"])
            offsets = range(base_offset, base_offset + found.num_rows)
            require(found.column("offset").to_pylist() == list(offsets), f"{name} has other offsets")
            require(set(found.column("partition").to_pylist()) == {p}, f"{name} is of another partition")
            return rows_of(found)
        for entry, header, data in segment.chunks(self._store, f"{self.topic_folder}{p}/{name}"):
            rows += rows_of(chunk.decode(data, header, schema.RECORD_SCHEMAS, f"{name} at {entry.base_offset}"))
        return rows

    def _chunk_rows(self, p: int, name: str, ref: Any) -> list[Row]:
        return self._decode(f"{self.topic_folder}append/{name}", ref.place(p))

    def _decode(self, key: str, staged: Any) -> list[Row]:
        return rows_of(append_file.read_chunk(self._store, key, staged, schema.RECORD_SCHEMAS, key))


def rows_of(batch: Any) -> list[Row]:
    """Return the rows of Arrow columns; those that are left out are null."""
    names, count = batch.schema.names, batch.num_rows
    times = batch.column("timestamp").cast("int64").to_pylist()
    keys = batch.column("key").to_pylist() if "key" in names else [None] * count
    headers = batch.column("headers").to_pylist() if "headers" in names else [None] * count
    pairs = [tuple((each["key"], each["value"]) for each in row or ()) for row in headers]
    return list(map(Row, batch.column("value").to_pylist(), times, keys, pairs))
