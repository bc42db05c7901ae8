"""A compacted topic in which much happens in few steps, held against a plain list of all rows that were written to it.

Its rows are made of the values of `small_topic`: each is another row of one of a few keys, or deletes it, at a time of
its own. So a row that is left says which it is, whoever wrote it and however often.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa

import pyspark_log
from pyspark_log_coordinator.audit import verify
from pyspark_log_coordinator.environment import Environment
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_storage.columns import schema
from tests.support.coordinator.small_topic import AT_ONCE, PARTITIONS, TOPIC, TopicClient, rows_of_all

KEYS = 7
COMPACTED = msgspec.structs.replace(
    AT_ONCE, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, delete_retention_ms=0
)
"""What is dirty is compacted, and rows that delete their key go with the next merge."""
_BEGIN_US = 1_700_000_000_000_000
COLUMNS = ("partition", "offset", "key", "value", "timestamp")


class Row(NamedTuple):
    """A row as it is stored; the time is in microseconds, and that of its batch."""

    key: bytes
    value: bytes | None
    timestamp: int


class Placed(NamedTuple):
    """A row and where it is."""

    partition: int
    offset: int
    row: Row


def keyed(name: bytes) -> Row:
    """Return the row that a value of `small_topic` stands for."""
    producer, batch, _, number = name.split(b"/")
    n, i = int(batch), int(number)
    is_deletion = (n * 5 + i) % 6 == 0
    return Row(b"%s/%d" % (producer, (n * 3 + i) % KEYS), None if is_deletion else name, _BEGIN_US + n * 1000)


def written(producer: str, batches: int) -> dict[int, list[Row]]:
    """Return the rows of the first batches of a producer, by partition."""
    return {p: list(map(keyed, names)) for p, names in rows_of_all(producer, batches).items()}


def newest_of(rows: Iterable[Row]) -> dict[bytes, bytes]:
    """Return the newest value of each key that was not deleted."""
    state = {row.key: row.value for row in rows}
    return {key: value for key, value in state.items() if value is not None}


def scanned(root: str, *, latest: bool = False) -> list[Placed]:
    """Return the rows that are there, or of these the newest of each key, as a program without Spark reads them."""
    scan = pyspark_log.scan(root, TOPIC, columns=COLUMNS, latest=latest)
    return [placed for batch in scan for placed in rows_in(batch)]


def rows_in(batch: pa.RecordBatch) -> list[Placed]:
    """Return the rows of a batch with `COLUMNS`."""
    columns = [batch.column(name) for name in COLUMNS]
    columns[-1] = columns[-1].view(pa.int64())
    return [
        Placed(p, offset, Row(*row)) for p, offset, *row in zip(*(each.to_pylist() for each in columns), strict=True)
    ]


def states(rows: Iterable[Placed]) -> dict[int, dict[bytes, bytes]]:
    """Return the newest value of each key by partition, of rows of which each is the newest of its key."""
    found: dict[int, dict[bytes, bytes]] = {p: {} for p in range(PARTITIONS)}
    for p, _, row in rows:
        assert row.value is not None, f"partition {p}: {row.key!r} was deleted"
        assert row.key not in found[p], f"partition {p}: {row.key!r} is there twice"
        found[p][row.key] = row.value
    return found


class KeyedClient(TopicClient):
    """A log and its compacted topic, as a process has them open."""

    def __init__(self, root: str | Log, environment: Environment | None = None, topic: str = TOPIC) -> None:
        super().__init__(root, environment, topic)
        self.root = root if isinstance(root, str) else root.store.url

    def create(self, config: TopicConfig = COMPACTED) -> None:
        super().create(config)

    def record(self, values: Sequence[bytes]) -> pa.RecordBatch:
        columns = [list(column) for column in zip(*map(keyed, values), strict=True)]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema.RECORD, strict=True)]
        return pa.record_batch(arrays, schema=schema.RECORD)

    def read(self, partition: int) -> tuple[int, list[bytes]]:
        """Return the log start, and the values that are there, in order; those of deletions are empty."""
        rows = [row for p, _, row in scanned(self.root) if p == partition]
        return self.handle.partitions[partition].log_start, [row.value or b"" for row in rows]

    def check(self, producer: str, acknowledged: int) -> int:
        """Hold the topic against the batches of its one producer; return how many of them are in the log."""
        for report in (self.report(), verify.verify_cluster(self.log)):
            assert report.sound, report.findings
        batches = self.batches(producer)
        assert batches in {acknowledged, acknowledged + 1}
        expected = written(producer, batches)
        there, newest = scanned(self.root), states(scanned(self.root, latest=True))
        for p, partition in enumerate(self.handle.partitions):
            rows = {offset: row for each, offset, row in there if each == p}
            check_rows(rows, expected[p], partition.log_start, partition.compacted_end)
            state = newest_of(expected[p])
            kept = {row.key for row in expected[p][partition.log_start :]}
            assert newest[p] == {key: value for key, value in state.items() if key in kept}, f"partition {p}"
        return batches


def check_rows(there: dict[int, Row], rows: Sequence[Row], log_start: int, compacted_end: int) -> None:
    """Hold what is there of a partition, by offset, against all rows that were written to it.

    Each is as it was written; none is missing from the compacted end on, and before it none that is the newest of its
    key and does not delete it.
    """
    assert list(there) == sorted(there), "the offsets do not ascend"
    assert all(rows[offset] == row for offset, row in there.items()), "a row is another than was written there"
    assert all(offset >= log_start for offset in there)
    newest = {row.key: offset for offset, row in enumerate(rows)}
    needed = [offset for key, offset in newest.items() if rows[offset].value is not None]
    for offset in itertools.chain(needed, range(compacted_end, len(rows))):
        assert offset < log_start or offset in there, f"offset {offset} is missing: {rows[offset]}"
