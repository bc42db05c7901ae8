"""Reading a topic without Spark: what the journal says and what the chunks hold, with every promise checked.

The product's own reader is not used. Entries are folded from the first one on, without snapshots, and every
chunk that an entry names is read, so what Spark shows is compared with something else.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log.log import Log, TopicHandle
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.topic.sequencing import BatchSequenced
from pyspark_log_storage.columns import schema
from pyspark_log_storage.files.append_file import read_chunk, scan
from pyspark_log_storage.files.chunk import decode
from pyspark_log_storage.layout import topic_folder
from pyspark_log_storage.stores.addresses import open_store
from pyspark_log_storage.stores.store import Store


@dataclass(frozen=True)
class Row:
    """One row of the log."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Batch:
    """What one journal entry put into the topic."""

    entry: int
    claim: ProducerClaim | None
    rows: list[Row]

    @property
    def values(self) -> Counter[bytes | None]:
        """How often each value is in the batch."""
        return Counter(row.value for row in self.rows)


@dataclass
class TopicContents:
    """A topic as it is now."""

    partitions: int
    batches: list[Batch] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        """All rows, by partition and offset."""
        rows = [row for batch in self.batches for row in batch.rows]
        return sorted(rows, key=lambda row: (row.partition, row.offset))

    def numbers(self, partition: int | None = None) -> list[int]:
        """The rows' values as numbers, by partition and offset, of one partition or of all."""
        return [int(row.value) for row in self.rows if row.value is not None and partition in {None, row.partition}]

    def of_producer(self, producer: str) -> dict[int, Batch]:
        """The batches of a producer, each of which must be there once."""
        batches: dict[int, Batch] = {}
        for batch in self.batches:
            if batch.claim is not None and batch.claim.producer == producer:
                assert batch.claim.batch_id not in batches, f"batch {batch.claim.batch_id} is in the log twice"
                batches[batch.claim.batch_id] = batch
        assert list(batches) == sorted(batches), "batch ids went backwards"
        return batches


def open_topic(path: Path | str, topic: str) -> TopicHandle:
    """Open a topic with caches of its own, and without the faults of its address."""
    log = Log(open_store(str(path)), real_environment())
    log.open(create=False)
    return log.topic(topic)


def entries(path: Path | str, topic: str) -> int:
    """How many entries the topic's journal has."""
    return open_topic(path, topic).journal.number


def read_topic(path: Path | str, topic: str) -> TopicContents:
    """Read every row. That offsets have no gap and no overlap is asserted, and that all is below the HW."""
    store, handle = open_store(str(path)), open_topic(path, topic)
    replay = handle.journal.begin()
    replayed = [replay.take_next() for _ in range(handle.journal.number)]
    state = replay.state
    assert state == handle.journal.state, "a replay of all entries gives another state than the snapshot"
    contents = TopicContents(len(state.partitions))
    places: list[list[Place]] = [[] for _ in state.partitions]
    for number, events in enumerate(replayed, 1):
        for event in events:
            if isinstance(event, BatchSequenced):
                contents.batches.append(_read_batch(store, handle, number, event, places))
    for partition, expected in zip(state.partitions, places, strict=True):
        placed = [Place(c.base_offset, c.rows, c.crc, state.file(c.file).name) for c in partition.chunks]
        unrolled = [each for each in expected if each.base_offset >= partition.rolled_end]
        assert placed == unrolled, "the state places chunks elsewhere than their order says: a gap or an overlap"
        assert partition.log_end == partition.high_watermark == _end(expected)
    return contents


class Place(NamedTuple):
    """Where a chunk's rows stand in their partition, and where their bytes are."""

    base_offset: int
    rows: int
    crc: int
    file: str


def _end(places: list[Place]) -> int:
    return places[-1].base_offset + places[-1].rows if places else 0


def _read_batch(
    store: Store, handle: TopicHandle, number: int, event: BatchSequenced, places: list[list[Place]]
) -> Batch:
    """Read the rows of an entry; `places` has one list for each partition, which grows."""
    rows: list[Row] = []
    for file in event.files:
        for chunk in file.chunks:
            base = _end(places[chunk.partition])
            name = f"entry {number}, partition {chunk.partition}, offset {base}"
            record = read_chunk(store, handle.append_file(file.name), chunk, schema.RECORD_SCHEMAS, name)
            places[chunk.partition].append(Place(base, record.num_rows, chunk.crc, file.name))
            keys, values = (record.column(column).to_pylist() for column in ("key", "value"))
            for offset, (key, value) in enumerate(zip(keys, values, strict=True), base):
                rows.append(Row(chunk.partition, offset, key, value))
    assert len(rows) == event.rows, f"entry {number} promises {event.rows} rows and brings {len(rows)}"
    return Batch(number, event.claim, rows)


def orphans(path: Path | str, topic: str) -> dict[str, Counter[bytes | None]]:
    """The values in each append file that no entry names: what was staged and never sequenced."""
    store, handle = open_store(str(path)), open_topic(path, topic)
    known = {handle.append_file(file.name) for file in handle.journal.state.files}
    found = {}
    for key in store.list(f"{topic_folder(topic, handle.topic_id)}append/"):
        if key not in known:
            values: Counter[bytes | None] = Counter()
            for header, data in scan(store, key):
                record = decode(data, header, schema.RECORD_SCHEMAS, key)
                values.update(record.column("value").to_pylist())
            found[key] = values
    return found
